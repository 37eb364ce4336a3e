"""Pods decoded with what is known of their template are the pods that a plain decoder makes."""

import msgspec
import pytest

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.client.pods import PodDecoder

plain = msgspec.json.Decoder(Pod).decode


def pod(spec: bytes) -> bytes:
    return b'{"metadata":{"name":"a","uid":"u"},"spec":%b,"status":{"phase":"Pending"}}' % spec


TEMPLATE = b'{"containers":[{"name":"main","image":"busybox"}],"priority":3}'
SELECTING = (
    b'{"containers":[],"topologySpreadConstraints":[{"labelSelector":{"matchLabels":{"nodeName":"n1"}},"maxSkew":1}]}'
)
WITHOUT = SELECTING.replace(b'"nodeName":"n1"', b"")


@pytest.mark.parametrize(
    ("known", "spec", "shared"),
    [
        pytest.param(TEMPLATE, TEMPLATE[:-1] + b',"nodeName":"n1"}', True, id="the-node-at-the-end"),
        pytest.param(TEMPLATE, b'{"nodeName":"n1",' + TEMPLATE[1:], True, id="the-node-first"),
        pytest.param(TEMPLATE, TEMPLATE.replace(b'"pri', b'"nodeName":"n1","pri'), True, id="the-node-in-the-middle"),
        pytest.param(b"{}", b'{"nodeName":"n1"}', True, id="nothing-but-the-node"),
        pytest.param(TEMPLATE, TEMPLATE[:-1] + b',"nodeName":""}', True, id="an-empty-name"),
        pytest.param(TEMPLATE, b'{"priority":4,"nodeName":"n1"}', False, id="another-template"),
        pytest.param(WITHOUT, SELECTING, False, id="a-label-of-that-name"),
        pytest.param(WITHOUT, SELECTING[:-1] + b',"nodeName":"n2"}', False, id="a-label-of-that-name-and-the-node"),
        pytest.param(
            WITHOUT[:-1] + b',"nodeName":"n1"}', b'{"nodeName":"n1",' + SELECTING[1:], False, id="two-of-one-name"
        ),
        pytest.param(TEMPLATE, TEMPLATE[:-1] + b',"nodeName":"n\\u0031"}', False, id="an-escaped-name"),
        pytest.param(
            TEMPLATE, TEMPLATE[:-1] + b',"schedulerName":"\\"nodeName\\":\\"n1\\""}', False, id="a-text-that-looks-so"
        ),
        pytest.param(
            TEMPLATE[:-1] + b',"nodeName":"n1"}',
            TEMPLATE[:-1] + b',"nodeName":"n1","nodeName":"n2"}',
            False,
            id="the-node-twice",
        ),
    ],
)
def test_a_bound_pod_is_what_a_plain_decoder_makes_of_it(known: bytes, spec: bytes, shared: bool) -> None:
    decode = PodDecoder()
    first = decode(pod(known))
    document = decode(pod(spec))
    assert document == plain(pod(spec))
    assert not shared or document.spec.containers is first.spec.containers


def test_a_name_that_is_cut_off_is_an_error() -> None:
    decode = PodDecoder()
    decode(pod(TEMPLATE))
    with pytest.raises(msgspec.MsgspecError):
        decode(pod(TEMPLATE[:-1] + b',"nodeName":"n1'))
