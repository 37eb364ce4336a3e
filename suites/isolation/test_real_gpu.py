"""HAMi-core on a real GPU: limits, isolation of tenants, and clean-up after killed processes.

Each check is a separate run; docs/isolation-protocol.md describes its needs, measurements and tolerances.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.devices.nvidia import NvidiaProvider
from seatrial.harness.devices.provider import Missing
from seatrial.harness.hami.isolation.checks import CHECKS, Bench
from seatrial.harness.hami.isolation.probe import check_readiness
from seatrial.harness.hami.isolation.tenants import Arrangement
from seatrial.harness.results import ResultsWriter
from seatrial.suites.isolation.findings import finding_of

NEW_DRIVER = 570
PROMISES = {  # check → the promises that it verifies
    "totals": ("DEV-8.memory-isolation", "HIL-6.memory-limit"),
    "filling": ("DEV-8.memory-isolation", "HIL-6.memory-limit"),
    "other-kinds": ("DEV-8.memory-isolation", "HIL-6.memory-limit"),
    "neighbours-memory": ("DEV-8.memory-isolation", "HIL-6.two-tenants"),
    "crash": ("HIL-6.clean-up",),
    "old-limit": ("HIL-6.memory-limit",),
    "churn": ("HIL-6.clean-up",),
    "dead-holder": ("HIL-6.clean-up",),
    "overhead": ("HIL-6.memory-limit",),
    "core-shares": ("DEV-8.core-isolation", "HIL-6.core-limit"),
    "fairness": ("DEV-8.core-isolation", "HIL-6.two-tenants"),
    "slowdown": ("HIL-6.core-limit",),
}

pytestmark = [pytest.mark.needs(Capability.REAL_DEVICES), pytest.mark.evidence("hardware")]


@pytest.fixture(scope="module")
def bench(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """This machine's first GPU with the library under test, or a skip with the reason."""
    library: Path | None = pytestconfig.getoption("--seatrial-hami-library")
    witness = NvidiaProvider()
    absent = witness.probe()
    if absent is not None:
        pytest.skip(f"no-gpu: {absent.why}")
    with witness:
        ready = check_readiness(witness, library, pytestconfig.getoption("--seatrial-hami-release"))
        if isinstance(ready, Missing):
            pytest.skip(f"{ready.key}: {ready.why}")
        folder = tmp_path_factory.mktemp("regions")
        yield Bench(Arrangement(library), Arrangement(None), folder, ready=ready, witness=witness)


@pytest.mark.case("IS-040", severity="blocker")
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.feature(*PROMISES[name])) for name in CHECKS])
def test_a_promise_holds_on_the_card(
    bench: Bench, name: str, results: ResultsWriter | None, request: pytest.FixtureRequest
) -> None:
    """The check finds no breach; known deviations of a release are expected failures."""
    finding = finding_of(name, bench, results, request)
    if finding.known:
        pytest.xfail("; ".join(finding.known))


@pytest.mark.feature("DEV-9.driver-570")
@pytest.mark.case("IS-043", severity="critical", source="Koordinator 1.7: HAMi 2.6 under drivers of 570 and later")
def test_the_library_limits_under_a_new_driver(
    bench: Bench, results: ResultsWriter | None, request: pytest.FixtureRequest
) -> None:
    """Under a driver of 570 or later a tenant sees its limit as the card's memory, and gets no more."""
    assert bench.ready is not None
    if int(bench.ready.driver.partition(".")[0]) < NEW_DRIVER:
        pytest.skip(f"needs a driver of {NEW_DRIVER} or later, found {bench.ready.driver}")
    for name in ("totals", "filling"):
        finding_of(name, bench, results, request)
