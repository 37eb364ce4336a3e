"""A Hypothesis state machine over the limits: any order of evictions, pauses and rounds."""

from collections import Counter
from copy import deepcopy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from seatrial.scheduler.descheduler.limits import EvictionLimiter, ObjectLimiter

NODES, NAMESPACES, WORKLOADS = st.sampled_from(["n1", "n2", ""]), st.sampled_from(["x", "y"]), st.sampled_from("uvw")


class Limits(RuleBasedStateMachine):
    """A caller that asks both limiters first never exceeds a cap of the round nor the rate of a workload."""

    @initialize(
        caps=st.tuples(*[st.one_of(st.none(), st.integers(0, 4))] * 3), limit=st.integers(1, 4), burst=st.integers(1, 2)
    )
    def begin(self, caps: tuple[int | None, int | None, int | None], limit: int, burst: int) -> None:
        self.caps, self.limit, self.burst, self.duration = caps, limit, min(burst, limit), 60.0
        self.of_round, self.of_object = EvictionLimiter(*caps), ObjectLimiter(self.duration)
        self.now = 0.0
        self.round: list[tuple[str, str]] = []
        self.times: dict[str, list[float]] = {}

    @rule(node=NODES, namespace=NAMESPACES, workload=WORKLOADS)
    def evict(self, node: str, namespace: str, workload: str) -> None:
        if self.of_round.allows(node, namespace) and self.of_object.allows(workload, self.now):
            self.of_round.done(node, namespace)
            self.of_object.evicted(workload, self.limit, self.burst, self.now)
            self.round.append((node, namespace))
            self.times.setdefault(workload, []).append(self.now)

    @rule(seconds=st.sampled_from([0.5, 5.0, 15.0, 59.0, 95.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def next_round(self) -> None:
        self.of_round.reset()
        self.round.clear()

    @rule()
    def restart(self) -> None:
        """A new descheduler knows nothing of earlier evictions: rates and caps hold for each life."""
        self.of_round, self.of_object = EvictionLimiter(*self.caps), ObjectLimiter(self.duration)
        self.round.clear()
        self.times.clear()

    @invariant()
    def caps_hold(self) -> None:
        if not hasattr(self, "caps"):
            return
        per_node, per_namespace, total = self.caps
        nodes = Counter(node for node, _ in self.round if node)
        namespaces = Counter(namespace for _, namespace in self.round)
        assert per_node is None or max(nodes.values(), default=0) <= per_node
        assert per_namespace is None or max(namespaces.values(), default=0) <= per_namespace
        assert total is None or len(self.round) <= total
        assert self.of_round.count == len(self.round)

    @invariant()
    def no_window_has_too_many(self) -> None:
        for times in getattr(self, "times", {}).values():
            for first, begin in enumerate(times):
                for last in range(first, len(times)):
                    allowed = self.burst + self.limit / self.duration * (times[last] - begin)
                    assert last - first + 1 <= allowed + 1e-6

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        for workload in getattr(self, "times", {}):
            later = self.now + self.duration / self.limit + 1e-6
            assert deepcopy(self.of_object).allows(workload, later)


TestLimits = Limits.TestCase
TestLimits.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
