"""Which releases of HAMi-core work with which NVIDIA drivers.

Sources: HAMi-core issues 52 and 59 (with driver branch 570 and later, releases before v2.6 hang in the first CUDA
call), Koordinator v1.7, which ships v2.6.0 for that reason.
"""

import re
from dataclasses import dataclass

SHIPPED = "v2.6.0"  # by the chart hami-daemon 0.1.0
VERSION_LABEL = "seatrial.dev/hami-core-version"  # label of a node with another release
FIRST_NEW_DRIVER = 570
FIRST_FOR_NEW_DRIVERS = (2, 6)

_RELEASE = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-+].*)?", re.ASCII)
_BRANCH = re.compile(r"(\d+)(?:\..*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class HamiHost:
    """Versions of NVIDIA's driver and of HAMi's library on one host; empty: unknown."""

    driver: str = ""
    core: str = SHIPPED


def incompatible(host: HamiHost) -> str | None:
    """Why containers on that host would hang, as a sentence; None if they would not, or if the driver is unknown."""
    branch = driver_branch(host.driver)
    if branch is None or branch < FIRST_NEW_DRIVER:
        return None
    release = core_release(host.core)
    if release is None:
        return f"HAMi-core: expected a release as in v2.6.0, found {host.core!r}"
    if release[:2] >= FIRST_FOR_NEW_DRIVERS:
        return None
    return f"HAMi-core {host.core} hangs with driver {host.driver}: expected v2.6 or newer from driver 570 on"


def core_release(text: str) -> tuple[int, int, int] | None:
    """`v2.6.1` as numbers; None for anything else. A suffix after a dash or plus is ignored."""
    match = _RELEASE.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def driver_branch(text: str) -> int | None:
    """570 of `570.124.06`."""
    match = _BRANCH.fullmatch(text)
    return int(match[1]) if match else None
