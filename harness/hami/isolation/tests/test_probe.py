"""Why isolation cannot be measured: one key each, the first in the order wins."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.harness.devices.provider import Device, Driver, Missing, Process, Slice
from seatrial.harness.hami.isolation.probe import Ready, check_readiness
from seatrial.harness.hami.isolation.tenants import Arrangement

CARD = Device("nvidia", "gpu", "H200", "H200", 0, 0, "GPU-1", "0000:01:00.0", 0, "pci0000:00", 141 << 30)


class Seen:
    """A witness who sees what a test says; `ours` is how busy it thinks a tenant is, a child that is new."""

    def __init__(
        self,
        *,
        absent: str = "",
        cards: tuple[Device, ...] = (CARD,),
        driver: str = "570.124.06",
        others: tuple[int, ...] = (),
        ours: float | None = 90.0,
        hidden: bool = False,
    ) -> None:
        self._absent, self._cards, self._driver = absent, cards, driver
        self._others, self._ours, self._hidden = others, ours, hidden
        self._before: set[str] | None = None  # children that were there before the tenant

    def probe(self) -> Missing | None:
        return Missing("no-library", self._absent) if self._absent else None

    def devices(self) -> Sequence[Device]:
        return self._cards

    def driver(self) -> Driver:
        return Driver(self._driver, "12")

    def processes(self, uuid: str) -> Sequence[Process]:
        assert uuid == CARD.uuid
        children = set(Path("/proc/thread-self/children").read_text().split())
        if self._before is None:  # such as what earlier tests share between processes with
            self._before = children
        tenants = [] if self._hidden else children - self._before
        return [Process(pid, 1, None) for pid in self._others] + [Process(int(pid), 1, self._ours) for pid in tenants]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "libvgpu.so").write_bytes(b"not loaded here")
    return tmp_path / "libvgpu.so"


@pytest.mark.parametrize(
    ("seen", "release", "key", "says"),
    [
        pytest.param(Seen(absent="libnvidia-ml.so.1 is not here"), "v2.6.0", "no-gpu", "libnvidia-ml", id="no-driver"),
        pytest.param(Seen(cards=()), "v2.6.0", "no-gpu", "lists none", id="no-card"),
        pytest.param(
            Seen(cards=(replace(CARD, slices=(Slice("1", "mig", "1g.18gb", 1),)),)),
            "v2.6.0",
            "mig-enabled",
            "MIG instances",
            id="cut-into-instances",
        ),
        pytest.param(Seen(hidden=True), "v2.5.0", "hidden-pids", "hides them", id="hidden-before-too-old"),
        pytest.param(
            Seen(others=(7,)), "v2.5.0", "core-too-old-for-driver", "hangs with driver 570", id="too-old-before-busy"
        ),
        pytest.param(Seen(others=(9, 7)), "v2.6.0", "gpu-busy", "7, 9", id="another-program-uses-the-card"),
        pytest.param(Seen(ours=None), "v2.6.0", "no-process-utilisation", "no samples", id="no-samples"),
    ],
)
def test_what_is_missing(  # noqa: PLR0917
    libcuda: Path, library: Path, seen: Seen, release: str, key: str, says: str
) -> None:
    bare = Arrangement(None, {"LD_LIBRARY_PATH": str(libcuda)})
    readiness = check_readiness(seen, library, release, libcuda=str(libcuda / "libcuda.so.1"), bare=bare, sampled=0.2)
    assert isinstance(readiness, Missing)
    assert readiness.key == key
    assert says in readiness.why


def test_the_library_s_file_is_named(tmp_path: Path) -> None:
    readiness = check_readiness(Seen(), None, "v2.6.0")
    named = check_readiness(Seen(), tmp_path / "none.so", "v2.6.0")
    assert isinstance(readiness, Missing)
    assert isinstance(named, Missing)
    assert (readiness.key, readiness.why) == ("no-libvgpu", "HAMi's libvgpu.so is needed: --hami-library was not given")
    assert named.why == f"HAMi's libvgpu.so is needed: {tmp_path}/none.so is no file"


def test_a_driver_without_cuda(library: Path) -> None:
    readiness = check_readiness(Seen(), library, "v2.6.0", libcuda="libcuda-that-is-not-there.so.1")
    assert isinstance(readiness, Missing)
    assert readiness.key == "no-libcuda"


def test_a_card_that_can_be_measured(libcuda: Path, library: Path) -> None:
    bare = Arrangement(None, {"LD_LIBRARY_PATH": str(libcuda)})
    readiness = check_readiness(
        Seen(), library, "v2.6.0", libcuda=str(libcuda / "libcuda.so.1"), bare=bare, sampled=0.2
    )
    assert readiness == Ready(CARD, "570.124.06", "v2.6.0")
