"""Slots count what fits: devices, ports and reservations, compared with placing the pods."""

from collections.abc import Sequence

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seatrial.scheduler.api.builders import PodBuilder, gang, pod, quota
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.groups.slots import SlotCounter
from seatrial.scheduler.plugins.coscheduling.tests.gangs import member
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import BLOCK, SPINE, TopologyRig, gathered, topology
from seatrial.scheduler.plugins.reservation.tests.reservations import hold

HOST = "kubernetes.io/hostname"


def counted(rig: TopologyRig, built: Sequence[PodBuilder]) -> dict[str, int]:
    """The slots of each node for these pods, which leave the queue afterwards."""
    rig.submit(*built)
    infos: list[PodInfo] = []
    for one in built:
        entry = rig.core.queue.find(f"uid-{one.name}")
        assert entry is not None
        infos.append(entry.info)
    slots = SlotCounter(rig.core.handle, rig.core.runners).count(infos)
    for one in built:
        rig.delete(one.name)
    return {name: int(slots.count[row]) for name, row in rig.core.cache.columns.rows.items()}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.sampled_from([10, 30, 40, 50, 60, 70, 100]), max_size=4), min_size=1, max_size=3),
    st.sampled_from([30, 40, 50, 80, 100, 200]),
)
@example([[60, 60], [100]], 80)
def test_slots_equal_what_can_be_placed(used: list[list[int]], expected: int) -> None:
    """Nodes of two cards with some shares in use: as many pods are bound on each one by one."""
    rig = TopologyRig()
    for number, shares in enumerate(used):
        name = f"n{number}"
        rig.node(name, gpus=2, labels={HOST: name})
        rig.device(name, 2)
        rig.submit(
            *(pod(f"used-{number}-{index}").gpu_share(share).select({HOST: name}) for index, share in enumerate(shares))
        )
    rig.decide_all()

    counts = counted(rig, [pod(f"p{number}").gpu_share(expected) for number in range(6)])

    for name, slots in counts.items():
        own = [f"{name}-{number}" for number in range(6)]
        rig.submit(*(pod(one).gpu_share(expected).select({HOST: name}) for one in own))
        assert slots == len(rig.decide_all()), name
        for one in own:
            rig.delete(one)


def test_counting_leaves_nothing_behind() -> None:
    rig = TopologyRig()
    rig.node("n1", gpus=2)
    rig.device("n1", 2)
    assert counted(rig, [pod(f"p{number}").gpu_share(40) for number in range(9)]) == {"n1": 4}
    rig.submit(pod("whole").gpus(2))
    assert rig.decide_all() == {"whole": "n1"}


def test_a_quota_is_no_matter_of_domains() -> None:
    """A quota admits one of two members: they say so and not that a domain lacks room, and no place is kept. When the
    quota grows, the gang is placed."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1", "n2"), "b2": ("n3", "n4")}})
    rig.core.intake.set_quota(msgspec.convert(quota("q").max(cpu=20).namespace("quotas").manifest, ElasticQuota))
    rig.group(gathered(gang("job", 2), ("BlockLayer", "MustGather")))
    rig.submit(*(member(f"p{number}", "job", cpu=16).quota("q") for number in range(2)))
    assert rig.decide_all() == {}
    assert "Insufficient quotas, quotaName: q" in rig.last_message("p0")
    assert all(not node.pods for node in rig.core.cache)

    rig.core.intake.set_quota(msgspec.convert(quota("q").max(cpu=32).namespace("quotas").manifest, ElasticQuota))
    rig.clock.advance(15)

    assert rig.decide_all() == {"p0": "n1", "p1": "n2"}


def test_reserved_room_counts_for_its_owners() -> None:
    """Both blocks are full, b2 with a reservation of the gang's: it gathers there."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1",), "b2": ("n2",)}})
    rig.running(pod("full").request(cpu=16), "n1")
    hold(rig, "r", "n2", {"cpu": 16000}, app="job")
    rig.group(gathered(gang("job", 2), ("BlockLayer", "MustGather")))
    rig.submit(*(member(f"p{number}", "job", cpu=8).label("app", "job") for number in range(2)))
    assert rig.decide_all() == {"p0": "n2", "p1": "n2"}


def test_reserved_room_wakes_its_owners() -> None:
    """A gang waits, with room for one member in b3; a reservation of its own takes the room that a pod leaves in b2."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1",), "b2": ("n2",), "b3": ("n3",)}})
    rig.running(pod("half").request(cpu=8), "n3")
    for name in ("n1", "n2"):
        rig.running(pod(f"full-{name}").request(cpu=16), name)
    rig.group(gathered(gang("job", 2), ("BlockLayer", "MustGather")))
    rig.submit(*(member(f"p{number}", "job", cpu=8).label("app", "job") for number in range(2)))
    assert rig.decide_all() == {}
    rig.delete("full-n2")
    hold(rig, "r", "n2", {"cpu": 16000}, app="job")
    rig.clock.advance(15)
    assert rig.decide_all() == {"p0": "n2", "p1": "n2"}


def test_members_that_are_not_needed_do_not_hinder() -> None:
    """Three members of a gang of two, and blocks of two nodes: two are gathered in a block, the third comes alone."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1",), "b2": ("n3", "n4")}})
    rig.group(gathered(gang("job", 2), ("BlockLayer", "MustGather")))
    rig.submit(*(member(f"p{number}", "job", cpu=16) for number in range(3)))
    bound = rig.decide_all()
    assert bound == {"p0": "n3", "p1": "n4", "p2": "n1"}


def test_a_large_member_beside_small_ones() -> None:
    """One member of 16 CPUs and four of 4: only a block with an empty node and a node of four CPUs each has room."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1", "n2"), "b2": ("n3", "n4")}})
    rig.running(pod("x").request(cpu=4), "n1")
    rig.running(pod("y").request(cpu=4), "n2")
    rig.group(gathered(gang("job", 5), ("BlockLayer", "MustGather")))
    rig.submit(member("large", "job", cpu=16), *(member(f"small-{number}", "job", cpu=4) for number in range(4)))
    bound = rig.decide_all()
    assert len(bound) == 5
    assert set(bound.values()) == {"n3", "n4"}


def test_a_host_port_is_free_once() -> None:
    rig = TopologyRig()
    rig.node("n1")
    built = [pod(f"p{number}").request(cpu=1) for number in range(3)]
    for one in built:
        one.manifest["spec"]["containers"][0]["ports"] = [{"hostPort": 80, "containerPort": 80}]
    assert counted(rig, built) == {"n1": 1}


def test_anti_affinity_makes_the_scheduler_try_wider_domains() -> None:
    """Slots do not count rules between pods. Members that keep apart by node do not fit on a node, but in a block."""
    rig = TopologyRig()
    rig.tree.set_object(topology())
    for name in ("n1", "n2"):
        rig.node(name, cpu="16", labels={SPINE: "s1", BLOCK: "b1", HOST: name})
    rig.group(gathered(gang("job", 2), ("BlockLayer", "MustGather")))
    built = [member(f"p{number}", "job", cpu=4).label("app", "job") for number in range(2)]
    for one in built:
        one.manifest["spec"]["affinity"] = {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "job"}}}
                ]
            }
        }
    rig.submit(*built)
    assert set(rig.decide_all().values()) == {"n1", "n2"}
