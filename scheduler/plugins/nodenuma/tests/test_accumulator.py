"""Choice of CPUs: NUMA-E1 to NUMA-E4."""

import pytest

from seatrial.scheduler.api.numa import (
    FULL_PCPUS,
    NUMA_NODE_LEVEL,
    PCPU_LEVEL,
    SPREAD_BY_PCPUS,
    cpuset_text,
    parse_cpuset,
)
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.nodenuma.accumulator import NOT_ENOUGH, CpuPreference, Mark, take
from seatrial.scheduler.plugins.nodenuma.topology import uniform

Shape = tuple[int, int, int, int]


def taken(shape: Shape, used: str, needed: int, preference: CpuPreference, exclusive: str = "") -> str:
    topology = uniform(*shape)
    marks = {cpu: Mark(1, exclusive) for cpu in parse_cpuset(used)}
    result = take(topology, topology.ids - marks.keys(), marks, needed, preference)
    return result.message if isinstance(result, Status) else cpuset_text(result)


@pytest.mark.parametrize(
    ("shape", "used", "needed", "most", "least"),
    [
        pytest.param((1, 1, 4, 2), "", 2, "0-1", "0-1", id="one-core"),
        pytest.param((1, 1, 4, 2), "0-1", 2, "2-3", "2-3", id="the-next-core"),
        pytest.param((2, 1, 4, 2), "", 8, "0-7", "0-7", id="a-socket"),
        pytest.param((2, 1, 4, 2), "", 12, "0-11", "0-11", id="more-than-a-socket"),
        pytest.param((2, 1, 4, 2), "0-1", 8, "8-15", "8-15", id="the-socket-that-is-whole"),
        pytest.param((2, 2, 4, 2), "0-5,16-23", 6, "24-29", "8-13", id="nodes-tie-sockets-decide"),
        pytest.param((2, 2, 4, 2), "0-5,16-23", 12, "6-15,24-25", "6-15,24-25", id="the-larger-socket-first"),
        pytest.param((2, 2, 4, 2), "0-3,8-11", 4, "4-7", "16-19", id="fill-up-or-spread-out"),
        pytest.param((2, 2, 2, 2), "0,2,4,8,12", 4, "10-11,14-15", "10-11,14-15", id="only-one-socket-has-four"),
        pytest.param((2, 2, 2, 2), "0,2,4,8,10,12", 6, "5-7,13-15", "1,3,6-7,14-15", id="cores-run-out"),
        pytest.param((2, 2, 2, 2), "0,2,4,8-10,12", 6, "6-7,11,13-15", None, id="cores-run-out-on-one-socket"),
        pytest.param((2, 2, 4, 2), "0,2,4,8-10,12", 6, None, "16-21", id="an-empty-node"),
        pytest.param((3, 1, 2, 2), "", 7, "0-6", "0-6", id="an-odd-one-over-three-sockets"),
        pytest.param((2, 1, 4, 2), "0", 3, "2-4", "8-10", id="an-odd-one-breaks-a-fresh-core"),
    ],
)
def test_full_cores(shape: Shape, used: str, needed: int, most: str | None, least: str | None) -> None:
    for want, strategy in ((most, True), (least, False)):
        if want is not None:
            assert taken(shape, used, needed, CpuPreference(FULL_PCPUS, most=strategy)) == want


@pytest.mark.parametrize(
    ("used", "needed", "most", "least"),
    [
        pytest.param("", 4, "0,2,4,6", "0,2,4,6", id="a-cpu-of-each-core"),
        pytest.param("0,2", 4, "1,3-4,6", "8,10,12,14", id="broken-cores-count-as-well"),
        pytest.param("0-3", 4, "8,10,12,14", "8,10,12,14", id="only-two-cores-are-left"),
        pytest.param("0,2", 6, "1,3-7", "8-12,14", id="more-than-cores"),
    ],
)
def test_spread(used: str, needed: int, most: str, least: str) -> None:
    assert taken((2, 1, 4, 2), used, needed, CpuPreference(SPREAD_BY_PCPUS, most=True)) == most
    assert taken((2, 1, 4, 2), used, needed, CpuPreference(SPREAD_BY_PCPUS)) == least


