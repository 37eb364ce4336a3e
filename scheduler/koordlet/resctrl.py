"""Cache ways and memory bandwidth of QoS classes and of pods (RC-1 to RC-6).

Follows Koordinator's pkg/koordlet/qosmanager/plugins/resctrl and pkg/koordlet/util/system/resctrl*.go.
"""

from collections.abc import Iterable, Mapping

import msgspec

from seatrial.scheduler.api.wire import decode_as

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
        document = decode_as(annotation, _Annotation)
    except msgspec.MsgspecError as error:
        raise ResctrlError(f'annotation {ANNOTATION}: expected {{"llc": …, "mb": …}}: {error}') from error
    ids = list(caches)
    ranges = {cache: document.llc.of(cache).range for cache in ids}
    limits = {cache: bandwidth(document.mb.of(cache).percent, amd=amd) for cache in ids}
    try:
        masks = {cache: cache_mask(cbm, *values) for cache, values in ranges.items() if values is not None}
    except ResctrlError:
        masks = {}
    lines = [line("L3", masks)] if ids and len(masks) == len(ids) else []
    return [*lines, line("MB", limits)] if ids and all(limits.values()) else lines


class _Schemata(msgspec.Struct, frozen=True):
    range: tuple[int, int] | None = None
    percent: int | None = None


class _CacheSchemata(_Schemata, frozen=True, kw_only=True):
    cache: int = msgspec.field(name="cacheID")


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    schemata: _Schemata = _Schemata()
    schemata_per_cache: tuple[_CacheSchemata, ...] = ()

    def of(self, cache: int) -> _Schemata:
        """What holds for a cache: its own, else what holds for all."""
        return next((each for each in self.schemata_per_cache if each.cache == cache), self.schemata)


class _Annotation(msgspec.Struct, frozen=True):
    llc: _Part = _Part()
    mb: _Part = _Part()
