"""A state machine of gathered gangs against a model: pods and nodes come and go, labels change, time passes.

The model counts free CPUs by block. What must hold:
- the members of a MustGather gang that are bound together are in one block;
- nothing is held for a gang that waits;
- once its backoff has passed, no MustGather gang waits while a block has room for all its members, and no PreferGather
  gang while the tree has.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seatrial.scheduler.api.builders import gang, pod
from seatrial.scheduler.plugins.coscheduling.tests.gangs import member
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import TopologyRig, gathered, topology

CPUS = 3
BLOCKS = ("b1", "b2", "b3", "")  # "": the node has no spine and is left out
GANGS = {"must-2": ("MustGather", 2), "must-4": ("MustGather", 4), "prefer-5": ("PreferGather", 5)}


class GatheringMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = TopologyRig()
        self.rig.tree.set_object(topology())
        self.count = 0
        self.waiting: dict[str, list[str]] = {}  # gang → members
        self.nodes: dict[str, str] = {}  # node → block
        self.bound: dict[str, str] = {}  # pod → node

    def settle(self) -> None:
        placed = self.rig.decide_all()
        self.bound |= placed
        for name in list(self.waiting):
            members = self.waiting[name]
            there = [placed[one] for one in members if one in placed]
            if not there:
                continue
            assert len(there) == len(members), f"{name} was bound in part"
            if name.startswith("must"):
                assert len({self.nodes[node] for node in there}) == 1, f"{name} is in several blocks: {there}"
            assert all(self.nodes[node] for node in there), f"{name} is on a node that is not in the tree"
            del self.waiting[name]
        for name in placed:
            self.rig.core.bound(f"uid-{name}")

    def free(self) -> dict[str, int]:
        """Free CPUs by block."""
        room = dict.fromkeys(BLOCKS, 0)
        for node, block in self.nodes.items():
            room[block] += CPUS - sum(1 for where in self.bound.values() if where == node)
        return room

    @rule(kind=st.sampled_from(sorted(GANGS)))
    def submit_gang(self, kind: str) -> None:
        if len(self.waiting) >= 3:
            return
        self.count += 1
        name, (strategy, size) = f"{kind}-{self.count}", GANGS[kind]
        self.rig.group(gathered(gang(name, size), ("BlockLayer", strategy)))
        self.waiting[name] = [f"{name}-{number}" for number in range(size)]
        self.rig.submit(*(member(one, name) for one in self.waiting[name]))
        self.settle()

    @rule()
    def submit_pod(self) -> None:
        if sum(self.free().values()):
            self.count += 1
            self.rig.submit(pod(f"plain-{self.count}").request(cpu=1))
            self.settle()

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.bound)))
        del self.bound[name]
        self.rig.delete(name)
        self.settle()

    @rule(number=st.integers(0, 4), block=st.sampled_from(BLOCKS))
    def set_node(self, number: int, block: str) -> None:
        """A node comes, or its labels change."""
        name = f"n{number}"
        self.nodes[name] = block
        if block:
            self.rig.member_node(name, "s1" if block == "b1" else "s2", block, cpu=str(CPUS))
        else:
            self.rig.node(name, cpu=str(CPUS))
        self.settle()

    @rule(number=st.integers(0, 4))
    def remove_node(self, number: int) -> None:
        name = f"n{number}"
        if name in self.nodes and name not in self.bound.values():
            del self.nodes[name]
            self.rig.core.intake.remove_node(name)
            self.settle()

    @rule()
    def pass_time(self) -> None:
        """The backoff of every gang ends; each that has room is bound."""
        for _ in range(3):
            self.rig.clock.advance(11)
            self.settle()
        room = self.free()
        for name, members in self.waiting.items():
            if name.startswith("must"):
                assert max(room[block] for block in BLOCKS[:3]) < len(members), f"{name} waits beside {room}"
            else:
                assert sum(room[block] for block in BLOCKS[:3]) < len(members), f"{name} waits beside {room}"

    @invariant()
    def nothing_is_held(self) -> None:
        for node in self.rig.core.cache:
            there = [info.pod.metadata.name for info in node.pods.values()]
            assert sorted(there) == sorted(name for name, where in self.bound.items() if where == node.name)


TestGathering = GatheringMachine.TestCase
TestGathering.settings = settings(max_examples=80, stateful_step_count=30, deadline=None, derandomize=True)
