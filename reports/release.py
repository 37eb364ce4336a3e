"""Sections of the page that need more than its own runs: the release policy, the changes since a base, the history."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from seatrial.harness.errors import ResultsError
from seatrial.harness.results import Run
from seatrial.reports import svg
from seatrial.reports.collect import Collection, collect
from seatrial.reports.compare import Comparison, FigureChange, compare
from seatrial.reports.policy import Outcome, Policy, outcomes
from seatrial.reports.run_figures import series_of, short
from seatrial.reports.sections import TEMPLATES, Section, Values
from seatrial.reports.texts import phrase

MAX_TRENDS = 6


@dataclass(frozen=True, slots=True)
class Release:
    """What a release is judged by beside the runs: demands, the changes since a base, older runs."""

    policy: tuple[Outcome, ...] = ()
    changes: Comparison | None = None
    history: Collection | None = None

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
        return {
            "older": [(run, verified_in(self.history, number)) for number, run in enumerate(runs)],
            "total": len(self.history.requirements),
            "trends": trends(runs),
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
    )


def _collected(option: str, folder: Path, features: Path | None) -> Collection:
    try:
        return collect([folder], features=features)
    except ResultsError as error:
        raise ResultsError(f"{option} {error}") from error


def verified_in(collection: Collection, run: int) -> int:
    """The number of requirements that the cases of one run verify."""
    return sum(requirement.state_in(run) == "verified" for requirement in collection.requirements)


def trends(runs: Sequence[Run]) -> list[tuple[str, Markup, str]]:
    """A chart for each measurement with figures of two runs or more: its name, the median by run, a caption."""
    found = []
    ordered = sorted(series_of(runs), key=lambda series: (series.name, series.unit, series.labels, series.run))
    for (name, unit, _), group in groupby(ordered, key=lambda series: (series.name, series.unit, series.labels)):
        own = list(group)
        if len(own) < 2:
            continue
        medians = [(series.run + 1, series.at(50), series.valid) for series in own]
        judged = [value for _, value, valid in medians if valid]
        said = f"median {short(judged[0])} → {short(judged[-1])} {unit}" if judged else ""
        if len(judged) < len(medians):
            said += (
                f"{'; ' if said else ''}{len(medians) - len(judged)} of {len(medians)} figures are not valid (hollow)"
            )
        title = ", ".join(part for part in (phrase(name), own[0].what) if part)
        found.append((title, svg.trend(medians, unit, title), said))
    return found[:MAX_TRENDS]
