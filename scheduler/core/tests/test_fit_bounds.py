"""The kept bounds are those that a count over all nodes gives, and no group stays parked that would fit."""

from random import Random

import numpy as np

from seatrial.scheduler.api.builders import gang, pod
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.cache.resources import CPU_COLUMN
from seatrial.scheduler.core.groups.fit_bounds import FitBounds, Kind, bound
from seatrial.scheduler.core.groups.parked import ParkedGroups
from seatrial.scheduler.plugins.coscheduling.tests.gangs import member
from seatrial.scheduler.plugins.coscheduling.topology.request import GatherRequest
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import TopologyRig, gathered

SPINES = {
    f"s{spine}": {f"b{spine}{block}": tuple(f"n{spine}{block}{node}" for node in range(2)) for block in range(2)}
    for spine in range(2)
}
SIZES = (1, 3, 5, 7)


def test_bounds_follow_the_nodes() -> None:
    """Random pods come and go, nodes come, go and are cordoned; after each change the bounds equal a new count."""
    random = Random(5)  # noqa: S311
    rig = TopologyRig()
    rig.fleet(SPINES)
    names = [name for blocks in SPINES.values() for nodes in blocks.values() for name in nodes]
    bounds = FitBounds(rig.core.handle, rig.core.runners)
    kinds: dict[Kind, PodInfo] = {}
    for size in SIZES:
        rig.submit(pod(f"example-{size}").request(cpu=size))
        entry = rig.core.queue.find(f"uid-example-{size}")
        assert entry is not None
        kinds["default-scheduler", entry.info.pod_class.id] = entry.info
        rig.delete(f"example-{size}")
    rig.group(gathered(gang("job", 2), ("BlockLayer", "MustGather")))
    rig.submit(*(member(f"m{number}", "job", cpu=99) for number in range(2)))
    attempt = rig.cache._domains(rig.gang("default/job").group)
    assert isinstance(attempt, GatherRequest)
    columns = rig.core.cache.columns
    live: list[str] = []
    by_requests = True
    before: dict[Kind, Ints] = {}  # places by requests alone, [node]
    for step in range(150):
        what = random.random()
        if what < 0.5:
            name = f"p{step}"
            rig.running(pod(name).request(cpu=random.randint(1, 9)), random.choice(names))
            live.append(name)
        elif what < 0.8 and live:
            rig.delete(live.pop(random.randrange(len(live))))
        elif what < 0.9:
            rig.member_node(f"new{step}", "s1", f"b1{random.randrange(3)}")
        else:
            rig.member_node(random.choice(names), "s0", "b00", unschedulable=random.random() < 0.5)
        if not by_requests:  # count by requests alone again
            bounds._forget_verdicts()
            bounds._position, by_requests = -1, True
        for kind, info in list(kinds.items())[: 1 + step // 30]:
            bounds.add(kind, info)
        grown = bounds.update()
        domains = attempt.rows()
        assert domains is not None
        for kind, info in list(kinds.items())[: 1 + step // 30]:
            slots = np.zeros(columns.count, np.int64)
            for node in rig.core.cache:
                free = [have - used for have, used in zip(node.allocatable, node.requested, strict=True)]
                slots[node.row] = max(
                    min(free[column] // amount for column, amount in info.pod_class.vector if amount), 0
                )
            if grown is not None and kind in before and (slots > before[kind]).any():
                assert kind in grown
            before[kind] = slots
            assert bounds.may_fit(kind, None, int(slots.sum()))
            assert not bounds.may_fit(kind, None, int(slots.sum()) + 1)
            best = int(np.bincount(domains[domains >= 0], weights=slots[domains >= 0]).max())
            assert bounds.may_fit(kind, attempt, best)
            assert not bounds.may_fit(kind, attempt, best + 1)
            if random.random() < 0.2:
                class_scores = rig.core.runners.of(info).class_scores(info.pod_class)
                class_scores.refresh()
                bounds.count_feasible(kind, class_scores)
                feasible = np.flatnonzero(class_scores.key >= 0)
                exact = int(bound(columns.free, info.pod_class.vector, feasible).sum())
                assert bounds.may_fit(kind, None, exact)
                assert not bounds.may_fit(kind, None, exact + 1)
                by_requests = False


def test_closed_nodes_cost_no_count_until_their_objects_change() -> None:
    """A class is counted while two nodes are cordoned: what happens there is ignored until one is uncordoned."""
    rig = TopologyRig()
    rig.fleet(SPINES)
    for node in ("n000", "n001"):
        rig.member_node(node, "s0", "b00", unschedulable=True)
    rig.submit(pod("example").request(cpu=3))
    entry = rig.core.queue.find("uid-example")
    assert entry is not None
    info = entry.info
    kind = "default-scheduler", info.pod_class.id
    bounds = FitBounds(rig.core.handle, rig.core.runners)
    bounds.add(kind, info)
    bounds.update()
    class_scores = rig.core.runners.of(info).class_scores(info.pod_class)
    class_scores.refresh()
    bounds.count_feasible(kind, class_scores)
    open_places = int(bounds._totals[0])

    rig.running(pod("tenant").request(cpu=9), "n000")
    assert bounds.update() == frozenset()
    rig.delete("tenant")
    assert bounds.update() == frozenset()
    rig.running(pod("tenant").request(cpu=9), "n100")
    assert bounds.update() == frozenset()
    assert not bounds.may_fit(kind, None, open_places)
    rig.delete("tenant")
    assert bounds.update() == frozenset({kind})
    rig.member_node("n000", "s0", "b00")

    grown = bounds.update()

    assert grown is None or kind in grown
    assert bounds.counted(kind)
    assert bounds.may_fit(kind, None, open_places + 1)
    assert int(bounds._slots[0, rig.core.cache.columns.rows["n001"]]) == 0


def test_a_node_with_room_for_exactly_the_smallest_pod_counts() -> None:
    rig = TopologyRig()
    rig.fleet({"s0": {"b00": ("n0",)}})
    rig.submit(pod("example").request(cpu=3))
    entry = rig.core.queue.find("uid-example")
    assert entry is not None
    kind = "default-scheduler", entry.info.pod_class.id
    free = next(iter(rig.core.cache)).allocatable[CPU_COLUMN] // 1000
    rig.running(pod("most").request(cpu=free - 3), "n0")
    rig.running(pod("rest").request(cpu=3), "n0")
    bounds = FitBounds(rig.core.handle, rig.core.runners)
    bounds.add(kind, entry.info)
    bounds.update()
    assert not bounds.may_fit(kind, None, 1)

    rig.delete("rest")

    assert bounds.update() == frozenset({kind})
    assert bounds.may_fit(kind, None, 1)


def test_a_parked_group_of_which_any_members_are_enough_waits_for_no_large_one() -> None:
    """Room for the small member wakes a group that may start with either; one that needs both stays parked."""
    rig = TopologyRig()
    rig.fleet({"s0": {"b00": ("n0",)}})
    free = next(iter(rig.core.cache)).allocatable[CPU_COLUMN] // 1000
    rig.running(pod("tenant").request(cpu=free), "n0")
    rig.submit(pod("small").request(cpu=1), pod("large").request(cpu=99))
    members = []
    for name in ("small", "large"):
        entry = rig.core.queue.find(f"uid-{name}")
        assert entry is not None
        members.append(entry.info)
    groups = {name: ParkedGroups(rig.core.handle, rig.core.runners, rig.core.queue) for name in ("any", "both")}
    groups["any"].add("any", members, "", None, enough=1)
    groups["both"].add("both", members, "", None)
    for parked in groups.values():
        parked.wake()
    assert {name: len(parked) for name, parked in groups.items()} == {"any": 1, "both": 1}

    rig.delete("tenant")
    for parked in groups.values():
        parked.wake()

    assert {name: len(parked) for name, parked in groups.items()} == {"any": 0, "both": 1}
