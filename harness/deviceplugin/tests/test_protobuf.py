"""The wire format, against bytes worked out by hand from the definition of the messages."""

import pytest

from seatrial.harness.deviceplugin.messages import (
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    DevicePluginOptions,
    DeviceSpec,
    Empty,
    ListAndWatchResponse,
    PluginDevice,
    PluginMount,
    RegisterRequest,
)
from seatrial.scheduler.api.protobuf import decode, encode
from seatrial.scheduler.api.protobuf_wire import Malformed

ROWS = [
    pytest.param(Empty(), b"", id="nothing"),
    pytest.param(
        RegisterRequest("v1beta1", "x.sock", "nvidia.com/gpu", DevicePluginOptions(False, True)),
        b'\n\x07v1beta1\x12\x06x.sock\x1a\x0envidia.com/gpu"\x02\x10\x01',
        id="nested-message",
    ),
    pytest.param(
        ListAndWatchResponse((PluginDevice("a", "Healthy"), PluginDevice("b", "Unhealthy"))),
        b"\n\x0c\n\x01a\x12\x07Healthy\n\x0e\n\x01b\x12\tUnhealthy",
        id="list-of-messages",
    ),
    pytest.param(
        ContainerPreferredAllocationRequest(("a", "b"), (), 300),
        b"\n\x01a\n\x01b\x18\xac\x02",
        id="strings-and-a-number-of-two-bytes",
    ),
    pytest.param(ContainerPreferredAllocationRequest(size=-1), b"\x18" + b"\xff" * 9 + b"\x01", id="negative-number"),
    pytest.param(
        AllocateResponse(
            (
                ContainerAllocateResponse(
                    {"B": "1", "A": ""}, (PluginMount("/c", "/h", True),), (DeviceSpec("/d", "/e", "rw"),)
                ),
            )
        ),
        b"\n'\n\x03\n\x01A\n\x06\n\x01B\x12\x011\x12\n\n\x02/c\x12\x02/h\x18\x01\x1a\x0c\n\x02/d\x12\x02/e\x1a\x02rw",
        id="map-mount-and-device",
    ),
]


@pytest.mark.parametrize(("message", "data"), ROWS)
def test_bytes_of_a_message(message: object, data: bytes) -> None:
    assert encode(message) == data
    assert decode(data, type(message)) == message


def test_unknown_fields_are_skipped() -> None:
    """A later kubelet's message with a string in field 9."""
    assert decode(b"\n\x01a\x4a\x03new\x12\x07Healthy", PluginDevice) == PluginDevice("a", "Healthy")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"\x08\x01", "PluginDevice.id: expected wire type 2, found 0", id="number-for-a-string"),
        pytest.param(b"\n\x05ab", "expected 5 bytes, found 2", id="cut-off"),
        pytest.param(b"\n\x01\xff", "expected UTF-8", id="not-utf-8"),
    ],
)
def test_malformed_messages_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        decode(data, PluginDevice)