@pytest.mark.parametrize(
    ("cores", "used", "theirs", "preference", "needed", "want"),
    [
        pytest.param(4, "0,2", PCPU_LEVEL, (SPREAD_BY_PCPUS, PCPU_LEVEL), 4, "8,10,12,14", id="off-their-cores"),
        pytest.param(4, "", "", (SPREAD_BY_PCPUS, PCPU_LEVEL), 10, "0-4,6,8,10,12,14", id="not-enough-cores-overlap"),
        pytest.param(8, "0,2", PCPU_LEVEL, (SPREAD_BY_PCPUS, PCPU_LEVEL), 4, "4,6,8,10", id="beside-their-cores"),
        pytest.param(8, "0,2", PCPU_LEVEL, (SPREAD_BY_PCPUS, ""), 4, "1,3-4,6", id="no-exclusive-policy"),
        pytest.param(
            4, "0,2", NUMA_NODE_LEVEL, (SPREAD_BY_PCPUS, NUMA_NODE_LEVEL), 4, "8,10,12,14", id="off-their-node"
        ),
        pytest.param(4, "0,2", NUMA_NODE_LEVEL, (SPREAD_BY_PCPUS, ""), 4, "1,3-4,6", id="spread-on-their-node"),
        pytest.param(4, "0,2", NUMA_NODE_LEVEL, (FULL_PCPUS, NUMA_NODE_LEVEL), 4, "8-11", id="full-off-their-node"),
        pytest.param(4, "0,2", NUMA_NODE_LEVEL, (FULL_PCPUS, ""), 4, "4-7", id="full-on-their-node"),
    ],
)
def test_exclusive(  # noqa: PLR0917
    cores: int, used: str, theirs: str, preference: tuple[str, str], needed: int, want: str
) -> None:
    assert taken((2, 1, cores, 2), used, needed, CpuPreference(preference[0], preference[1], most=True), theirs) == want


@pytest.mark.parametrize(
    ("cores", "steps"),
    [
        pytest.param(4, [(FULL_PCPUS, 4, "0-3"), (FULL_PCPUS, 5, "0,4-7"), (FULL_PCPUS, 4, "2-5")], id="whole-cores"),
        pytest.param(
            16,
            [
                (SPREAD_BY_PCPUS, 16, "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30"),
                (FULL_PCPUS, 16, "0-15"),
                (SPREAD_BY_PCPUS, 16, "1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31"),
                (FULL_PCPUS, 16, "16-31"),
                (FULL_PCPUS, 1, NOT_ENOUGH.message),
            ],
            id="the-least-shared-first",
        ),
    ],
)
def test_two_pods_may_share_a_cpu(cores: int, steps: list[tuple[str, int, str]]) -> None:
    topology = uniform(1, 1, cores, 2)
    marks: dict[int, Mark] = {}
    for policy, needed, want in steps:
        free = {cpu for cpu in topology.ids if cpu not in marks or marks[cpu].pods < 2}
        result = take(topology, free, marks, needed, CpuPreference(policy, max_count=2))
        assert (result.message if isinstance(result, Status) else cpuset_text(result)) == want
        for cpu in () if isinstance(result, Status) else result:
            marks[cpu] = Mark(marks[cpu].pods + 1 if cpu in marks else 1, "")


@pytest.mark.parametrize(
    ("used", "preferred", "want"),
    [
        pytest.param("", "", "0,2", id="nothing-preferred"),
        pytest.param("", "0,2", "0,2", id="what-was-handed-back"),
        pytest.param("0,2", "0,2", "1,3", id="it-is-taken-by-now"),
        pytest.param("0,2", "11,13,15,17", "11,13", id="more-than-needed"),
        pytest.param("", "5", "0,5", id="less-than-needed"),
    ],
)
def test_preferred_cpus_first(used: str, preferred: str, want: str) -> None:
    topology = uniform(2, 1, 16, 2)
    marks = {cpu: Mark(1, "") for cpu in parse_cpuset(used)}
    preference = CpuPreference(SPREAD_BY_PCPUS, most=True, first=parse_cpuset(preferred))
    result = take(topology, topology.ids - marks.keys(), marks, 2, preference)
    assert not isinstance(result, Status)
    assert cpuset_text(result) == want


def test_no_pod_gets_more_than_there_is() -> None:
    assert taken((1, 1, 4, 2), "0-5", 3, CpuPreference(FULL_PCPUS)) == "not enough cpus available to satisfy request"
    assert taken((1, 1, 4, 2), "", 0, CpuPreference(FULL_PCPUS)) == ""
