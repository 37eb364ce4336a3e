"""Cache ways and memory bandwidth of QoS classes and of pods (RC-1 to RC-6).

Follows Koordinator's pkg/koordlet/qosmanager/plugins/resctrl and pkg/koordlet/util/system/resctrl*.go.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

ANNOTATION = "node.koordinator.sh/resctrl"
GROUPS = {"LSE": "LSR", "LSR": "LSR", "LS": "LS", "BE": "BE"}  # QoS class → group
_INTEL_STEP = 10
_AMD_UNLIMITED, _AMD_FULL = 2048, 160  # 200 units of 1/8 Gb/s, by 0.8
_MOST = 100  # percent


class ResctrlError(ValueError):
    """A mask or a range is not usable; the text is Koordinator's."""


def cache_mask(cbm: str, start: int, end: int) -> str:
    """The part of the cache ways between two percentages, in hex (RC-2).

    Raises:
        ResctrlError: the mask of the node is not contiguous from bit 0, or the range is none.
    """
    try:
        value = int(cbm, 16)
    except ValueError:
        value = 0
    if value <= 0 or value & (value + 1):
        raise ResctrlError(f"illegal cbm {cbm}")
    if not 0 <= start < end <= _MOST:
        raise ResctrlError(f"illegal l3 cat percent: start {start}, end {end}")
    ways = value.bit_count()
    low, high = -(-ways * start // _MOST), -(-ways * end // _MOST)
    return f"{(1 << high) - (1 << low):x}"


def bandwidth(percent: int | None, *, amd: bool) -> str:
    """The value for MB lines; "" for a percentage that is none (RC-3)."""
    if percent is None or not 0 < percent <= _MOST:
        return ""
    if amd:
        return str(_AMD_UNLIMITED if percent == _MOST else _AMD_FULL * percent // _MOST)
    return str(-(-percent // _INTEL_STEP) * _INTEL_STEP)


def line(kind: str, values: Mapping[int, str]) -> str:
    """A line of `schemata` for the caches, as in `L3:0=ff;1=ff;`."""
    return f"{kind}:" + "".join(f"{cache}={value};" for cache, value in sorted(values.items()))


def pod_lines(annotation: str, caches: Iterable[int], cbm: str, *, amd: bool) -> list[str]:
    """The lines of a pod's own group (RC-6); a kind of which not every cache has a value is left out.

    Raises:
        ResctrlError: the annotation is not of its form.
    """
    try:
        document = msgspec.json.decode(annotation, type=dict[str, dict[str, Any]])
        cache_part, bandwidth_part = (_schemata(document.get(kind) or {}) for kind in ("llc", "mb"))
    except (msgspec.MsgspecError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise ResctrlError(f'annotation {ANNOTATION}: expected {{"llc": …, "mb": …}}: {error}') from error
    ids = list(caches)
    found = []
    ranges = {cache: (cache_part.get(cache) or cache_part.get(None) or {}).get("range") for cache in ids}
    try:
        masks = {cache: cache_mask(cbm, *given) for cache, given in ranges.items() if given}
    except (ResctrlError, TypeError):
        masks = {}
    if masks and len(masks) == len(ids):
        found.append(line("L3", masks))
    given = {cache: (bandwidth_part.get(cache) or bandwidth_part.get(None) or {}).get("percent") for cache in ids}
    limits = {cache: bandwidth(percent, amd=amd) for cache, percent in given.items() if isinstance(percent, int)}
    if len(limits) == len(ids) and all(limits.values()) and ids:
        found.append(line("MB", limits))
    return found


def _schemata(part: Mapping[str, Any]) -> dict[int | None, Mapping[str, Any]]:
    """What holds for each cache; None: for all others."""
    found: dict[int | None, Mapping[str, Any]] = {None: part.get("schemata") or {}}
    for entry in part.get("schemataPerCache") or ():
        found[int(entry["cacheID"])] = entry
    return found
