"""A state machine of gangs against a model: members come, go and fail, bindings are lost, nodes go, time passes, and
the scheduler is started anew.

The model knows what must always hold, not which node is chosen:
- no Strict gang that was never satisfied has fewer members with a place than its minimum, nor with a place at all
  without a binding under way;
- free room equals capacity minus the pods that have a place;
- no pod is lost: every live pod has a place or is in the queue;
- a complete Strict gang does not wait while an empty node set of its own size is free (checked at the end).
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.cache.resources import CPU_COLUMN
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member

GANGS = {"a": 3, "b": 2, "c": 4}
MODES = {"a": "Strict", "b": "NonStrict", "c": "Strict"}
NODES = {"n0": 3, "n1": 2, "n2": 4}


class GangMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.live: dict[str, str] = {}  # pod → gang
        self.in_flight: set[str] = set()
        self.confirmed: dict[str, str] = {}  # pod → node, as the API server has it
        self.nodes: set[str] = set()
        self.ever: set[str] = set()  # gangs with a confirmed binding
        self.rig = self.start()
        self.add_node("n0")

    @staticmethod
    def start() -> GangRig:
        rig = GangRig()
        for name, minimum in GANGS.items():
            rig.group(gang(name, minimum).waiting_time(20), mode=MODES[name])
        return rig

    def built(self, name: str) -> PodBuilder:
        return member(name, self.live[name]) if self.live[name] else pod(name).request(cpu=1)

    def decide(self) -> None:
        for _ in range(200):
            if not self.rig.core.busy:
                return
            bound = [d.info.pod.metadata.name for d in self.rig.core.decide() if isinstance(d, Bind)]
            self.in_flight |= set(bound)
            groups = {self.live[name] for name in bound}
            for group in groups - {""} - self.ever:
                if MODES[group] == "Strict":
                    placed = [name for name, own in self.live.items() if own == group and self.rig.where(name)]
                    assert len(placed) >= GANGS[group], f"gang {group} was bound below its minimum: {placed}"
        raise AssertionError("the queue does not come to rest")

    @rule(group=st.sampled_from(["a", "b", "c", ""]))
    def create(self, group: str) -> None:
        if len(self.live) >= 14:
            return
        self.count += 1
        name = f"p{self.count}"
        self.live[name] = group
        self.rig.submit(self.built(name))
        self.decide()

    @rule(group=st.sampled_from(sorted(GANGS)))
    def create_gang(self, group: str) -> None:
        """As many members as the gang needs at least."""
        for _ in range(GANGS[group]):
            self.create(group)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.live)))
        self.in_flight.discard(name)
        self.confirmed.pop(name, None)
        del self.live[name]
        self.rig.delete(name)
        self.decide()

    @precondition(lambda self: self.confirmed)
    @rule(data=st.data(), phase=st.sampled_from(["Failed", "Succeeded"]))
    def end(self, data: st.DataObject, phase: str) -> None:
        """A running pod ends: it gives its place back, and is no member any more."""
        name = data.draw(st.sampled_from(sorted(self.confirmed)))
        del self.confirmed[name], self.live[name]
        pod = self.rig.pods[name]
        self.rig.core.intake.set_pod(replace(pod, status=replace(pod.status, phase=phase)))
        self.decide()

    @precondition(lambda self: self.in_flight or self.confirmed)
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """Another scheduler begins with what the API server has; bindings that were under way arrived there or not."""
        for name in sorted(self.in_flight):
            if data.draw(st.booleans()):
                self.confirmed[name] = self.rig.where(name)
                self.ever.add(self.live[name])
        self.in_flight.clear()
        self.rig = self.start()
        for name in sorted(self.nodes):
            self.rig.node(name, cpu=str(NODES[name]))
        for name in sorted(self.live):
            if name in self.confirmed:
                self.rig.running(self.built(name), self.confirmed[name])
            else:
                self.rig.submit(self.built(name))
        self.decide()

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), lost=st.booleans())
    def answer(self, data: st.DataObject, *, lost: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.in_flight)))
        if lost:
            self.in_flight.discard(name)
            self.rig.core.bind_failed(f"uid-{name}", "lost")
        else:
            self.confirm(name)
        self.decide()

    @precondition(lambda self: self.in_flight)
    @rule()
    def answer_all(self) -> None:
        for name in sorted(self.in_flight):
            self.confirm(name)
        self.decide()

    def confirm(self, name: str) -> None:
        """The API server accepted the binding, and the informer delivers the pod."""
        self.in_flight.discard(name)
        node = self.rig.where(name)
        self.rig.core.bound(f"uid-{name}")
        self.rig.running(self.built(name), node)
        self.confirmed[name] = node
        self.ever.add(self.live[name])

    @rule(name=st.sampled_from(sorted(NODES)))
    def add_node(self, name: str) -> None:
        self.nodes.add(name)
        self.rig.node(name, cpu=str(NODES[name]))
        self.decide()

    @rule(name=st.sampled_from(sorted(NODES)))
    def remove_node(self, name: str) -> None:
        self.nodes.discard(name)
        self.rig.core.intake.remove_node(name)
        self.decide()

    @rule(seconds=st.sampled_from([1, 11, 25, 301]))
    def pass_time(self, seconds: int) -> None:
        self.rig.clock.advance(seconds)
        self.decide()

    @invariant()
    def strict_gangs_have_all_or_nothing(self) -> None:
        for group, minimum in GANGS.items():
            if MODES[group] == "Strict" and group not in self.ever:
                placed = [n for n, own in self.live.items() if own == group and self.rig.where(n)]
                assert not set(placed) - self.in_flight, f"{group}: a place without a binding under way: {placed}"
                del minimum

    @invariant()
    def room_is_what_pods_leave(self) -> None:
        for node in self.rig.core.cache:
            there = [name for name in self.live if self.rig.where(name) == node.name]
            assert node.requested[CPU_COLUMN] == 1000 * len(there)
            assert len(there) <= NODES[node.name]

    @invariant()
    def no_pod_is_lost(self) -> None:
        for name in self.live:
            queued = self.rig.core.queue.find(f"uid-{name}") is not None
            assert queued != bool(self.rig.where(name)), name

    @invariant()
    def members_are_in_one_set(self) -> None:
        for item in self.rig.cache.gangs.values():
            sets = [set(item.pending), set(item.waiting), set(item.bound)]
            assert sum(map(len, sets)) == len(set().union(*sets)) == len(item.children)
            assert set().union(*sets) == set(item.children)

    def teardown(self) -> None:
        """With an empty cluster of twice the size every complete gang is bound."""
        for name in sorted(self.in_flight):
            self.rig.core.bound(f"uid-{name}")
        self.rig.node("large", cpu="64")
        NODES["large"] = 64
        for _ in range(4):
            self.rig.clock.advance(301)
            self.decide()
        for group, minimum in GANGS.items():
            members = [name for name, own in self.live.items() if own == group]
            if len(members) >= minimum:
                waiting = [name for name in members if not self.rig.where(name)]
                assert not waiting, f"{group}: {waiting} wait although there is room"
        assert all(self.rig.where(name) for name, own in self.live.items() if not own)


TestGangs = GangMachine.TestCase
TestGangs.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
