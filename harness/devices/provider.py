"""The neutral model of devices, and the interface of providers. A provider reads one vendor's library or kernel tree.

Units are bytes, percent, °C and W; a provider converts its vendor's units. A fact that a library does not report is
None, never 0. A provider uses only its boundary (a library, a tree, a socket) and cannot tell hardware from a stand-in.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import TracebackType
from typing import ClassVar, Literal, Self

from seatrial.harness.devices.hami_release import HamiHost
from seatrial.harness.errors import DeviceError

DeviceKind = Literal["gpu", "rdma"]  # Koordinator's device types: NPUs and MLUs are of type gpu
Source = Literal["real", "fake-abi", "fake-table"]


class FailureKind(StrEnum):
    """The meaning of a failed call, for all vendors' codes."""

    ABSENT = "absent"
    LOST = "lost"
    UNSUPPORTED = "unsupported"
    DENIED = "denied"
    BUSY = "busy"
    TIMEOUT = "timeout"
    RESET_NEEDED = "reset-needed"
    BAD_LAYOUT = "bad-layout"
    UNKNOWN = "unknown"


class ProviderError(DeviceError):
    """A call of a vendor's library failed."""

    def __init__(self, kind: FailureKind, *, vendor: str, call: str, code: int, text: str = "") -> None:
        self.kind, self.vendor, self.call, self.code = kind, vendor, call, code
        super().__init__(f"{vendor}: {call} answered {code}{f' ({text})' if text else ''}: {kind}")


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a machine has no device of a vendor: `key` for reports, `why` as a sentence."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a device. `sticky`: it stays until a restart or `forget`, as after a critical XID."""

    ok: bool
    code: str = ""
    message: str = ""
    sticky: bool = False
    action: str = ""  # the recovery action that the vendor names: gpu-reset, node-reboot, …


WELL = Health(ok=True)


@dataclass(frozen=True, slots=True)
class Function:
    """An SR-IOV virtual function."""

    bus_id: str
    uverbs: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice of a card: a MIG instance, a vNPU, an sMLU instance."""

    id: str
    kind: str  # mig, vnpu, smlu
    template: str
    memory: int
    cores: int | None = None
    nodes: tuple[str, ...] = ()  # device nodes, where the vendor's library names them
    profile: int = -1  # MIG: the vendor's number of the template; -1: not reported
    places: range = range(0)  # MIG: the parts of the card's memory that it has
    engines: tuple[tuple[str, int], ...] = ()  # MIG: numbers of multiprocessors and other units, by the driver's names


@dataclass(frozen=True, slots=True)
class Device:
    """One card or NIC. Index, minor, card and uuid are four different identifiers."""

    vendor: str
    kind: DeviceKind
    model: str  # as the vendor prints it
    label: str  # value of the label node.koordinator.sh/gpu-model
    index: int  # the vendor library's order
    minor: int  # the kernel's number
    uuid: str
    bus_id: str  # sysfs' form: lower case, domain of four digits or more
    numa: int | None
    pcie_root: str
    memory: int  # bytes; 0 for NICs
    health: Health = WELL
    card: int = -1
    ai_cores: int = 0
    ai_cpus: int = 0
    capability: str = ""  # compute capability, as in 9.0; empty: not reported
    brand: str = ""  # product line, as the vendor's driver for claims spells it; empty: not reported
    board: str = ""
    serial: str = ""
    kernel_name: str = ""  # of a NIC: mlx5_0
    nodes: tuple[str, ...] = ()  # device nodes of this device alone
    functions: tuple[Function, ...] = ()
    slices: tuple[Slice, ...] = ()
    divided: bool = False  # its mode gives work to slices alone, as MIG does: the whole card runs nothing
    source: Source = "real"


@dataclass(frozen=True, slots=True)
class Usage:
    """Utilisation of a device: memory in bytes, core in percent, temperature in °C, power in W. None: not reported."""

    memory: int | None = None
    core: float | None = None
    temperature: float | None = None
    power: float | None = None
    throttle: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a device: memory in bytes, core in percent. None: not reported."""

    pid: int
    memory: int | None = None
    core: float | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two devices of one vendor, listed once with a < b; `b` is empty for a switch."""

    a: str
    b: str
    kind: str  # nvlink, hccs, sio, mlulink, xgmi, or a PCIe level
    lanes: int
    up: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A message of the vendor's library about a device."""

    device: str  # uuid; empty: the vendor does not report which
    kind: str  # xid, ecc, fault, health, port
    code: str
    severity: Literal["info", "warning", "critical"]
    on: bool  # False: the condition has ended
    at: float | None = None  # seconds since 1970; None: not reported


