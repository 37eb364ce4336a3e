"""Tests of the checks: a library that keeps its limits passes, one that does not fails."""

from pathlib import Path

import pytest

from seatrial.harness.devices.provider import Device
from seatrial.harness.hami.isolation.checks import CHECKS, MIB, Bench, Lengths, core_shares, fairness
from seatrial.harness.hami.isolation.probe import Ready
from seatrial.harness.hami.isolation.tenants import Arrangement

SHORT = Lengths(warm_up=0.1, measured=0.5, together=0.5, baseline=0.5, tick=0.05, launch=0.002)
CARD = Device("nvidia", "gpu", "H200", "H200", 0, 0, "GPU-1", "0000:01:00.0", 0, "pci0000:00", 141 << 30)


def bench(libcuda: Path, folder: Path, *, lax: bool = False, ready: Ready | None = None) -> Bench:
    """The stand-in keeps limits by itself, so that no library has to be loaded."""
    bare = Arrangement(None, {"LD_LIBRARY_PATH": str(libcuda)})
    arrangement = Arrangement(None, {**bare.environment, **({"STANDIN_LAX": "1"} if lax else {})})
    return Bench(arrangement, bare, folder, lengths=SHORT, limit=1000 * MIB, ready=ready)


@pytest.mark.parametrize("name", [check for check in CHECKS if check != "old-limit"])
def test_a_library_that_keeps_limits_passes(libcuda: Path, tmp_path: Path, name: str) -> None:
    finding = CHECKS[name](bench(libcuda, tmp_path))
    assert finding.name == name
    assert finding.breaches == ()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("totals", "cuMemGetInfo: expected 1048576000, found 8589934592", id="the-card-is-seen"),
        pytest.param("other-kinds", "managed: expected code 2, found 0", id="managed-memory"),
        pytest.param("neighbours-memory", "greedy tenant: expected at most 524288000 bytes", id="the-greedy-tenant"),
        pytest.param("core-shares", "30 %: expected 30 ± 10 %", id="cores"),
    ],
)
def test_a_library_without_limits_fails(libcuda: Path, tmp_path: Path, name: str, says: str) -> None:
    checks = CHECKS[name](bench(libcuda, tmp_path, lax=True))
    assert any(says in breache for breache in checks.breaches), checks


def test_the_wrong_tenant_in_front_is_found(libcuda: Path, tmp_path: Path) -> None:
    finding = fairness(bench(libcuda, tmp_path), (70, 30))
    assert any("expected the tenant with 30 % to get more" in breache for breache in finding.breaches)


def test_a_region_that_does_not_remember_is_found(libcuda: Path, tmp_path: Path) -> None:
    """The stand-in keeps no region: the check says that the old limit did not hold."""
    assert CHECKS["old-limit"](bench(libcuda, tmp_path)).breaches == (
        f"same-region: expected {1000 * MIB}, found {500 * MIB}",
    )


def test_what_a_release_is_known_for_is_no_verdict(libcuda: Path, tmp_path: Path) -> None:
    """The stand-in's card has eighty multiprocessors, too few for the excuse; the excuse is by release and size."""
    held = core_shares(bench(libcuda, tmp_path, lax=True, ready=Ready(CARD, "570.1", "v2.6.1")), (30,))
    assert held.breaches
    assert held.known == ()


def test_a_pair_s_figures(libcuda: Path, tmp_path: Path) -> None:
    finding = fairness(bench(libcuda, tmp_path))
    assert finding.measured["ratio"]["mean"] > 1
    assert 0 < finding.measured["jain"] <= 1
