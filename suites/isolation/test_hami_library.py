"""HAMi's real library on stand-ins for CUDA and NVML: memory accounting, limits and clean-up, without a GPU.

This verifies the library, not hardware. `--seatrial-hami-library` gives the library.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.fake_devices.build import NO_COMPILER, TABLE_FILE, compiler, install
from seatrial.fake_devices.hami.cuda import install_cuda
from seatrial.fake_devices.machine import from_devices
from seatrial.fake_devices.models import catalog
from seatrial.fake_devices.nvidia.hardware import NVML
from seatrial.fake_devices.table import FULL, DeviceTable
from seatrial.harness.hami.isolation.checks import MIB, Bench, Lengths
from seatrial.harness.hami.isolation.tenants import Arrangement, clear_lock
from seatrial.harness.results import ResultsWriter
from seatrial.suites.isolation.findings import finding_of

MEMORY = ("totals", "filling", "other-kinds", "neighbours-memory", "crash", "old-limit", "churn", "dead-holder")
QUICK = Lengths(baseline=0.5, tick=0.05)

pytestmark = [pytest.mark.evidence("stand-in")]


@pytest.fixture
def bench(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[Bench]:
    """The library between a tenant and two stand-ins."""
    library: Path | None = pytestconfig.getoption("--seatrial-hami-library")
    if library is None or not library.is_file():
        pytest.skip("no-libvgpu: HAMi's libvgpu.so is needed: give it by --seatrial-hami-library")
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    folder = tmp_path / "standins"
    install(NVML, folder)
    install_cuda(folder)
    machine = from_devices((("a10", 1),), catalog())
    table = DeviceTable.create(machine, "isolation", room=FULL, path=folder / TABLE_FILE)
    clear_lock()
    environment = {"LD_LIBRARY_PATH": str(folder), "STANDIN_LAX": "1", "LIBCUDA_LOG_LEVEL": "1"}
    bare, arrangement = Arrangement(None, environment), Arrangement(library.resolve(), environment)
    yield Bench(arrangement, bare, tmp_path, lengths=QUICK, limit=1024 * MIB)
    table.close()


@pytest.mark.feature("DEV-8.library-accounting")
@pytest.mark.case("IS-041", severity="critical")
@pytest.mark.parametrize("name", MEMORY)
def test_the_library_keeps_its_books(
    bench: Bench, name: str, results: ResultsWriter | None, request: pytest.FixtureRequest
) -> None:
    """Limits hold exactly, memory of live and dead processes is returned, and the region shows the use of tenants."""
    finding_of(name, bench, results, request)
    if name == "filling":
        assert list(bench.regions()), "the library has kept no books: it was not in the way"
