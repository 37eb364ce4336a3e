"""The neutral model of devices, and what a provider (the reader of one vendor's library or kernel tree) must offer.

Bytes, percent, °C and W everywhere: a vendor's own units stop in its provider. Whatever a library does not say is None,
never 0. A provider knows only its boundary (a library, a tree, a socket); it cannot tell a stand-in from the real one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import ClassVar, Literal, Self

from harness.devices.hami_release import HamiHost
from harness.errors import DeviceError

DeviceKind = Literal["gpu", "rdma"]  # Koordinator's words: NPUs and MLUs are of type gpu
Source = Literal["real", "fake-abi", "fake-table"]


class Failing(StrEnum):
    """What a failed call means, whoever's code it was."""

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
    """A vendor's library refused."""

    def __init__(self, kind: Failing, *, vendor: str, call: str, code: int, text: str = "") -> None:
        self.kind, self.vendor, self.call, self.code = kind, vendor, call, code
        super().__init__(f"{vendor}: {call} answered {code}{f' ({text})' if text else ''}: {kind}")


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is nothing of a vendor in this machine: a key for reports, a sentence for people."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Health:
    """`sticky`: it does not get better by itself (a critical XID); others come back when the vendor says so."""

    ok: bool
    code: str = ""
    message: str = ""
    sticky: bool = False
    action: str = ""  # what the vendor wants done: gpu-reset, node-reboot, …


WELL = Health(ok=True)


@dataclass(frozen=True, slots=True)
class Function:
    """An SR-IOV virtual function."""

    bus_id: str
    uverbs: int | None = None


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a card that works as one: a MIG instance, a vNPU, an sMLU instance."""

    id: str
    kind: str  # mig, vnpu, smlu
    template: str
    memory: int
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One card or NIC. Index, minor, card and uuid are four different names of it; see the vendor's page in docs/."""

    vendor: str
    kind: DeviceKind
    model: str  # as the vendor prints it
    label: str  # as Koordinator's node label has it
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
    board: str = ""
    serial: str = ""
    kernel_name: str = ""  # of a NIC: mlx5_0
    nodes: tuple[str, ...] = ()  # of this device alone, in /dev
    functions: tuple[Function, ...] = ()
    slices: tuple[Slice, ...] = ()
    source: Source = "real"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a device is doing. Percent, bytes, °C, W."""

    memory: int | None = None
    core: float | None = None
    temperature: float | None = None
    power: float | None = None
    throttle: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    memory: int | None = None
    core: float | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Two devices of one vendor, joined. `b` is empty for a switch. Listed once, a < b."""

    a: str
    b: str
    kind: str  # nvlink, hccs, sio, mlulink, or a PCIe level
    lanes: int
    up: bool


@dataclass(frozen=True, slots=True)
class Event:
    device: str  # uuid; empty: the vendor could not say which
    kind: str  # xid, ecc, fault, health, port
    code: str
    severity: Literal["info", "warning", "critical"]
    on: bool  # False: it has passed
    at: float | None = None  # seconds since 1970, where the vendor says


@dataclass(frozen=True, slots=True)
class Driver:
    driver: str
    library: str
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """One device's part of an assignment. Amounts by Koordinator's resource names, bytes and percent."""

    device: Device
    resources: Mapping[str, int]
    functions: tuple[Function, ...] = ()
    slices: tuple[Slice, ...] = ()  # cut for this pod: vNPU, sMLU, MIG

    @property
    def whole(self) -> bool:
        """Whether the card belongs to the pod alone; as koordlet's hook judges it, by the memory ratio."""
        return self.resources.get("koordinator.sh/gpu-memory-ratio", 100) >= 100


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one container of a pod was given of one vendor's devices."""

    shares: tuple[Share, ...]
    pod_uid: str = ""
    container: str = ""
    isolation: str = ""  # the pod's label koordinator.sh/gpu-isolation-provider
    annotations: Mapping[str, str] = field(default_factory=dict)
    hami: HamiHost = field(default_factory=HamiHost)


@dataclass(frozen=True, slots=True)
class Mount:
    host: str
    container: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerGrant:
    """The container as the vendor's runtime would leave it."""

    env: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()  # paths inside the container
    mounts: tuple[Mount, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)  # for the pod

    def with_grant(self, other: "ContainerGrant") -> "ContainerGrant":
        """Both, each device node and mount once."""
        return ContainerGrant(
            {**self.env, **other.env},
            tuple(dict.fromkeys((*self.nodes, *other.nodes))),
            tuple(dict.fromkeys((*self.mounts, *other.mounts))),
            {**self.annotations, **other.annotations},
        )


class DeviceProvider(ABC):
    """Reads one vendor's devices. A context manager: open inside, closed after."""

    vendor: ClassVar[str]

    @abstractmethod
    def probe(self) -> Missing | None:
        """Why there is nothing here; None if there is. Leaves nothing open."""

    @abstractmethod
    def open(self) -> None:
        """Start the library; opening twice is fine.

        Raises:
            ProviderError: it does not start.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop it; closing twice, or after the library was lost, is fine."""

    @abstractmethod
    def driver(self) -> Driver:
        """Versions."""

    @abstractmethod
    def devices(self) -> tuple[Device, ...]:
        """All devices, in the library's order; one that does not answer is listed unhealthy beside the others."""

    @abstractmethod
    def usage(self, uuid: str) -> Usage:
        """What a device is doing now."""

    @abstractmethod
    def processes(self, uuid: str) -> tuple[Process, ...]:
        """Who uses it."""

    @abstractmethod
    def health(self, uuid: str) -> Health:
        """How it is now."""

    @abstractmethod
    def links(self) -> tuple[Link, ...]:
        """What joins the devices, beside PCIe."""

    @abstractmethod
    def events(self, timeout: float = 0.0) -> tuple[Event, ...]:
        """What has happened since `open` or the last call; waits at most `timeout` seconds for the first."""

    def forget(self, uuid: str) -> None:  # noqa: B027 most vendors keep nothing in mind
        """The device was reset or replaced: what had happened to it is over. For what else stays for good."""

    def slice(self, uuid: str, template: str) -> Slice:
        """Cut a part off a card.

        Raises:
            ProviderError: it does not fit, or this vendor cannot.
        """
        raise ProviderError(Failing.UNSUPPORTED, vendor=self.vendor, call=f"slice {uuid} {template}", code=0)

    def unslice(self, uuid: str, slice_id: str) -> None:
        """Give a part back.

        Raises:
            ProviderError: it is in use or not there.
        """
        raise ProviderError(Failing.UNSUPPORTED, vendor=self.vendor, call=f"unslice {uuid} {slice_id}", code=0)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def model_label(model: str) -> str:
    """The value of the label `node.koordinator.sh/gpu-model` for a model name: spaces become dashes."""
    return model.replace(" ", "-")


def by_vendor(shares: Sequence[Share]) -> dict[str, tuple[Share, ...]]:
    """Shares grouped by the vendor whose runtime handles them, in order of appearance."""
    groups: dict[str, list[Share]] = {}
    for share in shares:
        groups.setdefault(share.device.vendor, []).append(share)
    return {vendor: tuple(group) for vendor, group in groups.items()}
