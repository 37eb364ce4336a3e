"""Compare two collections of results: changed verdicts, and figures that changed beyond their noise.

A figure regresses if its median is worse by more than the tolerance and the 95 % intervals of the two medians do not
overlap. The interval is that of the sign test: the order statistics that enclose the median with that probability
for any distribution. With fewer than six samples their range is used.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from itertools import groupby
from math import comb
from typing import Literal

from seatrial.harness.results import Case, RunInfo, Verdict
from seatrial.reports.collect import Collection
from seatrial.reports.run_figures import SECONDS, Series, series_of, short
from seatrial.reports.texts import counted, listed

Change = Literal["regressed", "lost", "changed", "fixed", "added"]
CHANGES: dict[Change, str] = {  # in the order of a report, each with its text after "1 case" or "2 cases"
    "regressed": "failed or broke, and did not before,",
    "lost": "had a verdict and {have} none now",
    "changed": "changed",
    "fixed": "failed or broke before, and passed,",
    "added": "{are} new",
}
AGAINST = frozenset({"failed", "broken"})


@dataclass(frozen=True, slots=True)
class CaseChange:
    """A case with another verdict. `lost`: it had a verdict and now has none."""

    nodeid: str
    change: Change
    base: Verdict | None
    new: Verdict | None
    reason: str
    suite: str = ""
    suite_ran: bool = True  # whether the new results have a case of this suite

    @property
    def verdicts(self) -> str:
        """Both verdicts, as in "passed -> absent"."""
        return f"{self.base or 'absent'} -> {self.new or 'absent'}"


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Cases that changed alike and for one reason. All that regressed are one group, because each is read."""

    change: Change
    cases: tuple[CaseChange, ...]

    @property
    def text(self) -> str:
        """The group as one line: how many cases, what changed, and why or in which suites."""
        first, one = self.cases[0], len(self.cases) == 1
        path = CHANGES[self.change].format(have="has" if one else "have", are="is" if one else "are")
        if self.change in ("changed", "added"):
            path += f" ({first.verdicts})"
        suites = sorted({case.suite or "no suite" for case in self.cases})
        named = f"suite{'s' * (len(suites) > 1)} {listed(suites)}"
        why = f" in {named}"
        if self.change == "lost" and first.new is not None:
            why = f": {first.new}: {first.reason.partition(chr(10))[0]}"
        elif self.change == "lost" and not first.suite_ran:
            why = f": {named} {'were' if len(suites) > 1 else 'was'} not run"
        elif self.change == "lost":
            why = f": not among the new results of {named}"
        return f"{counted(len(self.cases), 'case')} {path}{why}"


@dataclass(frozen=True, slots=True)
class FigureChange:
    """A figure of both sides. `ratio` is the new median divided by the base median (None if the base is 0).

    `not_valid` names the sides whose figure is not valid; it is not judged then.
    """

    name: str
    unit: str
    labels: str
    base: float
    new: float
    ratio: float | None
    regressed: bool
    not_valid: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The figure on both sides."""
        ratio = f" ({self.ratio:.3f} of base)" if self.ratio is not None else ""
        of = f" [{self.labels}]" if self.labels else ""
        return f"{self.name}{of}: {short(self.base)} -> {short(self.new)} {self.unit}{ratio}"

    @property
    def notable(self) -> bool:
        """Whether it regressed or could not be judged."""
        return self.regressed or bool(self.not_valid)

    @property
    def result(self) -> str:
        """The result in words."""
        if self.not_valid:
            return f"not valid ({' and '.join(self.not_valid)})"
        return "regressed" if self.regressed else "within tolerance or noise"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences; `regressed` is the result for a release gate."""

    cases: tuple[CaseChange, ...]
    figures: tuple[FigureChange, ...]
    incomplete: bool = False  # the new results are incomplete
    notes: tuple[str, ...] = ()  # other differences of the two sides

    @property
    def lost(self) -> int:
        """The number of cases that no longer have a verdict."""
        return sum(case.change == "lost" for case in self.cases)

    @property
    def groups(self) -> tuple[ChangeGroup, ...]:
        """The cases by change, in the order of `CHANGES`, and by reason; of one change the largest group first."""
        order = list(CHANGES)
        ordered = sorted(self.cases, key=_alike)
        made = [ChangeGroup(key[0], tuple(cases)) for key, cases in groupby(ordered, key=_alike)]
        return tuple(sorted(made, key=lambda group: (order.index(group.change), -len(group.cases))))

    @property
    def worse(self) -> tuple[FigureChange, ...]:
        """The figures that regressed."""
        return tuple(figure for figure in self.figures if figure.regressed)

    @property
    def regressed(self) -> bool:
        return self.incomplete or any(case.change == "regressed" for case in self.cases) or bool(self.worse)


