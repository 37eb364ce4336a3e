"""PodGroups that change, or are deleted and made again, while members have places and wait for others."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seatrial.scheduler.api.builders import GangBuilder, PodBuilder, gang, pod
from seatrial.scheduler.api.podgroup import GANG_MODE
from seatrial.scheduler.cache.resources import CPU_COLUMN
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, light, member


def rig_with_two_places(builder: GangBuilder, *others: GangBuilder) -> GangRig:
    """Two of the three members a, b and c of a NonStrict gang have places and wait for the third. `others`: gangs of
    one pod in its group."""
    rig = GangRig()
    rig.node("n", cpu="2")
    for other in others:
        rig.group(other)
        rig.submit(member(f"of-{other.manifest['metadata']['name']}", other.manifest["metadata"]["name"]))
    rig.group(builder.mode("NonStrict"))
    rig.submit(*(member(name, "train") for name in "abc"))
    rig.run()
    assert rig.waiting() == ["a", "b"]
    return rig


def both_places_are_free(rig: GangRig) -> bool:
    rig.submit(pod("large").request(cpu=2))
    rig.run()
    return rig.where("large") == "n"


def test_a_smaller_minimum_binds_the_members_that_have_places() -> None:
    rig = rig_with_two_places(gang("train", 3))
    rig.group(gang("train", 2).mode("NonStrict"))
    rig.run()
    assert rig.placed() == ["a", "b"]
    assert not rig.waiting()


def test_a_larger_minimum_than_there_are_members_holds_no_places() -> None:
    rig = rig_with_two_places(gang("train", 3))
    rig.group(gang("train", 4).mode("NonStrict"))
    rig.run()
    assert "default/train has 3 of 4 members" in rig.held("a")
    assert both_places_are_free(rig)


def test_changes_do_not_make_a_gang_hold_its_places_for_longer() -> None:
    """A change each 20 s has the members give their places back and take them again; a pod that needs both places has
    them when the first waiting time of a minute ends."""
    rig = rig_with_two_places(gang("train", 3).waiting_time(60))
    rig.submit(pod("large").request(cpu=2))
    for second in range(1, 65):
        if second % 20 == 5:
            policy = "only-waiting" if second % 40 == 5 else "once-satisfied"
            rig.group(gang("train", 3).waiting_time(60).mode("NonStrict").match_policy(policy))
        rig.run()
        assert rig.waiting() == ([] if second > 60 else ["a", "b"])
        rig.clock.advance(1)
    assert rig.where("large") == "n"


def test_a_gang_that_becomes_strict_holds_no_places() -> None:
    rig = rig_with_two_places(gang("train", 3))
    rig.group(gang("train", 3))
    rig.run()
    assert both_places_are_free(rig)
    rig.node("m", cpu="3")
    rig.clock.advance(11)
    rig.run()
    assert rig.placed() == ["a", "b", "c", "large"]


def test_a_deleted_pod_group_leaves_no_places_behind() -> None:
    """The members say that the PodGroup is gone; a new one starts them."""
    rig = rig_with_two_places(gang("train", 3))
    rig.cache.remove_object("default/train")
    rig.run()
    assert both_places_are_free(rig)
    rig.clock.advance(11)
    rig.run()
    assert "PodGroup default/train does not exist" in rig.message("a")
    rig.node("m", cpu="3")
    rig.group(gang("train", 3))
    rig.clock.advance(11)
    rig.run()
    assert rig.placed() == ["a", "b", "c", "large"]


def test_a_gang_that_is_made_again_without_its_group_is_not_bound_in_part() -> None:
    """The members' places were held for the group of two gangs, and one more place comes for the gang alone."""
    both = ("default/serve", "default/train")
    rig = rig_with_two_places(gang("train", 3).together_with(*both), gang("serve", 1).together_with(*both))
    rig.cache.remove_object("default/train")
    rig.group(gang("train", 3))
    rig.run()
    rig.node("m", cpu="1")
    rig.clock.advance(11)
    rig.run()
    assert rig.placed() == ["a", "b", "c"]
    assert not rig.waiting()


def test_a_pod_group_for_an_annotation_gang_moves_its_members_into_the_group() -> None:
    """Two members hold places by annotations. The PodGroup of that name lists a second gang."""
    rig = GangRig()
    rig.node("n", cpu="2")
    rig.submit(*(light(name, "train", "3").annotation(GANG_MODE, "NonStrict") for name in "abc"))
    rig.run()
    assert rig.waiting() == ["a", "b"]
    both = ("default/serve", "default/train")
    rig.group(gang("train", 3).together_with(*both))
    rig.group(gang("serve", 1).together_with(*both))
    rig.submit(member("d", "serve"))
    rig.run()
    rig.node("m", cpu="1")
    rig.clock.advance(11)
    rig.run()
    assert rig.placed() == []
    rig.node("m", cpu="2")
    rig.clock.advance(11)
    rig.run()
    assert rig.placed() == ["a", "b", "c", "d"]
    assert not rig.waiting()


