"""A release policy: which rows must be verified at which grade of evidence, and which figures must be reached.

    rows:
      - {id: 'DEV-*'}                                # each promise of each row that matches
      - {id: DEV-8.memory-isolation, at: [hardware]}
    figures:
      - {name: throughput, labels: {workload: steady}, at_least: 38}
      - {name: create to bound, labels: {workload: steady}, percentile: 99, at_most: 200}

A figure is a percentile (50 unless given) of the samples of all runs whose labels contain those given. Samples that
were recorded as not valid do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import yaml

from seatrial.harness.errors import UsageError
from seatrial.harness.sample_statistics import percentile
from seatrial.reports.collect import Collection, PromiseResult
from seatrial.reports.grades import GRADES
from seatrial.reports.run_figures import Series, series_of, short
from seatrial.scheduler.api.yaml_files import load_yaml


class RowRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row or a promise, or a pattern of them with `*`; `at`: grades that are needed beside those of the promise."""

    id: str
    at: tuple[str, ...] = ()


class FigureRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of a measurement."""

    name: str
    labels: dict[str, str] = {}
    percentile: float = 50.0
    at_least: float | None = None
    at_most: float | None = None

    def covers(self, series: Series) -> bool:
        """Whether the rule is about this series."""
        return self.name == series.name and self.labels.items() <= dict(series.labels).items()

    @property
    def bounds(self) -> str:
        """The bounds in words, without a unit: "at least 38 and at most 50"."""
        named = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{name} {value:g}" for name, value in named if value is not None)


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a release needs."""

    rows: tuple[RowRule, ...] = ()
    figures: tuple[FigureRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One demand of a policy; `why` is empty if it is met."""

    demand: str
    why: str

    @property
    def met(self) -> bool:
        return not self.why


def read_policy(path: Path) -> Policy:
    """
    Raises:
        UsageError: the file cannot be read, or is no policy, or demands nothing.
    """
    try:
        policy = msgspec.convert(load_yaml(path.read_bytes()), Policy)
    except OSError as error:
        raise UsageError(f"--require {path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(
            f"--require {path}: expected {{rows: [{{id, at}}], figures: [{{name, …}}]}}: {error}"
        ) from error
    if not policy.rows and not policy.figures:
        raise UsageError(f"--require {path}: expected rows or figures, found none; an empty policy is met by anything")
    for rule in policy.rows:
        for grade in rule.at:
            if grade not in GRADES:
                raise UsageError(f"--require {path}: {rule.id}: grade {grade!r}: expected one of: {', '.join(GRADES)}")
    for figure in policy.figures:
        if figure.at_least is None and figure.at_most is None:
            raise UsageError(f"--require {path}: figure {figure.name!r}: expected at_least or at_most")
        if not 0 <= figure.percentile <= 100:
            raise UsageError(f"--require {path}: figure {figure.name!r}: percentile: expected 0 to 100")
    return policy


def outcomes(policy: Policy, collection: Collection) -> tuple[Outcome, ...]:
    """Each demand of the policy, in its order, met or with the reason why not.

    Raises:
        UsageError: a rule matches no row and no promise of the feature list.
    """
    series = series_of(collection.runs)
    return (
        *(outcome for rule in policy.rows for outcome in _rows(rule, collection)),
        *(_figure(rule, series) for rule in policy.figures),
    )


def _rows(rule: RowRule, collection: Collection) -> list[Outcome]:
    rows = []
    for requirement in collection.requirements:
        whole = fnmatchcase(requirement.feature.id, rule.id)
        promises = [entry for entry in requirement.promises if whole or fnmatchcase(entry.id, rule.id)]
        if not promises:
            continue
        named = [requirement.feature.id] if whole else [entry.id for entry in promises]
        where = f" at {' and '.join(rule.at)}" if rule.at else ""
        against = [f"{entry.id}: {why}" for entry in promises if (why := _against(entry, rule.at))]
        if whole and not against and requirement.state != "verified":
            against = [f"a case of the row is {requirement.state}"]
        rows.append(Outcome(f"{', '.join(named)} verified{where}", "; ".join(against)))
    if not rows:
        raise UsageError(f"--require: {rule.id!r} is no row and no promise of the feature list")
    return rows


def _against(entry: PromiseResult, at: Sequence[str]) -> str:
    """Why a promise is not verified at these grades; empty if it is."""
    if entry.state != "verified":
        return entry.why
    if any(grade.suffices((*at, *entry.promise.needs)) for grade in entry.passed_at):
        return ""
    return f"passed at {'; '.join(map(str, entry.passed_at))}"


def _figure(rule: FigureRule, series: Sequence[Series]) -> Outcome:
    labels = "".join(f", {key} {value}" for key, value in rule.labels.items())
    demand = f"{rule.name}{labels}: p{rule.percentile:g} {rule.bounds}"
    own = [entry for entry in series if rule.covers(entry)]
    if not own:
        return Outcome(demand, "not measured")
    own = [entry for entry in own if entry.valid]
    if not own:
        return Outcome(demand, "what was measured is not valid")
    units = sorted({entry.unit for entry in own})
    if len(units) > 1:
        return Outcome(demand, f"measured in different units: {', '.join(units)}")
    figure = percentile(tuple(sorted(sample for entry in own for sample in entry.samples)), rule.percentile)
    low = rule.at_least is not None and not figure >= rule.at_least
    high = rule.at_most is not None and not figure <= rule.at_most
    return Outcome(demand, f"measured {short(figure)} {units[0]}" if low or high else "")
