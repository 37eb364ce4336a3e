"""Settings of a load (`LoadSettings`), of each of its processes (`WorkerSettings`), and of workers elsewhere."""

from ipaddress import ip_address
from pathlib import Path

import msgspec

from seatrial.harness.errors import UsageError
from seatrial.harness.load.arrival import Arrivals
from seatrial.harness.load.trace import Trace, load_trace
from seatrial.harness.load.workload import Mix, mix
from seatrial.scheduler.api.integers import integer

WORKER_VARIABLE = "SEATRIAL_LOAD"  # in the environment of a load process: the path of its settings
FILE_REFUSED = 2  # exit status of a load process whose Locust file cannot be used
PART_LABEL = "seatrial.dev/load-part"  # on each pod: which process made it, and watches it
LOAD_LABEL = "seatrial.dev/load"  # on the namespace, and with its name on nodes of the load
BESIDE = {"gangs": "GangUser", "native-gangs": "NativeGangUser", "quotas": "QuotaUser", "nodes": "NodeUser"}


class LoadSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a load.

    Raises:
        UsageError: a value is out of range; raised on construction.
    """

    users: int = 20  # largest number of requests in flight
    rate: float = 10.0  # pods per second; for a ramp: at its end
    arrivals: str = "poisson"
    seconds: float = 10.0
    mix: str = "mixed"
    hold: float = 1.0  # seconds from a pod's binding to its deletion
    drain: float = 30.0  # longest wait for bindings and deletions after the last arrival, in seconds
    processes: int = 1
    seed: int = 0
    scheduler: str = ""  # schedulerName of the pods; empty: the server's default
    web_port: int = 0  # of Locust's page; 0: none
    locustfile: str = ""  # a file with user classes, instead of rate, arrivals, mix, hold and trace
    also: tuple[str, ...] = ()  # of BESIDE: one more user of that class each, besides those of the plan or the file
    html: str = ""  # file for Locust's report; empty: none
    csv: str = ""  # what the names of Locust's CSV files begin with; empty: none
    trace: str = ""  # a file with the pods' arrivals, requests and durations, instead of rate, arrivals, mix and hold
    speed: float = 1.0  # how many times as fast the trace's time passes
    pods: int | None = None  # number of pods of the trace, from its start

    def __post_init__(self) -> None:
        self.plan()
        self.demand()
        for name, whole in (("users", self.users), ("processes", self.processes)):
            if whole < 1:
                raise UsageError(f"{name}: expected 1 or more, found {whole}")
        for name, value in (("hold", self.hold), ("drain", self.drain)):
            if not 0 <= value < float("inf"):
                raise UsageError(f"{name}: expected 0 or more seconds, found {value:g}")
        for name in self.also:
            if name not in BESIDE:
                raise UsageError(f"also: expected {', '.join(BESIDE)}, found {name!r}")
        if len(set(self.also)) < len(self.also):
            raise UsageError(f"also: expected each name once, found {', '.join(self.also)}")
        if self.processes > self.users:
            raise UsageError(f"processes: expected at most as many as users ({self.users}), found {self.processes}")
        if self.shown and self.processes > 1:
            raise UsageError(
                f"Locust's page and reports show one process; expected --processes 1, found {self.processes}"
            )

    @property
    def free_users(self) -> bool:
        """Whether there are users that create pods without a plan."""
        return bool(self.locustfile or self.also)

    @property
    def shown(self) -> bool:
        """Whether Locust shows the load, on its page or in a report."""
        return bool(self.web_port or self.html or self.csv)

    def recorded(self) -> Trace | None:
        """The trace, if there is one: its file is read."""
        return load_trace(Path(self.trace), speed=self.speed, count=self.pods) if self.trace else None

    def demand(self) -> Mix:
        """The shapes of the pods; of pods of a Locust file, which are not known, one that any cluster takes."""
        if self.locustfile:
            return mix("cpu")
        trace = self.recorded()
        return mix(self.mix) if trace is None else trace.mix()

    def plan(self) -> Arrivals:
        """The arrival process of these settings."""
        return Arrivals(self.arrivals, self.rate, self.seconds)


class WorkerSettings(msgspec.Struct, frozen=True):
    """The work of one load process: every `processes`-th arrival, beginning with number `part`."""

    settings: LoadSettings
    kubeconfig: str  # empty: the service account of the pod that it runs in
    namespace: str
    folder: str  # for its files: ready, progress, result
    part: int

    @property
    def users(self) -> int:
        """The number of users of this process; those beside the plan are the first one's."""
        return len(range(self.part, self.settings.users, self.settings.processes)) + len(self.beside)

    @property
    def beside(self) -> tuple[str, ...]:
        """The classes of users beside the plan that this process has, one user of each."""
        return tuple(BESIDE[name] for name in self.settings.also) if self.part == 0 else ()


class Listener(msgspec.Struct, frozen=True):
    """Where the master of a load waits for its workers, and for how many seconds."""

    host: str
    port: int
    within: float

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def at(cls, address: str, *, within: float) -> "Listener":
        """A listener at `HOST:PORT`; an IPv6 address is in brackets.

        Raises:
            UsageError: the address has another form, or `within` is no number of seconds above 0.
        """
        host, _, port = address.rpartition(":")
        number = integer(port, 1, 65535)
        if not host or number is None:
            raise UsageError(f"--bind {address}: expected HOST:PORT, as in 127.0.0.1:5557")
        if not 0 < within < float("inf"):
            raise UsageError(f"--workers-within: expected a number of seconds above 0, found {within:g}")
        return cls(host, number, within)

    @property
    def loopback(self) -> bool:
        """Whether only processes of this machine reach it."""
        try:
            return ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"


class MasterSettings(msgspec.Struct, frozen=True):
    """Where the master process of a load listens for workers, and what it hands to them."""

    host: str
    port: int
    workers: tuple[WorkerSettings, ...]  # kubeconfig and folder are the worker's own
    folder: str


class StartSignal(msgspec.Struct, frozen=True):
    """The start signal, written by the parent when all processes are ready."""

    start: float  # on the machine's monotonic clock, which all its processes share
