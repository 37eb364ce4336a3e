"""Results of plugins. A rejection is a `Status` with upstream's message; an exception is a bug."""

from dataclasses import dataclass, replace
from enum import IntEnum

from seatrial.scheduler.cache.nodeinfo import PodInfo


class Code(IntEnum):
    """Codes of k8s.io/kube-scheduler/framework. Numbers differ from upstream's."""

    SUCCESS = 0
    SKIP = 1  # the plugin does not apply to this pod
    WAIT = 2  # Permit: the pod waits until the plugin allows or rejects it
    UNSCHEDULABLE = 3  # rejected; removing pods might help
    UNRESOLVABLE = 4  # rejected; removing pods does not help (UnschedulableAndUnresolvable)
    ERROR = 5


@dataclass(frozen=True, slots=True)
class Status:
    """The result of one plugin. `nodes` limits the search to these node names (PreFilter only)."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    nodes: frozenset[str] | None = None
    wake_key: str = ""  # PreEnqueue: ask again when this gate opens (`Handle.open_gate`)
    seconds: float = 0.0  # Permit, Wait: for how long
    waits: tuple[tuple[str, float], ...] = ()  # of all Permit plugins that have the pod wait: name and seconds
    of_taints: bool = False  # a taint or the cordon of the node rejects the pod

    @staticmethod
    def skip() -> "Status":
        """PreFilter: the plugin has nothing to check for this pod, and its Filter is not called."""
        return SKIP

    @staticmethod
    def unschedulable(*reasons: str) -> "Status":
        """A rejection that evicting pods may remove."""
        return Status(Code.UNSCHEDULABLE, reasons)

    @staticmethod
    def unresolvable(*reasons: str) -> "Status":
        """A rejection that evicting pods does not remove: preemption leaves the node out."""
        return Status(Code.UNRESOLVABLE, reasons)

    @staticmethod
    def wait(seconds: float) -> "Status":
        """Permit: have the pod wait for `Handle.waiting_pod(uid).allow(plugin)`, at most for this time."""
        return Status(Code.WAIT, seconds=seconds)

    @staticmethod
    def error(reason: str) -> "Status":
        """A failure of the plugin itself: the pod is tried again after its backoff, whatever happens in the cluster."""
        return Status(Code.ERROR, (reason,))

    @staticmethod
    def only(nodes: frozenset[str]) -> "Status":
        """Success, limited to these nodes."""
        return Status(Code.SUCCESS, nodes=nodes)

    @property
    def ok(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def skipped(self) -> bool:
        return self.code is Code.SKIP

    @property
    def rejected(self) -> bool:
        """Whether the pod is rejected, by either kind of rejection; an error is none."""
        return self.code in {Code.UNSCHEDULABLE, Code.UNRESOLVABLE}

    @property
    def message(self) -> str:
        """The reasons, joined as Kubernetes joins them."""
        return ", ".join(self.reasons)

    def until(self, wake_key: str) -> "Status":
        """The same rejection, to be asked again when the gate `wake_key` opens (PreEnqueue)."""
        return replace(self, wake_key=wake_key)

    def by(self, plugin: str) -> "Status":
        """The same status with the name of the plugin that returned it."""
        return replace(self, plugin=plugin)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """Success: nominate the pod to `node`, or several pods (`nominations`), and evict `victims`, on whatever nodes.

    Otherwise `status` has the reason why nothing can be done.
    """

    status: Status
    node: str = ""
    victims: tuple[PodInfo, ...] = ()
    clear_nomination: bool = False
    nominations: tuple[tuple[PodInfo, str], ...] = ()  # pods of a group with their nodes
    preemptor: str = ""  # job-level preemption: the gang group or pod, for the victims' condition

    def all_nominations(self, info: PodInfo) -> tuple[tuple[PodInfo, str], ...]:
        """The nominated pods with their nodes; `info` is the pod that was not placed."""
        return self.nominations or ((info, self.node),)
