"""Sections of the page that need more than its own runs: the release policy, the changes since a base, the history."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from seatrial.harness.errors import ResultsError
from seatrial.harness.results import Run
from seatrial.reports import svg
from seatrial.reports.collect import Collection, collect
from seatrial.reports.compare import Comparison, FigureChange, better, compare
from seatrial.reports.policy import FigureRule, Outcome, Policy, outcomes
from seatrial.reports.run_figures import Series, series_of, short
from seatrial.reports.sections import TEMPLATES, Section, Values
from seatrial.reports.texts import phrase

MAX_TRENDS = 6  # charts; further figures are listed without one


class Trend(NamedTuple):
    """A figure over the runs: its name, a chart, and the first and last figure as text."""

    title: str
    picture: Markup
    caption: str


@dataclass(frozen=True, slots=True)
class Release:
    """What a release is judged by beside the runs: demands, the changes since a base, older runs."""

    policy: tuple[Outcome, ...] = ()
    changes: Comparison | None = None
    history: Collection | None = None
    budgets: tuple[FigureRule, ...] = ()  # the figures of the policy, as lines in the charts of the history

    @property
    def unmet(self) -> tuple[Outcome, ...]:
        """The demands of the policy that are not met."""
        return tuple(outcome for outcome in self.policy if not outcome.met)

    @property
    def worse(self) -> tuple[FigureChange, ...]:
        """The figures that are worse than the base's."""
        return self.changes.worse if self.changes is not None else ()

    @property
    def fails(self) -> bool:
        """Whether it fails runs that passed by themselves."""
        return bool(self.unmet or (self.changes is not None and self.changes.regressed))

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections of the page, those without content left out."""
        made = []
        if self.policy:
            made.append(Section("policy", "Release policy", TEMPLATES / "policy.html", self._policy))
        if self.changes is not None:
            made.append(Section("changes", "Changes since the base", TEMPLATES / "changes.html", self._changes))
        if self.history is not None:
            made.append(Section("history", "History", TEMPLATES / "history.html", self._history))
        return tuple(made)

    def _policy(self, _: Collection) -> Values:
        return {"demands": sorted(self.policy, key=lambda outcome: outcome.met), "unmet": len(self.unmet)}

    def _changes(self, _: Collection) -> Values:
        return {"changes": self.changes}

    def _history(self, _: Collection) -> Values:
        if self.history is None:
            return {}
        runs = self.history.runs
        made = trends(runs, self.budgets)
        return {
            "older": [(run, verified_in(self.history, number)) for number, run in enumerate(runs)],
            "total": len(self.history.requirements),
            "trends": made[:MAX_TRENDS],
            "more_trends": made[MAX_TRENDS:],
        }


def release_of(
    collection: Collection,
    *,
    policy: Policy | None = None,
    base: Path | None = None,
    history: Path | None = None,
    features: Path | None = None,
) -> Release:
    """
    Raises:
        ResultsError: the base or the history holds no run.
        UsageError: a rule of the policy matches nothing.
    """
    return Release(
        outcomes(policy, collection) if policy is not None else (),
        compare(_collected("--base", base, features), collection) if base is not None else None,
        _collected("--history", history, features) if history is not None else None,
        policy.figures if policy is not None else (),
    )


def _collected(option: str, folder: Path, features: Path | None) -> Collection:
    try:
        return collect([folder], features=features)
    except ResultsError as error:
        raise ResultsError(f"{option} {error}") from error


def verified_in(collection: Collection, run: int) -> int:
    """The number of requirements that the cases of one run verify."""
    return sum(requirement.state_in(run) == "verified" for requirement in collection.requirements)


def trends(runs: Sequence[Run], rules: Sequence[FigureRule] = ()) -> list[Trend]:
    """A chart for each measurement with figures of two runs or more, the important ones first.

    The figure is the median, and each percentile that a rule bounds. First are those with a rule, then rates, then
    times, then units without a better direction.
    """
    made = []
    ordered = sorted(series_of(runs), key=lambda series: (series.name, series.unit, series.labels, series.run))
    for (_, unit, _), group in groupby(ordered, key=lambda series: (series.name, series.unit, series.labels)):
        own = list(group)
        if len(own) < 2:
            continue
        about = [rule for rule in rules if rule.covers(own[0])]
        for percent in sorted({50.0, *(rule.percentile for rule in about)}):
            judged = [rule for rule in about if rule.percentile == percent]
            rank = 0 if judged else {"higher": 1, "lower": 2, "": 3}[better(unit)]
            made.append((rank, _trend(own, percent, judged)))
    return [trend for _, trend in sorted(made, key=itemgetter(0))]


def _trend(series: Sequence[Series], percent: float, rules: Sequence[FigureRule]) -> Trend:
    """One figure over the runs; `rules` are those that bound this percentile."""
    unit, of = series[0].unit, "median" if percent == 50 else f"p{percent:g}"
    points = [(entry.run + 1, entry.at(percent), entry.valid) for entry in series]
    valid = [value for _, value, valid in points if valid]
    messages = [f"{of} {short(valid[0])} → {short(valid[-1])} {unit}"] if valid else []
    if len(valid) < len(points):
        messages.append(f"{len(points) - len(valid)} of {len(points)} figures are not valid (hollow)")
    messages += [f"release policy: {rule.bounds} {unit}" for rule in rules]
    bounds = [
        (name, bound)
        for rule in rules
        for name, bound in (("at least", rule.at_least), ("at most", rule.at_most))
        if bound is not None
    ]
    parts = (phrase(series[0].name), series[0].what, "" if percent == 50 else of)
    title = ", ".join(part for part in parts if part)
    return Trend(title, svg.trend(points, unit, title, bounds), "; ".join(messages))