@dataclass(frozen=True, slots=True)
class Driver:
    """Versions of the kernel driver, the vendor's library and the compute runtime; empty: not reported."""

    driver: str
    library: str
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """One device's part of an assignment. `resources` are in bytes and percent, by Koordinator's names."""

    device: Device
    resources: Mapping[str, int]
    functions: tuple[Function, ...] = ()
    slices: tuple[Slice, ...] = ()  # created for this pod: vNPU, sMLU, MIG

    @property
    def whole(self) -> bool:
        """Whether the pod has the whole card, by the memory ratio, as in koordlet's hook."""
        return self.resources.get("koordinator.sh/gpu-memory-ratio", 100) >= 100


@dataclass(frozen=True, slots=True)
class Assignment:
    """The devices of one vendor that are allocated to one container of a pod."""

    shares: tuple[Share, ...]
    pod_uid: str = ""
    container: str = ""
    isolation: str = ""  # the pod's label koordinator.sh/gpu-isolation-provider
    annotations: Mapping[str, str] = field(default_factory=dict)
    hami: HamiHost = field(default_factory=HamiHost)


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host that is mounted into a container; both paths are absolute."""

    host: str
    container: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerGrant:
    """What a vendor's runtime adds to a container."""

    env: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()  # paths inside the container
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)  # for the pod

    def with_grant(self, other: "ContainerGrant") -> "ContainerGrant":
        """The union of both grants, each device node and mount once."""
        return ContainerGrant(
            {**self.env, **other.env},
            tuple(dict.fromkeys((*self.nodes, *other.nodes))),
            tuple(dict.fromkeys((*self.mounts, *other.mounts))),
            {**self.annotations, **other.annotations},
        )


class DeviceProvider(ABC):
    """Reads one vendor's devices. As a context manager it is open inside the block."""

    vendor: ClassVar[str]

    @abstractmethod
    def probe(self) -> Missing | None:
        """Why the machine has no device of this vendor; None if it has one. Leaves the library closed."""

    @abstractmethod
    def open(self) -> None:
        """Start the library. May be called twice.

        Raises:
            ProviderError: the library does not start.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the library. May be called twice, and after the library was lost."""

    @abstractmethod
    def driver(self) -> Driver:
        """Versions of driver, library and compute runtime."""

    @abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """All devices, in the library's order; a device that does not answer is listed as unhealthy."""

    @abstractmethod
    def usage(self, uuid: str) -> Usage:
        """Present utilisation of a device."""

    @abstractmethod
    def processes(self, uuid: str) -> tuple[Process, ...]:
        """Processes on a device."""

    @abstractmethod
    def health(self, uuid: str) -> Health:
        """Present health of a device."""

    @abstractmethod
    def links(self) -> tuple[Link, ...]:
        """Links between the devices other than PCIe."""

    @abstractmethod
    def events(self, timeout: float = 0.0) -> tuple[Event, ...]:
        """Events since `open` or the last call; waits at most `timeout` seconds for the first.

        A provider whose library has no events compares the health of its devices with that at the last call.
        """

    def forget(self, uuid: str) -> None:  # noqa: B027 most vendors keep no state
        """Forget sticky health: the device was reset or replaced."""

    def slice(self, uuid: str, template: str) -> Slice:
        """Create a slice of a card.

        Raises:
            ProviderError: it does not fit, or the vendor has no slices.
        """
        raise ProviderError(FailureKind.UNSUPPORTED, vendor=self.vendor, call=f"slice {uuid} {template}", code=0)

    def unslice(self, uuid: str, slice_id: str) -> None:
        """Remove a slice.

        Raises:
            ProviderError: it is in use or does not exist.
        """
        raise ProviderError(FailureKind.UNSUPPORTED, vendor=self.vendor, call=f"unslice {uuid} {slice_id}", code=0)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def unread_card(vendor: str, index: int, health: Health, source: Source, known: Device | None = None) -> Device:
    """A card that the library counts and that does not answer. Unless it is `known` from before, all but its index and
    health is unknown."""
    if known is not None:
        return replace(known, health=health)
    return Device(
        vendor=vendor,
        kind="gpu",
        model="",
        label="",
        index=index,
        minor=index,
        uuid=f"unknown-{index}",
        bus_id="",
        numa=None,
        pcie_root="",
        memory=0,
        health=health,
        source=source,
    )


def model_label(model: str) -> str:
    """The value of the label `node.koordinator.sh/gpu-model` for a model name: spaces become dashes."""
    return model.replace(" ", "-")


def by_vendor(shares: Sequence[Share]) -> dict[str, tuple[Share, ...]]:
    """Shares grouped by vendor, in order of first appearance."""
    groups: dict[str, list[Share]] = {}
    for share in shares:
        groups.setdefault(share.device.vendor, []).append(share)
    return {vendor: tuple(group) for vendor, group in groups.items()}
