"""Worked examples of Koordinator's cpu_suppress_test.go (E12)."""

import pytest

from seatrial.scheduler.api.numa import cpuset_text, parse_cpuset
from seatrial.scheduler.koordlet.machine import Cpu
from seatrial.scheduler.koordlet.suppress import Usage, allowed_cores, chosen, next_quota, packed, wanted_cpus

LS, BE = False, True


@pytest.mark.parametrize(
    ("node", "pods", "applications", "least", "expected"),
    [
        (11, [(8, LS), (4, BE)], [], None, 6),
        (12, [(8, LS), (2, BE)], [], None, 4),
        (12, [(8, LS), (2, BE)], [(1, LS)], None, 4),
        (12, [(8, LS), (2, BE)], [(1, BE)], None, 5),
        (12, [(8, LS), (2, BE)], [], 60, 12),
    ],
)
def test_allowed_cores(
    node: float,
    pods: list[tuple[float, bool]],
    applications: list[tuple[float, bool]],
    least: int | None,
    expected: float,
) -> None:
    """Rows 51 to 55."""
    used, programs = ([Usage(*each) for each in pod] for pod in (pods, applications))
    assert allowed_cores(20, 70, least, node, used, programs) == pytest.approx(expected)


def test_reserved_cores_count_as_the_system_s() -> None:
    assert allowed_cores(20, 70, None, 12, [Usage(8, LS), Usage(2, BE)], [], reserved=5) == pytest.approx(1)


def test_whole_cores_in_turns_of_numa_nodes() -> None:
    """Rows 56 and 57."""
    two = [Cpu(cpu, cpu % 4, 0, cpu % 4 // 2) for cpu in range(8)]
    assert packed(two, 3) == [0, 4, 2]
    four = [Cpu(cpu, cpu // 2, cpu // 4, cpu // 4) for cpu in reversed(range(16))]
    assert sorted(packed(four, 5)) == [0, 1, 4, 5, 8]
    assert packed(two, 9) == []


EIGHT = [Cpu(cpu, cpu // 2, cpu // 4, cpu // 4) for cpu in range(8)]


@pytest.mark.parametrize(("reserved", "expected"), [("", "2-4"), ("3", "0,4-5"), ("1-6", ""), ("0-1,5-6", "2-4")])
def test_lent_and_reserved_cpus(reserved: str, expected: str) -> None:
    """Rows 58 and 59; empty: the CPUs stay as they are."""
    choice = chosen(EIGHT, 3, exclusive=frozenset({7}), shared_with=frozenset({0, 6}), reserved=parse_cpuset(reserved))
    assert cpuset_text(choice) == expected


@pytest.mark.parametrize(
    ("cores", "before", "expected"), [(3.2, 8, 4), (0.5, 8, 2), (10, 4, 6), (10, 9, 10), (4.0000000001, 8, 4)]
)
def test_it_grows_slowly_and_shrinks_at_once(cores: float, before: int, expected: int) -> None:
    assert wanted_cpus(cores, before, 20) == expected


@pytest.mark.parametrize(
    ("cores", "before", "expected"),
    [
        (20, 1_000_000, 1_800_000),
        (20, 1_900_000, 2_000_000),
        (20, 2_400_000, 2_000_000),
        (20, 1_980_000, 1_980_000),
        (20, -1, 2_000_000),
        (0.001, 80_000, 2000),
    ],
)
def test_quota(cores: float, before: int, expected: int) -> None:
    """Row 60: 80 CPUs."""
    assert next_quota(cores, before, 80) == expected
