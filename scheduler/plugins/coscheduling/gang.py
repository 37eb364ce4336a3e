"""A gang, and the record that the gangs of one gang group share."""

from collections import Counter
from dataclasses import dataclass, field

from seatrial.scheduler.api.core import PREEMPT_NEVER, Pod
from seatrial.scheduler.api.networktopology import GatherRule
from seatrial.scheduler.api.podgroup import NATIVE, MatchPolicy, Mode

PRIORITY_MISMATCH = "all pods in a single pod group should have the same priority as the pod group's priority"
SCHEDULER_MISMATCH = "all pods in a single pod group should have the same .spec.schedulerName set"
POLICY_MISMATCH = "all pods in a single pod group should have the same preemption policy"


@dataclass(slots=True, eq=False)
class GangGroup:
    """Gangs that are placed together. `ids` is sorted and has the gang's own id."""

    ids: tuple[str, ...]
    id: str = field(init=False)
    key: str = field(init=False)  # the wake key
    satisfied: bool = False  # a member was bound once; never reset
    representative: str = ""  # uid of the one member that may be in the active queue
    representative_key: str = ""
    cycle: int = 0  # number of attempts; only grows (GANG-R24)
    binding: frozenset[str] = frozenset()  # uids of the members that were bound together last
    message: str = ""  # why the last attempt failed
    gathering: str = ""  # what the last attempt found out about domains of the network

    def __post_init__(self) -> None:
        self.id = ",".join(self.ids)  # joined once: a group may have a thousand ids
        self.key = f"gang/{self.id}"


@dataclass(slots=True, eq=False)
class Gang:
    """One gang. Each child is in exactly one of pending, waiting (placed, not bound) and bound."""

    namespace: str
    name: str
    group: GangGroup
    initialised: bool = False  # minimum and mode are known
    from_object: bool = False  # from a PodGroup, not from annotations
    minimum: int = 0
    total: int = 0
    mode: Mode = Mode.STRICT
    policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    wait: float = 0.0  # seconds at Permit
    created: str = ""
    gather: tuple[GatherRule, ...] | None = None  # network-topology-spec
    topology_key: str = ""  # of a native group: the label that all nodes of its members have with one value
    notes: tuple[str, ...] = ()  # what is wrong with its labels, annotations or object
    children: dict[str, Pod] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    waiting: dict[str, None] = field(default_factory=dict)
    bound: dict[str, None] = field(default_factory=dict)
    priority: int = 0  # of a native group
    whole: bool = False  # a native group: all its members are preempted together
    gated: dict[str, None] = field(default_factory=dict)  # members of a native group with scheduling gates
    odd: dict[str, None] = field(default_factory=dict)  # members of a native group with another priority than its own
    non_preempting: dict[str, None] = field(default_factory=dict)  # members of a native group
    schedulers: Counter[str] = field(default_factory=Counter)  # how many members of a native group name each

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def native(self) -> bool:
        """Whether it is a PodGroup of scheduling.k8s.io."""
        return self.name.endswith(NATIVE)

    @property
    def mismatch(self) -> str:
        """Why no member of a native group can be scheduled (WAS-R22); "" if nothing is wrong."""
        if len(self.schedulers) > 1:
            return SCHEDULER_MISMATCH + ', got: "{}" and "{}"'.format(*self.schedulers)
        if not self.odd:
            mixed = 0 < len(self.non_preempting) < len(self.children) and self.initialised
            return f"{POLICY_MISMATCH}, got PreemptLowerPriority and Never" if mixed else ""
        priority = self.children[next(iter(self.odd))].spec.priority
        return f"{PRIORITY_MISMATCH}, got {priority} and {self.priority}"

    def set_member(self, pod: Pod) -> bool:
        """Note a member that was added or changed. Returns whether it lost its last scheduling gate."""
        uid = pod.metadata.uid
        self._forget_scheduler(uid)
        self.children[uid] = pod
        if not self.native:
            return False
        self.schedulers[pod.spec.scheduler_name] += 1
        self._mark(self.odd, uid, marked=pod.spec.priority != self.priority and self.initialised)
        self._mark(self.non_preempting, uid, marked=pod.spec.preemption_policy == PREEMPT_NEVER)
        before = uid in self.gated
        self._mark(self.gated, uid, marked=bool(pod.spec.scheduling_gates))
        return before and uid not in self.gated

    def _forget_scheduler(self, uid: str) -> None:
        before = self.children.get(uid)
        if before is None or not self.native:
            return
        name = before.spec.scheduler_name
        self.schedulers[name] -= 1
        if not self.schedulers[name]:
            del self.schedulers[name]

    @staticmethod
    def _mark(uids: dict[str, None], uid: str, *, marked: bool) -> None:
        if marked:
            uids[uid] = None
        else:
            uids.pop(uid, None)

    def remove_member(self, uid: str) -> None:
        """Forget a member."""
        self._forget_scheduler(uid)
        for uids in (self.children, self.pending, self.waiting, self.bound, self.odd, self.non_preempting, self.gated):
            uids.pop(uid, None)

    @property
    def runs(self) -> bool:
        """Whether a member is bound that is not being deleted: one that is may be of a former PodGroup of the name."""
        return any(not self.children[uid].deleting for uid in self.bound)

    @property
    def valid(self) -> bool:
        """Whether the minimum is met at Permit (GANG-R26)."""
        if not self.initialised:
            return False
        if self.policy is MatchPolicy.WAITING_AND_RUNNING:
            return len(self.waiting) + len(self.bound) >= self.minimum
        return len(self.waiting) >= self.minimum or self.once_satisfied

    @property
    def once_satisfied(self) -> bool:
        """Whether its members are placed like pods without a gang, because the group was bound once."""
        return self.policy is MatchPolicy.ONCE_SATISFIED and self.group.satisfied
