"""Facts of device models as the catalogue states them: what every device has, what a card has, what a NIC has.

Facts that only one vendor's devices have are declared beside that vendor's `Hardware` (`<vendor>/hardware.py`).
"""

import re
from typing import Literal

import msgspec

_SIZE = re.compile(r"(\d+)(Ki|Mi|Gi|Ti)?", re.ASCII)
_SHIFT = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


class Size(int):
    """An amount in bytes. Files write it as a number or with the suffix Ki, Mi, Gi or Ti."""


class SliceProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way of slicing a card: a MIG profile or a vNPU template."""

    memory: Size
    cores: int  # MIG: compute slices; vNPU: AI cores
    cpus: int = 0  # AI CPUs
    dvpp: int = 0  # percent of the media units
    profile: int = -1  # the vendor's number of it
    count: int = 1  # the largest number that fits on a card
    engines: tuple[int, int, int, int] = (0, 0, 0, 0)  # MIG: copy engines, decoders, JPEG and OFA engines


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of every device."""

    name: str  # as the vendor's library prints it
    pci: str  # vendor:device, hexadecimal
    subsystem: str
    pci_class: str
    driver: str
    library: str


class AcceleratorFacts(Facts, frozen=True, forbid_unknown_fields=True):
    """Facts of every accelerator card. Temperatures in °C, power in W, memory in bytes."""

    memory: Size
    reserved: Size  # held by driver and firmware, inside `memory`
    cores: int  # SMs, AI cores, IPU cores, compute units
    links: int  # NVLink, HCCS, MLU-Link or XGMI ports
    idle_temperature: int
    slowdown_temperature: int
    shutdown_temperature: int
    idle_power: int
    power_limit: int


class SlicedFacts(AcceleratorFacts, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Facts of cards that are sliced by profiles which the model defines; none for a model that cannot be sliced."""

    slices: dict[str, SliceProfile] = {}


class NicFacts(Facts, frozen=True, forbid_unknown_fields=True):
    """Facts of an RDMA network card."""

    rate: int  # Gb/s of one port
    speed: str  # the suffix of sysfs `rate`: "4X NDR"
    link_layer: Literal["InfiniBand", "Ethernet"]
    firmware: str
    board: str
    vfs: int  # sriov_totalvfs
    vf_pci: str
    enabled_vfs: int  # sriov_numvfs in machines of the catalogue


def size(text: str | int) -> Size:
    """Bytes from a number or from text like 80Gi.

    Raises:
        ValueError: the text has neither form.
    """
    match = _SIZE.fullmatch(str(text))
    if match is None or isinstance(text, bool):
        raise ValueError(f"expected bytes as a number or with Ki, Mi, Gi or Ti, found {text!r}")
    return Size(int(match[1]) << _SHIFT[match[2] or ""])
