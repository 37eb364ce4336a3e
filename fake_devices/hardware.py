"""The descriptor of one vendor's hardware: what the stand-ins, the catalogue and the fault verbs need of a vendor.

Each vendor has one `Hardware`, declared in `<vendor>/hardware.py` and registered in `vendors.py`. The descriptor of the
same vendor for the rest of the program (provider, grant, resource names) is in `harness/devices/vendors`, which this
package must not import: other processes load it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from seatrial.fake_devices.build import StandInLibrary
from seatrial.fake_devices.facts import Facts

Slicing = Literal["", "mig", "vnpu", "smlu"]


@dataclass(frozen=True, slots=True)
class Links:
    """How a vendor's cards are linked in machines that are described by their devices alone."""

    kind: str  # as `Link.kind` spells it: nvlink, hccs, mlulink, xgmi
    group: int = 0  # cards linked all to all; 0: all cards of the machine
    switched: bool = False  # each port leads to a switch, not to another card


@dataclass(frozen=True, slots=True)
class FaultContext:
    """One fault at the moment when it begins.

    `record` is the device's `DeviceRecord`, open for writing. `event` writes to the event ring: type, code, severity
    (1 to 3) and assertion (1 began, 0 ended, 2 one-off). `links_down` takes down one port, or all ports for None.
    """

    record: Any
    arguments: Mapping[str, int]
    event: Callable[..., None]
    links_down: Callable[[int | None], None]

    def show(self, code: int) -> None:
        """Make `code` the device's present fault."""
        self.record.error_count, self.record.error_codes[0] = 1, code


FaultEffect = Callable[[FaultContext], None]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What one vendor's devices and library look like."""

    name: str  # as Koordinator's label node.koordinator.sh/gpu-vendor spells it
    code: int  # place in `Header.libraries`, and `DeviceRecord.vendor`; the C stand-in has the same number
    facts: type[Facts]  # facts that files of the catalogue must state
    pci_driver: str  # the kernel driver, as in /sys/bus/pci/drivers
    uuid: Callable[[bytes], str]  # identity from 32 pseudo-random bytes
    describe: Callable[[Any, Any], None]  # writes the vendor's own facts to a `DeviceRecord`
    faults: Mapping[str, FaultEffect]  # verb → what it changes; a verb that is missing is refused
    library: StandInLibrary | None = None  # the stand-in library; None for devices that are read from files
    python_library: bool = False  # a Python object can replace the library in this process (no compiler needed)
    no_driver_code: int = 0  # what starting the library answers when the driver is not loaded
    links: Links | None = None
    runtime: Callable[[Any], int] = field(default=lambda _: 0)  # version number of the compute runtime, from the facts
    minor_is_index: bool = False  # the driver counts devices as the library does
    chips_on_card: bool = False  # several devices share one card number
    announces_recovery: bool = False  # an event is sent when a fault has ended
    slicing: Slicing = ""
    slice_codes: Mapping[str, int] = field(default_factory=dict)  # reason of a `SliceError` → the library's answer


def dashed(digest: bytes) -> str:
    """The first 16 bytes in the usual notation of a UUID."""
    text = digest[:16].hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
