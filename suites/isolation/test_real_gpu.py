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

pytestmark = [pytest.mark.needs(Capability.REAL_DEVICES)]


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


@pytest.mark.feature("HIL-6")
@pytest.mark.case("IS-040", severity="blocker")
@pytest.mark.parametrize("name", CHECKS)
def test_a_promise_holds_on_the_card(
    bench: Bench, name: str, results: ResultsWriter | None, request: pytest.FixtureRequest
) -> None:
    """The check finds no breach; known deviations of a release are expected failures."""
    finding = finding_of(name, bench, results, request)
    if finding.known:
        pytest.xfail("; ".join(finding.known))
