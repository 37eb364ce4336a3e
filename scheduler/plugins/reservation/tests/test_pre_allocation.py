"""Which running pods a reservation takes over (RSV-R47, RSV-R48, E5 of the specification)."""

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod, reservation
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.api.reservation import PRE_ALLOCATION_REQUIRED, Reservation
from seatrial.scheduler.api.wire import from_plain
from seatrial.scheduler.plugins.reservation.args import PreAllocationConfig
from seatrial.scheduler.plugins.reservation.pre_allocation import NO_POD_FITS, NO_POD_MATCHES, candidates, select
from seatrial.scheduler.tests.rig import GIB, Rig

REQUEST = {"cpu": 4000, "memory": 16 * GIB}


def chosen(free: Amounts, sizes: list[tuple[int, int]], *, multiple: bool = False) -> list[str]:
    """The pods (cores, GiB) taken over by a reservation of 4 cores and 16 GiB on a node with so much free."""
    rig = Rig()
    rig.node("n", cpu="64", memory="256Gi")
    pods = []
    for number, (cores, gib) in enumerate(sizes):
        rig.running(pod(f"p{number}").request(cpu=cores, memory=f"{gib}Gi"), "n")
        info = rig.core.cache.placed(f"uid-p{number}")
        assert info is not None
        pods.append((info, {"cpu": cores * 1000, "memory": gib * GIB}))
    return [info.pod.metadata.name for info in select(REQUEST, free, pods, multiple=multiple)]


@pytest.mark.parametrize(
    ("free", "sizes", "want"),
    [
        pytest.param({"cpu": 0, "memory": 0}, [(8, 32), (4, 16)], ["p1"], id="the-first-that-fits-both-ways"),
        pytest.param({"cpu": 2000, "memory": 16 * GIB}, [(1, 1)], [], id="too-small-to-make-room"),
        pytest.param({"cpu": 3000, "memory": 16 * GIB}, [(1, 1)], ["p0"], id="room-enough-with-it"),
        pytest.param({"cpu": 9000, "memory": 99 * GIB}, [(5, 1)], [], id="larger-than-the-reservation"),
    ],
)
def test_one_pod_is_taken_over(free: Amounts, sizes: list[tuple[int, int]], want: list[str]) -> None:
    assert chosen(free, sizes) == want


def test_several_pods_are_taken_over() -> None:
    """In order, without those that would exceed the reservation."""
    assert chosen({"cpu": 0, "memory": 0}, [(2, 4), (3, 4), (1, 4), (1, 8)], multiple=True) == ["p0", "p2", "p3"]


def of_mode(mode: str) -> Reservation:
    return from_plain(
        {
            "spec": {
                "preAllocation": True,
                "preAllocationPolicy": {"mode": mode},
                "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}, {"object": {"name": "named"}}],
            }
        },
        Reservation,
    )


def marked(name: str, rank: str) -> PodBuilder:
    one = pod(name).label("pod.koordinator.sh/is-pre-allocatable", "true")
    return one.annotation("pod.koordinator.sh/pre-allocatable-priority", rank)


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        pytest.param("Default", {"n": ["owner"]}, id="pods-of-the-label-selector"),
        pytest.param("Cluster", {"n": ["high", "none", "low"]}, id="marked-pods-by-rank"),
    ],
)
def test_candidates(mode: str, want: dict[str, list[str]]) -> None:
    rig = Rig()
    rig.node("n")
    rig.running(pod("owner").label("app", "a"), "n")
    rig.running(pod("named"), "n")
    rig.running(marked("low", "-1"), "n")
    rig.running(marked("high", "7"), "n")
    rig.running(marked("none", "much"), "n")
    taken = rig.running(marked("taken", "9").label("app", "a"), "n")
    victims = candidates(of_mode(mode), rig.core.cache, PreAllocationConfig(), {taken.metadata.uid}.__contains__)
    names = {node: [info.pod.metadata.name for info in infos] for node, infos in victims.items()}
    assert names == want


@pytest.mark.parametrize(
    ("requested", "others", "required", "message"),
    [
        pytest.param((12, 16), [], False, "", id="room-without-a-pod"),
        pytest.param((12, 16), [], True, NO_POD_MATCHES, id="required-and-no-candidate"),
        pytest.param((29, 15), [(1, 1)], False, "1 Insufficient cpu", id="a-candidate-too-small"),
        pytest.param((12, 0), [(8, 16)], True, f"1 {NO_POD_FITS}", id="required-and-the-candidate-is-too-large"),
        pytest.param((20, 0), [(8, 16), (4, 16)], True, "", id="the-second-of-two-candidates"),
    ],
)
def test_a_reservation_of_four_cores_on_a_node_of_32(
    requested: tuple[int, int], others: list[tuple[int, int]], required: bool, message: str
) -> None:
    """RSV-E5, Test_filterWithPreAllocatablePods: 4/16Gi on 32/32Gi. `requested`: cores and GiB of a pod that is no
    candidate, `others`: those of candidates."""
    rig = Rig()
    rig.node("n", cpu="32", memory="32Gi")
    rig.running(pod("other").request(cpu=requested[0], memory=f"{requested[1]}Gi"), "n")
    for number, (cores, gib) in enumerate(others):
        rig.running(pod(f"p{number}").label("app", "a").request(cpu=cores, memory=f"{gib}Gi"), "n")
    built = reservation("r").like(pod("x").request(cpu=4, memory="16Gi")).for_labels(app="a").policy("Restricted")
    built.manifest["spec"]["preAllocation"] = True
    built.manifest["metadata"]["uid"] = "uid-r"
    if required:
        built.label(PRE_ALLOCATION_REQUIRED, "true")
    rig.core.intake.set_reservation(from_plain({**built.manifest, "status": {}}, Reservation))
    rig.run()
    if message:
        assert rig.message("uid-r") == f"0/1 nodes are available: {message}."
    else:
        assert rig.binding("uid-r").node == "n"
