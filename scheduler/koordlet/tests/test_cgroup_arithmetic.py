"""Worked examples E18 and E19 of Koordinator's tests: what the files of groups say, and how values are written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.koordlet.audit import NO_AUDIT, AuditLog
from seatrial.scheduler.koordlet.cgroups import CPUS, MEMORY_MIN, QUOTA, SHARES, CgroupError, Cgroups, shares_of
from seatrial.scheduler.koordlet.collectors import Collectors, real_limit
from seatrial.scheduler.koordlet.executor import Executor, Update
from seatrial.scheduler.koordlet.machine import Machine
from seatrial.scheduler.koordlet.samples import Samples
from seatrial.scheduler.koordlet.tests.setting import Setting

Files = Callable[..., Cgroups]
MI = 1 << 20


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """The groups of a node, with these files in the group `g`."""

    def build(*, v2: bool = False, **texts: str) -> Cgroups:
        root = Setting(tmp_path, v2=v2, cpus=16).root
        root.group("g")
        cgroups = Cgroups(root.cgroup, v2=v2)
        for name, text in texts.items():
            file = {"quota": QUOTA, "shares": SHARES, "cpus": CPUS, "min": MEMORY_MIN}[name]
            cgroups.path("g", file).write_text(text)
        return cgroups

    return build


@pytest.mark.parametrize(("text", "quota"), [("max 100000", -1), ("999999 100000", 999_999)])
def test_quotas_of_the_second_version(files: Files, text: str, quota: int) -> None:
    """TestParseCPUCFSQuotaV2."""
    assert files(v2=True, quota=text).number("g", QUOTA) == quota


@pytest.mark.parametrize(("name", "text"), [("quota", "100000"), ("shares", "0"), ("shares", "10001")])
def test_texts_of_the_second_version_that_are_no_values(files: Files, name: str, text: str) -> None:
    """TestParseCPUCFSQuotaV2, TestConvertCPUWeightToShares."""
    with pytest.raises(CgroupError, match=f"expected a number, found '{text}'"):
        files(v2=True, **{name: text}).number("g", {"quota": QUOTA, "shares": SHARES}[name])
    assert (shares_of(1), shares_of(10_000)) == (2, 262_144)


def test_shares_that_are_none(files: Files) -> None:
    """TestConvertCPUSharesToWeight."""
    with pytest.raises(CgroupError, match="expected 2 to 262144, found 0"):
        files(v2=True).write("g", SHARES, 0)


@pytest.mark.parametrize(
    ("v2", "cpus", "quota", "limit"),
    [
        (False, "1-2", "-1", 2000),
        (False, "1-15", "800000", 8000),
        (True, "1-2", "max 100000", 2000),
        (True, "1-15", "800000 100000", 8000),
    ],
)
def test_what_a_group_can_use(files: Files, v2: bool, cpus: str, quota: str, limit: int) -> None:
    """Test_getBECPURealMilliLimit."""
    assert real_limit(files(v2=v2, cpus=cpus, quota=quota), "g") == limit


@pytest.mark.parametrize(
    ("v2", "name", "before", "value", "between"),
    [
        (False, "quota", "-1", 10_000, "-1"),
        (True, "quota", "max 100000", 200_000, "max 100000"),
        (True, "min", str(2 * MI), MI, str(2 * MI)),
        (False, "cpus", "0-1", "2-3", "0-3"),
    ],
)
def test_values_in_two_passes(  # noqa: PLR0917
    files: Files, v2: bool, name: str, before: str, value: int | str, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TestCgroupResourceUpdater_MergeUpdate: from above what is looser, then from below the value."""
    cgroups = files(v2=v2, **{name: before})
    file = {"quota": QUOTA, "min": MEMORY_MIN, "cpus": CPUS}[name]
    seen: list[str] = []
    write = Executor._write

    def noted(executor: Executor, update: Update, value: int | str) -> bool:
        result = write(executor, update, value)
        seen.append(cgroups.path("g", file).read_text())
        return result

    monkeypatch.setattr(Executor, "_write", noted)
    clock = SimClock()
    Executor(cgroups, clock, AuditLog(NO_AUDIT, clock)).leveled([Update("g", file, value)])
    assert seen == [between, str(value)]


def test_throttled_periods(tmp_path: Path) -> None:
    """TestCalcCPUThrottledRatio: of 100 new periods 20 were throttled; then there is no new one."""
    root, samples = Setting(tmp_path).root, Samples()
    collectors = Collectors(Cgroups(root.cgroup), Machine(root.proc, root.sys), samples, cold=False)
    root.group("g")
    ratios = []
    for moment, counts in enumerate(((100, 20), (100, 20), (0, 0))):
        root.throttle("g", *counts)
        collectors._throttled(float(moment), ("uid", "c"), "g")
        ratios.append(samples.last(("throttled", "uid", "c"), moment - 0.5))
    assert ratios == [None, 0.2, 0.0]
