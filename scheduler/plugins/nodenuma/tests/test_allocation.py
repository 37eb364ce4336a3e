"""Division of a request over NUMA nodes, and its CPUs there: NUMA-E7, NUMA-E8, NUMA-E15."""

from typing import Any

import pytest

from seatrial.scheduler.api.numa import BEST_EFFORT, FULL_PCPUS, RESTRICTED, SPREAD_BY_PCPUS, cpuset_text
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.nodenuma.allocation import Need, allocate
from seatrial.scheduler.plugins.nodenuma.hints import hints
from seatrial.scheduler.plugins.nodenuma.merging import binary
from seatrial.scheduler.plugins.nodenuma.options import ZoneAmounts
from seatrial.scheduler.plugins.nodenuma.scoring import Scorer
from seatrial.scheduler.plugins.nodenuma.states import NumaAllocation, NumaState
from seatrial.scheduler.plugins.nodenuma.tests.machines import GIB, SMALL, need, state

FULL, SPREAD = FULL_PCPUS, SPREAD_BY_PCPUS
LEAST = Scorer("LeastAllocated", {"cpu": 1, "memory": 1})


def cpus_of(**amounts: int) -> ZoneAmounts:
    """`n0=48` as 48 CPUs of NUMA node 0."""
    return tuple((int(key[1:]), (("cpu", value * 1000),)) for key, value in amounts.items())


def allocation_text(have: NumaState, want: Need, mask: str) -> str:
    allocation = allocate(have, want, frozenset(map(int, mask)))
    if isinstance(allocation, Status):
        return allocation.message
    amounts = " ".join(f"{node}:{dict(parts)['cpu'] / 1000:g}" for node, parts in allocation.zones)
    return f"{amounts} {cpuset_text(allocation.cpus)}".rstrip()


AMPLIFIED = state("0-49,52-101", amounts=cpus_of(n0=50, n1=50), ratio=1.5)


@pytest.mark.parametrize(
    ("have", "want", "mask", "message"),
    [
        pytest.param(
            state(), need(more={"koordinator.sh/gpu-memory": 10 * GIB}, cpu=4000), "0", "0:4", id="what-no-zone-knows"
        ),
        pytest.param(state(), need(cpu=54000), "0", "Insufficient NUMA cpu", id="more-than-one-has"),
        pytest.param(state(), need(cpu=108000), "01", "Insufficient NUMA cpu", id="more-than-both-have"),
        pytest.param(state(), need(FULL, cpu=4000), "0", "0:4 0-3", id="full"),
        pytest.param(state(), need(SPREAD, cpu=4000), "0", "0:4 0,2,4,6", id="spread"),
        pytest.param(state("4-103"), need(FULL, cpu=4000), "0", "0:4 0-3", id="the-last-two-cores"),
        pytest.param(state("4-103"), need(SPREAD, cpu=4000), "0", "Insufficient NUMA cpu", id="not-four-cores"),
        pytest.param(state("1,3,5,7-103"), need(FULL, cpu=4000), "0", "Insufficient NUMA cpu", id="no-core-is-whole"),
        pytest.param(state("1,3,5,7-103"), need(SPREAD, cpu=4000), "0", "0:4 0,2,4,6", id="four-broken-cores"),
        pytest.param(state(), need(FULL, cpu=4000), "01", "0:2 1:2 0-1,52-53", id="full-over-both"),
        pytest.param(state(), need(SPREAD, cpu=4000), "01", "0:2 1:2 0,2,52,54", id="spread-over-both"),
        pytest.param(state("4-101"), need(FULL, cpu=4000), "01", "0:2 1:2 0-1,102-103", id="what-is-left-of-both"),
        pytest.param(state("1,3,5,7-101,103"), need(SPREAD, cpu=4000), "01", "0:3 1:1 0,2,4,102", id="three-and-one"),
        pytest.param(state("4-100"), need(SPREAD, cpu=4000), "01", "0:2 1:2 0,2,101-102", id="an-odd-cpu"),
        pytest.param(state("1,3,5,7-97,103"), need(SPREAD, cpu=5000), "01", "0:3 1:2 0,2,4,98,100", id="three-and-two"),
        pytest.param(
            state("0-43,53-96", amounts=cpus_of(n0=48, n1=48)),
            need(FULL, cpu=8000),
            "01",
            "0:4 1:4 44-47,98-101",
            id="amounts-beyond-the-cpus",
        ),
        pytest.param(AMPLIFIED, need(cpu=4000), "0", "Insufficient NUMA cpu", id="amplified-78-less-75"),
        pytest.param(AMPLIFIED, need(cpu=3500), "01", "0:1.75 1:1.75", id="amplified-in-halves"),
        pytest.param(state(ratio=1.5), need(SPREAD, cpu=4000), "0", "0:4 0,2,4,6", id="amplified-bound"),
        pytest.param(state(), need(cpu=5000), "01", "0:2.5 1:2.5", id="share-pods-in-halves"),
        pytest.param(state(), need(SPREAD, cpu=5000), "01", "0:2 1:3 0,2,52,54,56", id="bound-pods-in-whole-cpus"),
        pytest.param(state(shape=(3, 1, 4, 2)), need(FULL, cpu=4000), "012", "1:2 2:2 8-9,16-17", id="in-whole-cores"),
        pytest.param(state(), need(cpu=4000, memory=300 * GIB), "01", "Insufficient NUMA memory", id="memory"),
        pytest.param(
            state(shape=SMALL),
            need(cpu=9000, memory=300 * GIB),
            "0",
            "Insufficient NUMA cpu, Insufficient NUMA memory",
            id="all-that-is-short",
        ),
    ],
)
def test_split(have: NumaState, want: Need, mask: str, message: str) -> None:
    assert allocation_text(have, want, mask) == message


