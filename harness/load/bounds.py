"""Bounds of a workload's figures: floors and ceilings that a valid load is judged by."""

from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.harness.errors import UsageError
from seatrial.harness.load.figures import LoadResult

FIGURES = ("pods_per_second", "p50", "p90", "p99", "max")


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds by figure: `pods_per_second`, or a percentile of the latency from create to bound in milliseconds."""

    at_least: dict[str, float] = {}
    at_most: dict[str, float] = {}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Bounds":
        """The bounds in a row of a workload table.

        Raises:
            UsageError: a figure is unknown, or a bound is no number.
        """
        try:
            found = msgspec.convert(given, cls)
        except msgspec.ValidationError as error:
            raise UsageError(f"bounds: expected {{at_least: {{…}}, at_most: {{…}}}}: {error}") from error
        for name in (*found.at_least, *found.at_most):
            if name not in FIGURES:
                raise UsageError(f"bounds: no figure {name!r}; expected one of: {', '.join(FIGURES)}")
        return found


def out_of_bounds(bounds: Bounds, result: LoadResult) -> list[str]:
    """The bounds that a load does not keep, in words; a figure that was not measured keeps none.

    Raises:
        ValueError: the load is not valid, so its figures say nothing.
    """
    if not result.valid:
        raise ValueError("the figures of a load that is not valid are not judged")
    figures = dict(result.latency_ms)
    if result.throughput is not None:
        figures["pods_per_second"] = result.throughput.pods_per_second
    found = []
    for name, bound in bounds.at_least.items():
        if not figures.get(name, float("-inf")) >= bound:
            found.append(f"{name}: expected at least {bound:g}, measured {_text(figures.get(name))}")
    for name, bound in bounds.at_most.items():
        if not figures.get(name, float("inf")) <= bound:
            found.append(f"{name}: expected at most {bound:g} ms, measured {_text(figures.get(name))}")
    return found


def _text(figure: float | None) -> str:
    return "nothing" if figure is None else f"{figure:g}"
