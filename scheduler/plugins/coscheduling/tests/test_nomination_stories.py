"""A state machine of job-level preemption against a model: victims end at any time, members and nodes come and go,
bindings are lost, time passes, and the scheduler is started anew.

The model knows what must always hold, not which node is chosen:
- every evicted pod is less important than the gang, and no job loses a part of its pods;
- pods are evicted for a gang only if all its members then have a place or a nomination, within the nodes' capacity;
- the written `status.nominatedNodeName` is what the scheduler holds, and only pods without a place are nominated;
- at the end, when no pod is in the way and the waiting times are over, no room is held.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.framework.decisions import Bind, ClearNomination, Evict, Reject
from seatrial.scheduler.plugins.coscheduling.jobs import JOB_LABEL
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member
from seatrial.scheduler.tests.rig import profile

PROFILE = profile(pluginConfig=[{"name": "Coscheduling", "args": {"enablePreemption": True}}])
GANGS = {"a": 2, "b": 3}  # gangs of priority 1000
NODES = {"n0": 3, "n1": 2, "n2": 4}
JOBS = ("j1", "j2", "")  # of pods of priority 10


class NominationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.built: dict[str, PodBuilder] = {}  # all live pods
        self.gang_of: dict[str, str] = {}
        self.job_of: dict[str, str] = {}
        self.places: dict[str, str] = {}  # confirmed
        self.nominated: dict[str, str] = {}  # as written
        self.leaving: set[str] = set()
        self.in_flight: dict[str, str] = {}
        self.capacity: dict[str, int] = {}
        self.rig = self.start()
        self.add_node("n0")

    def start(self) -> GangRig:
        rig = GangRig(PROFILE)
        for name, minimum in GANGS.items():
            rig.group(gang(name, minimum).waiting_time(40))
        return rig

    def decide(self) -> None:
        for _ in range(300):
            if not self.rig.core.busy:
                return
            evicted: list[Evict] = []
            for decision in self.rig.core.decide():
                name = decision.victim.pod.metadata.name if isinstance(decision, Evict) else ""
                match decision:
                    case Bind(info, node):
                        self.in_flight[info.pod.metadata.name] = node
                        self.nominated.pop(info.pod.metadata.name, None)
                    case Reject(info, nominated=node) if node is not None:
                        self.write(info.pod.metadata.name, node)
                    case ClearNomination(info):
                        self.write(info.pod.metadata.name, "")
                    case Evict():
                        assert name in self.places or name in self.in_flight, f"{name} is not on a node"
                        self.leaving.add(name)
                        evicted.append(decision)
                    case _:
                        pass
            if evicted:
                self.check_evictions(evicted)
                for decision in evicted:
                    self.terminate(decision.victim.pod.metadata.name)
        raise AssertionError("the queue does not come to rest")

    def write(self, name: str, node: str) -> None:
        if node:
            self.nominated[name] = node
        else:
            self.nominated.pop(name, None)

    def check_evictions(self, evicted: list[Evict]) -> None:
        names = {decision.victim.pod.metadata.name for decision in evicted}
        assert all(decision.victim.priority < decision.by.priority for decision in evicted)
        for name in names:
            job = self.job_of[name]
            if job:
                there = {one for one in {**self.places, **self.in_flight} if self.job_of.get(one) == job}
                assert there <= self.leaving, f"job {job} loses {names} and keeps {there - self.leaving}"
        group = self.gang_of[evicted[0].by.pod.metadata.name]
        if group:
            placed = {**self.nominated, **self.places, **self.in_flight}
            members = [one for one, own in self.gang_of.items() if own == group and one in placed]
            assert len(members) >= GANGS[group], f"evicted {names} for {len(members)} of {GANGS[group]} members"
        staying = {**self.places, **self.in_flight}
        for node in set(self.nominated.values()):
            kept = [one for one, where in staying.items() if where == node and one not in self.leaving]
            to_come = [one for one, where in self.nominated.items() if where == node]
            assert len(kept) + len(to_come) <= self.capacity.get(node, 0), f"{node}: {kept} and {to_come}"

    def terminate(self, name: str) -> None:
        """The API server marks the victim; it ends later."""
        if name in self.places:
            self.rig.terminating(name)

    @rule(kind=st.sampled_from([*GANGS, *JOBS]))
    def create(self, kind: str) -> None:
        if len(self.built) >= 16:
            return
        self.count += 1
        name = f"p{self.count}"
        if kind in GANGS:
            self.built[name] = member(name, kind).priority(1000)
        else:
            self.built[name] = pod(name).request(cpu=1).priority(10)
            if kind:
                self.built[name].label(JOB_LABEL, kind)
        self.gang_of[name] = kind if kind in GANGS else ""
        self.job_of[name] = "" if kind in GANGS else kind
        self.rig.submit(self.built[name])
        self.decide()

    @precondition(lambda self: self.built)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A pod is deleted, or a victim ends."""
        first = sorted(self.leaving & self.built.keys()) or sorted(self.built)
        self.drop(data.draw(st.sampled_from(first)))

    @precondition(lambda self: self.built)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.drop(data.draw(st.sampled_from(sorted(self.built))))

    def drop(self, name: str) -> None:
        for known in (self.built, self.places, self.nominated, self.in_flight, self.gang_of, self.job_of):
            known.pop(name, None)
        self.leaving.discard(name)
        self.rig.delete(name)
        self.decide()

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), lost=st.booleans())
    def answer(self, data: st.DataObject, *, lost: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.confirm(name, lost=lost)
        self.decide()

    def confirm(self, name: str, *, lost: bool = False) -> None:
        node = self.in_flight.pop(name)
        if lost:
            self.leaving.discard(name)
            self.rig.core.bind_failed(f"uid-{name}", "lost")
            return
        self.places[name] = node
        self.rig.core.bound(f"uid-{name}")
        self.rig.running(self.built[name], node)
        if name in self.leaving:
            self.rig.terminating(name)

    @rule(name=st.sampled_from(sorted(NODES)))
    def add_node(self, name: str) -> None:
        self.capacity[name] = NODES[name]
        self.rig.node(name, cpu=str(NODES[name]))
        self.decide()

    @rule(name=st.sampled_from(sorted(NODES)))
    def remove_node(self, name: str) -> None:
        if any(node == name for node in {**self.places, **self.in_flight}.values()):
            return  # its pods would have to be deleted first, as the node lifecycle controller does
        self.capacity.pop(name, None)
        self.rig.core.intake.remove_node(name)
        self.decide()

    @rule(seconds=st.sampled_from([1, 11, 45, 301]))
    def pass_time(self, seconds: int) -> None:
        self.rig.clock.advance(seconds)
        self.decide()

    @rule()
    def restart(self) -> None:
        """All bindings under way are answered; the successor knows what the API server has."""
        for name in sorted(self.in_flight):
            self.confirm(name)
        self.rig = self.start()
        for name, cpu in self.capacity.items():
            self.rig.node(name, cpu=str(cpu))
        for name, built in self.built.items():
            if name in self.places:
                self.rig.running(built, self.places[name])
                if name in self.leaving:
                    self.rig.terminating(name)
            else:
                made = self.rig.pod(built)
                made = replace(made, status=replace(made.status, nominated_node_name=self.nominated.get(name, "")))
                self.rig.pods[name] = made
                self.rig.core.intake.set_pod(made)
        self.decide()

    @invariant()
    def what_is_written_is_what_is_held(self) -> None:
        nominator = self.rig.core.handle.nominator
        held = {uid.removeprefix("uid-"): nominator.node_of(uid) for uid in nominator.nominated}
        assert held == self.nominated
        assert not held.keys() & {**self.places, **self.in_flight}.keys()

    @invariant()
    def no_pod_is_lost(self) -> None:
        for name in self.built:
            queued = self.rig.core.queue.find(f"uid-{name}") is not None
            assert queued != bool(self.rig.where(name)), name

    def teardown(self) -> None:
        """All victims end, there is room for everybody, and all waiting times pass."""
        for name in sorted(self.in_flight):
            self.confirm(name)
        for name in sorted(self.leaving & self.built.keys()):
            self.drop(name)
        self.capacity["large"] = 64
        self.rig.node("large", cpu="64")
        for _ in range(4):
            self.rig.clock.advance(301)
            self.decide()
        assert not self.nominated
        assert len(self.rig.core.groups.nominations) == 0
        for group, minimum in GANGS.items():
            members = [name for name, own in self.gang_of.items() if own == group]
            if len(members) >= minimum:
                assert all(self.rig.where(name) for name in members), f"{group} waits although there is room"


TestNominations = NominationMachine.TestCase
TestNominations.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