def test_without_a_mask_all_cpus_count() -> None:
    allocation = allocate(state(), need(FULL, cpu=4000), None)
    assert allocation == NumaAllocation(frozenset(range(4)))


HUGE: dict[str, Any] = {"more": {"hugepages-1Gi": 4 * GIB}}
FILLED = tuple((node, (("hugepages-1Gi", 4 * GIB), ("memory", 120 * GIB))) for node in (0, 1))


@pytest.mark.parametrize(
    ("have", "want", "messages"),
    [
        pytest.param(state(), need(FULL, cpu=4000), {"cpu": "01p 10p 11"}, id="full"),
        pytest.param(state(), need(SPREAD, cpu=4000), {"cpu": "01p 10p 11"}, id="spread"),
        pytest.param(state("4-103"), need(FULL, cpu=4000), {"cpu": "01p"}, id="two-cores-on-one"),
        pytest.param(state("4-103"), need(SPREAD, cpu=4000), {"cpu": ""}, id="not-four-cores"),
        pytest.param(state("1,3,5,7-103"), need(FULL, cpu=4000), {"cpu": ""}, id="no-whole-core"),
        pytest.param(state("1,3,5,7-103"), need(SPREAD, cpu=4000), {"cpu": "01p"}, id="four-broken-cores"),
        pytest.param(AMPLIFIED, need(cpu=4000), {"cpu": "11p"}, id="amplified"),
        pytest.param(
            state(amounts=FILLED, **HUGE),
            need(more={"hugepages-1Gi": 4 * GIB}, cpu=4000, memory=4 * GIB),
            {"cpu": "", "hugepages-1Gi": "", "memory": ""},
            id="one-resource-is-out",
        ),
        pytest.param(state(), need(more={"nvidia.com/gpu": 1}), {}, id="what-no-zone-knows"),
    ],
)
def test_hints(have: NumaState, want: Need, messages: dict[str, str]) -> None:
    results = hints(have, want, BEST_EFFORT, LEAST)
    assert {
        name: " ".join(binary(hint.mask) + ("p" if hint.preferred else "") for hint in listed)
        for name, listed in results.items()
    } == messages


def test_restricted_prefers_every_sufficient_set() -> None:
    assert [hint.preferred for hint in hints(state(), need(cpu=4000), RESTRICTED, LEAST)["cpu"]] == [True, True, True]


@pytest.mark.parametrize(
    ("booked", "cpu", "left"),
    [
        pytest.param("", 0, 24, id="nothing"),
        pytest.param("0-3", 4, 18, id="bound"),
        pytest.param("0-3", 8, 14, id="bound-and-shared"),
        pytest.param("0-3", 0, 18, id="bound-without-amounts"),
    ],
)
def test_free_amounts_of_an_amplified_numa_node(booked: str, cpu: int, left: int) -> None:
    have = state(booked, shape=(1, 1, 8, 2), amounts=cpus_of(n0=cpu) if cpu else (), ratio=1.5)
    assert have.available[0]["cpu"] == left * 1000