def test_a_status_that_is_written_does_not_move_members() -> None:
    """The waiting time of the members goes on."""
    rig = rig_with_two_places(gang("train", 3).waiting_time(20))
    rig.clock.advance(15)
    rig.group(gang("train", 3).waiting_time(20).mode("NonStrict"))
    rig.run()
    assert rig.waiting() == ["a", "b"]
    rig.clock.advance(6)
    assert rig.waiting() == []


def test_members_beyond_the_minimum_are_bound_with_the_room_that_comes_for_the_others() -> None:
    """No member of a NonStrict gang has room. A node comes that has room for all, and no event follows."""
    rig = GangRig()
    rig.node("n", cpu="1", unschedulable=True)
    rig.group(gang("train", 2).mode("NonStrict"))
    rig.submit(*(member(name, "train") for name in "abcd"))
    rig.run()
    assert rig.placed() == []
    rig.node("m", cpu="4")
    rig.clock.advance(11)
    rig.run()
    assert rig.placed() == ["a", "b", "c", "d"]


def test_gangs_that_wait_for_the_same_room_are_bound_one_after_another() -> None:
    """The pods of three NonStrict gangs are alike. A node comes that has room for all, and no event follows."""
    rig = GangRig()
    rig.node("n", cpu="1", unschedulable=True)
    for name in "abc":
        rig.group(gang(name, 2).mode("NonStrict"))
        rig.submit(member(f"{name}0", name), member(f"{name}1", name))
    rig.submit(pod("other").request(cpu=1))
    rig.run()
    assert rig.placed() == []
    rig.node("m", cpu="7")
    rig.clock.advance(11)
    rig.run()
    assert rig.placed() == ["a0", "a1", "b0", "b1", "c0", "c1", "other"]


def test_a_gang_that_cannot_be_tried_leaves_the_turn_to_pods_that_are_alike() -> None:
    """Two members of a NonStrict gang and another pod wait for room. A member is deleted, so that the gang is not
    complete any more; then room comes. The other pod is bound, although the member is first in the queue."""
    rig = GangRig()
    rig.node("n", cpu="1", unschedulable=True)
    rig.group(gang("a", 2).mode("NonStrict"))
    rig.submit(member("a0", "a"), member("a1", "a"), pod("other").request(cpu=1))
    rig.run()
    rig.clock.advance(11)
    rig.delete("a1")
    rig.run()
    rig.node("m", cpu="1")
    rig.run()
    assert rig.placed() == ["other"]


IDS = ("default/a", "default/b", "other/a")
GROUPS = ((), ("default/a", "default/b"), ("default/a", "other/a"), IDS, ("default/b", "default/none"))
NODES = {"n0": 2, "n1": 1, "n2": 4}


