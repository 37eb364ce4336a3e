"""The writer's side of the mailbox: carries out or refuses changes that consumers of a stand-in library request.

A library writes its request to the table and waits for two seconds (abi/attach.c). The owner of the table calls
`answer` in time; without an owner the library reports a timeout.
"""

from collections.abc import Callable, Mapping

from seatrial.fake_devices import slices
from seatrial.fake_devices.layout import MAILBOX_ANSWERED, MAILBOX_ASKED, OPERATIONS
from seatrial.fake_devices.slices import SliceError
from seatrial.fake_devices.table import DeviceTable

POLL_INTERVAL = 0.05  # seconds between two calls of `answer`; a library waits two seconds
CHOOSE = 0xFFFFFFFF  # DCMI: the library chooses the number

Request = tuple[DeviceTable, int, list[int], str]  # table, position, arguments, text


def answer(table: DeviceTable) -> bool:
    """Carry out the pending request, if there is one. Returns whether there was one."""
    box = table.mailbox
    if box.state != MAILBOX_ASKED:
        return False
    box.results[0], box.answer = 0, 0
    at = int(box.device)
    hardware = table.machine.slots[at].model.hardware
    act = _ACTIONS.get((hardware.slicing, int(box.operation)))
    try:
        if act is None:
            raise SliceError("unknown", f"{hardware.name}: no operation {box.operation}")
        box.results[0] = act(
            (table, at, [int(argument) for argument in box.arguments], box.text.decode(errors="replace"))
        )
    except SliceError as error:
        box.answer = hardware.slice_codes.get(error.reason, -1)
    box.state = MAILBOX_ANSWERED  # last: the library reads everything else once it sees this
    return True


def _make_vnpu(request: Request) -> int:
    table, at, arguments, text = request
    return slices.cut_vnpu(table, at, text, arguments[0] if arguments[0] != CHOOSE else None)


def _end_vnpu(request: Request) -> int:
    table, at, arguments, _ = request
    slices.remove(table, at, slices.VNPU, arguments[0])
    return 0


def _set_mode(request: Request) -> int:
    table, at, arguments, _ = request
    if not arguments[0] and any(part.parent for part in slices.parts(table, at, slices.SMLU)):
        raise SliceError("busy", f"device {at}: instances are there")
    with table.writing(table.devices[at]) as device:
        device.slice_mode = int(bool(arguments[0]))
    return 0


def _make_profile(request: Request) -> int:
    table, at, arguments, _ = request
    return slices.make_profile(table, at, arguments[0], arguments[1])


def _end_profile(request: Request) -> int:
    table, at, arguments, _ = request
    slices.remove_profile(table, at, arguments[0])
    return 0


def _make_smlu(request: Request) -> int:
    table, at, arguments, text = request
    return slices.cut_smlu(table, at, arguments[0], text)


def _end_smlu(request: Request) -> int:
    table, at, arguments, _ = request
    slices.remove(table, at, slices.SMLU, arguments[0])
    return 0


_ACTIONS: Mapping[tuple[str, int], Callable[[Request], int]] = {
    ("vnpu", OPERATIONS["create_slice"]): _make_vnpu,
    ("vnpu", OPERATIONS["destroy_slice"]): _end_vnpu,
    ("smlu", OPERATIONS["set_slice_mode"]): _set_mode,
    ("smlu", OPERATIONS["create_profile"]): _make_profile,
    ("smlu", OPERATIONS["destroy_profile"]): _end_profile,
    ("smlu", OPERATIONS["create_slice"]): _make_smlu,
    ("smlu", OPERATIONS["destroy_slice"]): _end_smlu,
}
