"""Bounds of a workload's figures: floors and ceilings that a valid load is judged by."""

from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.harness.errors import UsageError
from seatrial.harness.load.load_figures import LoadResult

MEMORY = "memory_mib"  # of the scheduler after the load, in MiB
UNITS = {"pods_per_second": "pods/s", "p50": "ms", "p90": "ms", "p99": "ms", "max": "ms", MEMORY: "MiB"}


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds by figure: `pods_per_second`, a percentile of the latency from create to bound in ms, or `memory_mib`."""

    at_least: dict[str, float] = {}
    at_most: dict[str, float] = {}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Bounds":
        """The bounds in a row of a workload table.

        Raises:
            UsageError: a figure is unknown, or a bound is no number.
        """
        try:
            bounds = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            raise UsageError(f"bounds: expected {{at_least: {{…}}, at_most: {{…}}}}: {error}") from error
        for name in (*bounds.at_least, *bounds.at_most):
            if name not in UNITS:
                raise UsageError(f"bounds: no figure {name!r}; expected one of: {', '.join(UNITS)}")
        return bounds


def out_of_bounds(bounds: Bounds, result: LoadResult, *, memory_mib: float | None = None) -> list[str]:
    """The bounds that a load does not keep, in words; a figure that was not measured keeps none.

    `memory_mib`: of the scheduler; None for one that the harness did not start, whose memory is not judged.

    Raises:
        ValueError: the load is not valid, so its figures have no meaning.
    """
    if not result.valid:
        raise ValueError("the figures of a load that is not valid are not judged")
    figures = dict(result.latency_ms)
    if result.throughput is not None:
        figures["pods_per_second"] = result.throughput.pods_per_second
    ceilings = dict(bounds.at_most)
    if memory_mib is None:
        ceilings.pop(MEMORY, None)
    else:
        figures[MEMORY] = memory_mib
    messages = []
    for name, bound in bounds.at_least.items():
        if not figures.get(name, float("-inf")) >= bound:
            messages.append(f"{name}: expected at least {bound:g}, measured {_text(figures.get(name))}")
    for name, bound in ceilings.items():
        if not figures.get(name, float("inf")) <= bound:
            messages.append(f"{name}: expected at most {bound:g} {UNITS[name]}, measured {_text(figures.get(name))}")
    return messages


def _text(figure: float | None) -> str:
    return "nothing" if figure is None else f"{figure:g}"