def compare(base: Collection, new: Collection, *, tolerance: float = 0.1) -> Comparison:
    """Compare `new` with `base`; `tolerance` is the part by which a median may be worse (0.1: ten percent)."""
    alone = len(_backends(base)) == len(_backends(new)) == 1
    before, after = _cases(base, alone=alone), _cases(new, alone=alone)
    ran = {case.suite for case in after.values()}
    changes = [_case_change(key, before.get(key), after.get(key), ran) for key in dict.fromkeys((*after, *before))]
    old_series, new_series = _series(base, alone=alone), _series(new, alone=alone)
    figures = [_figure(old_series[key], new_series[key], tolerance) for key in new_series if key in old_series]
    incomplete = new.verdict == "incomplete"
    return Comparison(tuple(change for change in changes if change), tuple(figures), incomplete, _unlike(base, new))


def better(unit: str) -> Literal["lower", "higher", ""]:
    """The better direction of a unit: lower for times, higher for rates, unknown ("") for others."""
    if unit in SECONDS:
        return "lower"
    return "higher" if unit.endswith("/s") else ""


def median_interval(ordered: tuple[float, ...]) -> tuple[float, float]:
    """The 95 % interval of the median of sorted samples, by the sign test; their range if there are fewer than six."""
    count = len(ordered)
    if count > 1000:  # normal approximation; exact binomial sums would be slow
        reach = int(0.98 * count**0.5) + 1
        return ordered[max(0, count // 2 - reach)], ordered[min(count - 1, count // 2 + reach)]
    below, skipped = 0.0, 0
    while skipped < count // 2 and (below := below + comb(count, skipped) / 2**count) <= 0.025:
        skipped += 1
    return ordered[max(0, skipped - 1)], ordered[min(count - 1, count - skipped)]


def _unlike(base: Collection, new: Collection) -> tuple[str, ...]:
    """Other differences between the sides, which may be the reason for changed results."""
    facts: dict[str, Callable[[RunInfo], str]] = {
        "subject": lambda info: f"{info.subject.name} {info.subject.version}".strip(),
        "backend": lambda info: info.backend,
        "hardware": lambda info: info.hardware,
        "fleet": lambda info: info.fleet,
        "suites": lambda info: " ".join(info.suites),
        "-k": lambda info: info.keyword,
        "machine": lambda info: ", ".join(f"{key} {value}" for key, value in sorted(info.host.items())),
    }
    notes = []
    for name, fact in facts.items():
        before, after = ("; ".join(sorted({fact(run.info) for run in side.runs})) for side in (base, new))
        if before != after:
            notes.append(f"{name}: {before or 'none'} -> {after or 'none'}")
    return tuple(notes)


def _backends(side: Collection) -> set[str]:
    return {run.info.backend for run in side.runs}


def _cases(side: Collection, *, alone: bool) -> dict[str, Case]:
    """Cases by nodeid, and by backend unless each side has but one; of several runs on one the latest counts."""
    return {_on(side, entry.run, alone=alone) + entry.case.nodeid: entry.case for entry in side.cases}


def _on(side: Collection, run: int, *, alone: bool) -> str:
    return "" if alone else f"{side.runs[run].info.backend}: "


def _alike(case: CaseChange) -> tuple[Change, str, bool, str]:
    """What the cases of one group share; reasons only where they say why a case has no verdict."""
    if case.change == "lost":
        return case.change, case.new or "", case.suite_ran, case.reason
    return case.change, "" if case.change in ("regressed", "fixed") else case.verdicts, True, ""


def _case_change(key: str, base: Case | None, new: Case | None, ran: Container[str]) -> CaseChange | None:
    """The change of one case, or None if there is none; `ran`: the suites of the new results."""
    before, after = base.verdict if base else None, new.verdict if new else None
    reason = new.reason if new else "it is not among the new results"
    change: Change
    if after in AGAINST:
        if before in AGAINST:
            if before == after:
                return None
            change = "changed"
        else:
            change = "regressed"
    elif before == after:
        return None
    elif before == "passed":
        change = "lost"
    elif before in AGAINST:
        change = "fixed" if after == "passed" else "lost"
    else:
        change = "added" if before is None else "changed"
    suite = next(case.suite for case in (new, base) if case is not None)
    return CaseChange(key, change, before, after, reason, suite, suite in ran)


def _series(side: Collection, *, alone: bool) -> dict[tuple[str, ...], Series]:
    """Series by what they measure, and where; of several runs on one backend the latest counts, as with cases.

    Within one name `series_of` gives the runs in the order they started, and of one run what is valid last.
    """
    return {
        (_on(side, entry.run, alone=alone), entry.name, entry.unit, entry.what): entry for entry in series_of(side.runs)
    }


def _figure(base: Series, new: Series, tolerance: float) -> FigureChange:
    before, after = base.at(50), new.at(50)
    ratio = after / before if before else None
    low, high = median_interval(new.samples)
    base_low, base_high = median_interval(base.samples)
    not_valid = tuple(side for side, series in (("base", base), ("new", new)) if not series.valid)
    worse = (
        not not_valid
        and {
            "lower": after > before * (1 + tolerance) and low > base_high,
            "higher": after < before * (1 - tolerance) and high < base_low,
            "": False,
        }[better(new.unit)]
    )
    return FigureChange(new.name, new.unit, new.what, before, after, ratio, worse, not_valid)
