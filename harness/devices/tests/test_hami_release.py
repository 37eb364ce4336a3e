"""Which library goes with which driver, and that a container is refused where it would hang."""

import pytest

from seatrial.harness.devices.hami_release import HamiHost, core_release, driver_branch, incompatible
from seatrial.harness.devices.provider import Assignment, Device, ProviderError, Share
from seatrial.harness.devices.vendors.nvidia import nvidia_grant
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, HAMI_CORE

CARD = Device("nvidia", "gpu", "A10", "A10", 0, 3, "GPU-1", "0000:01:00.0", 0, "pci0000:00", 24 << 30)


def assignment(host: HamiHost, *, ratio: int = 50, isolation: str = HAMI_CORE) -> Assignment:
    share = Share(CARD, {GPU_CORE: ratio, GPU_MEMORY: 12 << 30, GPU_MEMORY_RATIO: ratio})
    return Assignment((share,), pod_uid="u", container="c", isolation=isolation, hami=host)


@pytest.mark.parametrize(
    ("driver", "core", "says"),
    [
        pytest.param("570.124.06", "v2.6.0", None, id="what-koordinator-ships"),
        pytest.param("570.124.06", "v2.10.0", None, id="numbers-not-letters"),
        pytest.param("570.124.06", "v3.0.0", None, id="a-later-major"),
        pytest.param("550.90.07", "v2.4.0", None, id="an-old-driver-takes-an-old-library"),
        pytest.param("", "v2.4.0", None, id="an-unknown-driver-refuses-no-release"),
        pytest.param("570.124.06", "v2.5.3", "expected v2.6 or newer", id="the-last-release-that-hangs"),
        pytest.param("580.65.06", "v2.5.3-rc1", "hangs with driver 580.65.06", id="newer-drivers-too"),
        pytest.param("570.124.06", "main", "expected a release as in v2.6.0, found 'main'", id="no-release"),
    ],
)
def test_library_and_driver(driver: str, core: str, says: str | None) -> None:
    text = incompatible(HamiHost(driver, core))
    assert text is None if says is None else says in (text or "")


def test_versions_are_read() -> None:
    assert (core_release("2.6"), core_release("v2.6.1+x"), core_release("latest")) == ((2, 6, 0), (2, 6, 1), None)
    assert (driver_branch("570.124.06"), driver_branch("R570")) == (570, None)


def test_a_share_is_refused_where_it_would_hang() -> None:
    with pytest.raises(ProviderError, match=r"HAMi-core v2\.5\.0 hangs with driver 570"):
        nvidia_grant(assignment(HamiHost("570.1", "v2.5.0")))


@pytest.mark.parametrize(
    "assignment",
    [
        pytest.param(assignment(HamiHost("570.1", "v2.5.0"), ratio=100), id="a-whole-card"),
        pytest.param(assignment(HamiHost("570.1", "v2.5.0"), isolation=""), id="a-share-without-isolation"),
    ],
)
def test_a_container_without_the_library_is_not_refused(assignment: Assignment) -> None:
    assert "LD_PRELOAD" not in nvidia_grant(assignment).env