class ChangedGroups(RuleBasedStateMachine):
    """PodGroups of three gangs in two namespaces change in any order, and the scheduler is started anew.

    What must hold:
    - a gang that was not bound before is bound with its minimum or not at all, and so are all gangs of its group;
    - members of Strict gangs, and of gangs without a PodGroup, hold no place;
    - no pod is lost, and the room is what pods leave;
    - at the end, with room for all, every complete group is bound.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.objects: dict[str, tuple[int, str, tuple[str, ...]]] = {}  # by gang id: minimum, mode, groups
        self.joined: dict[str, tuple[str, ...]] = {}  # the list that counts: that of the first PodGroup of the name
        self.live: dict[str, str] = {}  # pod → gang id
        self.bound: dict[str, str] = {}  # pod → node
        self.nodes: set[str] = set()
        self.rig = GangRig()
        self.add_node("n0")
        for gang_id in IDS:
            self.objects[gang_id] = 3, "NonStrict", ()
            self.joined[gang_id] = ()
            self.tell(gang_id)
            self.add_members(gang_id, 3)

    def add_members(self, gang_id: str, count: int) -> None:
        for _ in range(count):
            self.count += 1
            name = f"p{self.count}"
            self.live[name] = gang_id
            self.rig.submit(self.built(name))
        self.decide()

    def built(self, name: str) -> PodBuilder:
        namespace, group = self.live[name].split("/")
        return member(name, group).namespace(namespace)

    def tell(self, gang_id: str) -> None:
        minimum, mode, groups = self.objects[gang_id]
        namespace, name = gang_id.split("/")
        built = gang(name, minimum).waiting_time(20).mode(mode)
        if groups:
            built.together_with(*groups)
        self.rig.group(built.namespace(namespace))

    def together(self, gang_id: str) -> list[str]:
        """The gangs that are placed with this one: those that name the same gangs."""
        ids = sorted({*self.joined.get(gang_id, ()), gang_id})
        return [other for other in ids if other in self.objects and sorted({*self.joined[other], other}) == ids]

    def decide(self) -> None:
        for _ in range(300):
            if not self.rig.core.busy:
                return
            before = {gang_id: gang.once_satisfied for gang_id, gang in self.rig.cache.gangs.items()}
            for decision in self.rig.core.decide():
                if isinstance(decision, Bind):
                    self.bound[decision.info.pod.metadata.name] = decision.node
            fresh = {self.live[name] for name in self.bound if name not in self.rig_bound}
            for gang_id in {other for own in fresh for other in self.together(own)}:
                assert gang_id in self.objects, f"{gang_id} has no PodGroup"
                there = [name for name in self.bound if self.live[name] == gang_id]
                minimum = self.objects[gang_id][0]
                assert before[gang_id] or len(there) >= minimum, f"{gang_id} is bound with {there} of {minimum}"
            for name in sorted(set(self.bound) - self.rig_bound):
                self.rig.core.bound(f"uid-{name}")
                self.rig.running(self.built(name), self.bound[name])
        raise AssertionError("the queue does not come to rest")

    @property
    def rig_bound(self) -> set[str]:
        return {name for name in self.bound if self.rig.pods[name].spec.node_name}

    @rule(gang_id=st.sampled_from(IDS), count=st.integers(1, 3))
    def create(self, gang_id: str, count: int) -> None:
        if len(self.live) < 14:
            self.add_members(gang_id, count)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.live)))
        del self.live[name]
        self.bound.pop(name, None)
        self.rig.delete(name)
        self.decide()

    @rule(
        gang_id=st.sampled_from(IDS),
        minimum=st.integers(0, 4),
        mode=st.sampled_from(["Strict", "NonStrict", "NonStrict"]),
        groups=st.sampled_from(GROUPS),
    )
    def set_object(self, gang_id: str, minimum: int, mode: str, groups: tuple[str, ...]) -> None:
        self.objects[gang_id] = minimum, mode, groups
        self.joined.setdefault(gang_id, groups)
        self.tell(gang_id)
        self.decide()

    @precondition(lambda self: self.objects)
    @rule(data=st.data(), at_once=st.booleans())
    def remove_object(self, data: st.DataObject, *, at_once: bool) -> None:
        """`at_once`: the events that follow come before a decision."""
        gang_id = data.draw(st.sampled_from(sorted(self.objects)))
        del self.objects[gang_id], self.joined[gang_id]
        self.rig.cache.remove_object(gang_id)
        if not at_once:
            self.decide()

    @rule(name=st.sampled_from(sorted(NODES)))
    def add_node(self, name: str) -> None:
        self.nodes.add(name)
        self.rig.node(name, cpu=str(NODES[name]))
        self.decide()

    @rule(seconds=st.sampled_from([1, 11, 25]))
    def pass_time(self, seconds: int) -> None:
        self.rig.clock.advance(seconds)
        self.decide()

    @rule()
    def restart(self) -> None:
        self.decide()
        self.rig = GangRig()
        for gang_id, (_, _, groups) in self.objects.items():
            self.joined[gang_id] = groups  # the list of now counts
            self.tell(gang_id)
        for name in sorted(self.nodes):
            self.rig.node(name, cpu=str(NODES[name]))
        for name in sorted(self.live, key=lambda name: name not in self.bound):
            if name in self.bound:
                self.rig.running(self.built(name), self.bound[name])
            else:
                self.rig.submit(self.built(name))
        self.decide()

    @invariant()
    def only_members_that_may_hold_places_do(self) -> None:
        if self.rig.core.busy:
            return
        for name in self.rig.waiting():
            own = self.live[name]
            modes = [self.objects[gang_id][1] for gang_id in self.together(own)]
            assert own in self.objects, f"{name} holds a place without a PodGroup"
            assert "NonStrict" in modes, f"{name} holds a place for a Strict gang"

    @invariant()
    def no_pod_is_lost(self) -> None:
        for name in self.live:
            queued = self.rig.core.queue.find(f"uid-{name}") is not None
            assert queued != bool(self.rig.where(name)), name

    @invariant()
    def room_is_what_pods_leave(self) -> None:
        for node in self.rig.core.cache:
            there = [name for name in self.live if self.rig.where(name) == node.name]
            assert node.requested[CPU_COLUMN] == 1000 * len(there)
            assert len(there) <= node.allocatable[CPU_COLUMN] // 1000

    def teardown(self) -> None:
        self.decide()
        self.rig.node("large", cpu="64")
        for _ in range(4):
            self.rig.clock.advance(31)
            self.decide()
        for gang_id in self.objects:
            listed = {*self.joined[gang_id], gang_id}
            members = {other: [name for name, own in self.live.items() if own == other] for other in listed}
            if set(self.together(gang_id)) == listed and all(
                len(members[other]) >= self.objects[other][0] for other in listed
            ):
                waiting = [name for other in listed for name in members[other] if name not in self.bound]
                assert not waiting, f"{gang_id}: {waiting} wait although there is room"


TestChangedGroups = ChangedGroups.TestCase
TestChangedGroups.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, phases=[Phase.generate]
)
