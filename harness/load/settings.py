"""What a load is told: by its user (`LoadSettings`), and what each of its processes gets as a file (`Errand`)."""

import msgspec

from harness.errors import UsageError
from harness.load.arrival import Arrivals
from harness.load.workload import mix

ERRAND_VARIABLE = "SEATRIAL_LOAD"  # in the environment of a load process: the path of its errand
PART_LABEL = "seatrial.dev/load-part"  # on each pod: which process made it, and watches it
LOAD_LABEL = "seatrial.dev/load"  # on the namespace


class LoadSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A load.

    Raises:
        UsageError: a value cannot be used; raised at once, before anything is started.
    """

    users: int = 20  # how many requests may be on their way at a time
    rate: float = 10.0  # pods per second; of a ramp: at its end
    arrivals: str = "poisson"
    seconds: float = 10.0
    mix: str = "mixed"
    hold: float = 1.0  # seconds from a pod's binding to its deletion
    drain: float = 30.0  # seconds after the last arrival that bindings and deletions are waited for
    processes: int = 1
    seed: int = 0
    scheduler: str = ""  # schedulerName of the pods; empty: what the server fills in
    web_port: int = 0  # of Locust's page; 0: none

    def __post_init__(self) -> None:
        self.plan()
        mix(self.mix)
        for name, whole in (("users", self.users), ("processes", self.processes)):
            if whole < 1:
                raise UsageError(f"{name}: expected 1 or more, found {whole}")
        for name, value in (("hold", self.hold), ("drain", self.drain)):
            if not 0 <= value < float("inf"):
                raise UsageError(f"{name}: expected 0 or more seconds, found {value:g}")
        if self.processes > self.users:
            raise UsageError(f"processes: expected at most as many as users ({self.users}), found {self.processes}")
        if self.web_port and self.processes > 1:
            raise UsageError(f"the web page shows one process; expected --processes 1, found {self.processes}")

    def plan(self) -> Arrivals:
        """When pods are due."""
        return Arrivals(self.arrivals, self.rate, self.seconds)


class Errand(msgspec.Struct, frozen=True):
    """What one load process is to do: every `processes`-th arrival, beginning with number `part`."""

    settings: LoadSettings
    kubeconfig: str
    namespace: str
    folder: str  # where it says that it is ready, how far it is, and what came out
    part: int

    @property
    def users(self) -> int:
        """This process' share of the users."""
        return len(range(self.part, self.settings.users, self.settings.processes))


class Go(msgspec.Struct, frozen=True):
    """Written by the parent once all processes are ready."""

    start: float  # on the machine's monotonic clock, which all its processes share
