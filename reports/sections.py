"""The sections of the sign-off page, in the order of the page: a template and the values it needs.

A section is left out of the page and of its table of contents where its function returns None. Templates are in
`templates/sections/`. Beside its own values each template gets those of the whole page: `collection`, `runs`,
`many` (more than one run), and `anchor` (the id of a case on the page).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from seatrial.harness.results import Case, Evidence, Run, RunInfo
from seatrial.harness.subject.recipes import is_recipe
from seatrial.reports import svg
from seatrial.reports.collect import CaseOfRun, Collection, PromiseResult, Requirement, fingerprint
from seatrial.reports.evidence import EvidenceBudget, ShownEvidence, show_evidence
from seatrial.reports.fleet import fleet
from seatrial.reports.grades import GRADES
from seatrial.reports.reasons import cause, sentence
from seatrial.reports.run_figures import Load, Series, loads_of, series_of, short
from seatrial.reports.texts import duration_text, phrase

TEMPLATES = Path(__file__).parent / "templates" / "sections"
MAX_OPEN_FINDINGS = 12  # findings that are unfolded when the page opens; readers unfold the others
MIN_CHART_SECONDS = 1.0  # a shorter load is drawn as noise; its figures are in the table

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page. The template's heading has the id `h-` + `name`, to which the contents link."""

    name: str
    title: str
    template: Path
    values: Callable[[Collection], Values | None]


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that did not pass, and the command that runs it again."""

    anchor: str
    case: Case
    run: Run
    evidence: tuple[ShownEvidence, ...]

    @property
    def sentence(self) -> str:
        return sentence(self.case.reason)

    @property
    def command(self) -> tuple[str, ...]:
        return repeat_command(self.run.info, self.case)


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture with its legend and caption."""

    title: str
    picture: Markup
    legend: tuple[svg.Line, ...]
    caption: str


def anchor_of(collection: Collection) -> Callable[[CaseOfRun], str]:
    """A function that gives each case the id of its place on the page."""
    anchors = {
        (entry.run, entry.case.nodeid): f"case-{entry.run}-{number}" for number, entry in enumerate(collection.cases)
    }
    return lambda entry: anchors[entry.run, entry.case.nodeid]


# -- requirements -----------------------------------------------------------------------------------------------------


def _requirements(collection: Collection) -> Values:
    anchor = anchor_of(collection)
    return {
        "groups": _groups(collection.requirements),
        "columns": range(len(collection.runs)),
        "links": lambda requirement: _links(requirement, anchor),
        "unpromised": lambda requirement: _unpromised(requirement, anchor),
        "grades": [grade for grade in GRADES if any(_passed_at(row, grade) for row in collection.requirements)],
        "passed_at": _passed_at,
    }


def _groups(requirements: Sequence[Requirement]) -> list[tuple[str, list[Requirement]]]:
    order = list(dict.fromkeys(requirement.feature.group for requirement in requirements))
    by_group = sorted(requirements, key=lambda requirement: order.index(requirement.feature.group))
    return [
        (group, list(members))
        for group, members in groupby(by_group, key=lambda requirement: requirement.feature.group)
    ]


def _passed_at(requirement: Requirement, grade: str) -> int:
    """The number of promises with a passed case of which this is the grade of the devices or of the cluster."""
    return sum(
        any(grade in (seen.devices, seen.cluster) for seen in promise.passed_at) for promise in requirement.promises
    )


_WORST_FIRST = ("failed", "broken", "passed", "skipped")


def _links(requirement: Requirement | PromiseResult, anchor: Callable[[CaseOfRun], str]) -> list[tuple[str, Case]]:
    """The cases of a requirement with their anchors: failed, broken, passed, skipped."""
    ordered = sorted(requirement.cases, key=lambda entry: _WORST_FIRST.index(entry.case.verdict))
    return [(anchor(entry), entry.case) for entry in ordered]


def _unpromised(requirement: Requirement, anchor: Callable[[CaseOfRun], str]) -> list[tuple[str, Case]]:
    """The cases that are not listed with a promise: those that name the row alone."""
    promised = {place for promise in requirement.promises for place, _ in _links(promise, anchor)}
    every = _links(requirement, anchor)
    return [link for link in every if link[0] not in promised] if requirement.feature.promises else every


# -- findings ---------------------------------------------------------------------------------------------------------


def _all_findings(collection: Collection) -> Values:
    anchor, budget = anchor_of(collection), EvidenceBudget()
    return {
        "failed": _grouped(_findings(collection, "failed", anchor, budget), collection),
        "broken": _grouped(_findings(collection, "broken", anchor, budget), collection),
        "skipped": _skips(collection, anchor),
        "open_findings": MAX_OPEN_FINDINGS,
    }


def _grouped(findings: Sequence[Finding], collection: Collection) -> list[tuple[str, list[tuple[int, list[Finding]]]]]:
    """Findings of one cause together, by the first row that the first of them names, with their number on the page.

    The most severe are first, as given.
    """
    titles = {requirement.feature.id: requirement.feature.title for requirement in collection.requirements}
    causes: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        causes.setdefault(cause(finding.case), []).append(finding)
    groups: dict[str, list[list[Finding]]] = {}
    for members in causes.values():
        features = members[0].case.features
        row = features[0].partition(".")[0] if features else ""
        groups.setdefault(f"{row}: {titles.get(row, '')}".strip(": ") or "No requirement", []).append(members)
    numbers = count(1)
    return [(name, [(next(numbers), members) for members in group]) for name, group in groups.items()]


# Options of `seatrial run` that change what is judged, and on what, beside those that are fields of RunInfo.
_REPEATED = frozenset(
    {
        "--scheduler-config",
        "--services",
        "--manager",
        "--descheduler",
        "--features",
        "--kubeconfig",
        "--context",
        "--nodes",
        "--cluster-role",
        "--kind-image",
        "--kind-config",
        "--kind-keep",
    }
)


def repeat_command(info: RunInfo, case: Case) -> tuple[str, ...]:
    """The command that runs the test of a case again with the subject, backend, fleet, seed and options of its run."""
    command = info.command[2:]
    own = [
        word
        for before, word in zip(("", *command), command, strict=False)
        if "/" in word and not word.startswith("-") and not before.startswith("-")
    ]
    name = case.nodeid.rpartition("::")[2].partition("[")[0]
    words = ["seatrial", "run", *(own or [case.suite] * bool(case.suite)), "-k", name, "--backend", info.backend]
    words += ["--subject", next(_recipes_in(command), info.subject.name)]
    if info.hardware.startswith("stand-in "):
        words += ["--fake", info.hardware.removeprefix("stand-in ")]
    if info.fleet and info.fleet != "default":
        words += ["--fleet", info.fleet]
    for number, word in enumerate(command):
        if word.partition("=")[0] in _REPEATED:
            words += command[number : number + (1 if "=" in word else 2)]
    words += ["--long"] * ("--long" in command)
    return (*words, "--seed", str(info.seed)) if info.seed is not None else tuple(words)


def _recipes_in(command: Sequence[str]) -> Iterator[str]:
    """The recipe of a run, whose subject has another name; one that comes with seatrial as it stands in the sources."""
    for before, word in zip(("", *command), command, strict=False):
        if before == "--subject" and is_recipe(word):
            shipped = Path(word).parts[-3:]
            yield "/".join(shipped) if shipped[:2] == ("suites", "recipes") else word


_SEVERITIES = ("blocker", "critical", "normal", "minor", "trivial")


def _findings(
    collection: Collection, verdict: str, anchor: Callable[[CaseOfRun], str], budget: EvidenceBudget
) -> list[Finding]:
    """The cases with one verdict and their evidence, the most severe first."""
    findings = []
    for entry in sorted((entry for entry in collection.cases if entry.case.verdict == verdict), key=_gravity):
        run = collection.runs[entry.run]
        evidence = tuple(show_evidence(run.folder, piece, budget) for piece in entry.case.evidence)
        findings.append(Finding(anchor(entry), entry.case, run, evidence))
    return findings


def _gravity(entry: CaseOfRun) -> int:
    severity = entry.case.severity
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else _SEVERITIES.index("normal")


def _skips(collection: Collection, anchor: Callable[[CaseOfRun], str]) -> list[tuple[str, list[Finding]]]:
    """Skipped cases grouped by their reason, the most frequent reason first."""
    by_reason: dict[str, list[Finding]] = {}
    for entry in collection.cases:
        if entry.case.verdict == "skipped":
            finding = Finding(anchor(entry), entry.case, collection.runs[entry.run], ())
            by_reason.setdefault(entry.case.reason or "no reason given", []).append(finding)
    return sorted(by_reason.items(), key=lambda item: -len(item[1]))


# -- performance ------------------------------------------------------------------------------------------------------


def _performance(collection: Collection) -> Values | None:
    runs = collection.runs
    series = series_of(runs)
    loads = [load for load in loads_of(runs) if load.seconds >= MIN_CHART_SECONDS]
    plots = [*_latency_plots(series, runs), *(_load_plot(load, runs) for load in loads)]
    return {"plots": plots, "series": series} if plots or series else None


def _latency_plots(series: Sequence[Series], runs: Sequence[Run]) -> list[Plot]:
    plots = []
    latencies = [entry for entry in series if entry.is_latency]
    for (name, unit), group in groupby(latencies, key=lambda series: (series.name, series.unit)):
        own = list(group)
        for first in range(0, len(own), svg.COLOURS):  # as many curves as there are colours
            part = own[first : first + svg.COLOURS]
            names = [_series_name(figure, runs) for figure in part]
            text = "; ".join(
                f"{label}: p50 {short(figure.at(50))}, p99 {short(figure.at(99))} {unit}"
                for figure, label in zip(part, names, strict=True)
                if len(part) <= 2  # more than two are read in the table
            )
            plots.append(Plot(phrase(name), svg.latency(part, names), tuple(svg.legend(names)), text))
    return plots


def _load_plot(load: Load, runs: Sequence[Run]) -> Plot:
    where = f" on {runs[load.run].info.id}" if len(runs) > 1 else ""
    case = load.case.rpartition("::")[2]
    messages = f"{load.pods:,} pods bound in {duration_text(load.seconds)}: {short(load.rate)} pods/s{where}"
    for own in runs[load.run].cases:
        if own.nodeid == load.case and own.verdict != "passed":
            messages += f"; {own.verdict}: {sentence(own.reason)}"
    lines = (svg.Line("bars", "bound"), *((svg.Line("c1", "created"),) if any(load.created) else ()))
    return Plot(f"Throughput{f', {case}' if case else ''}", svg.throughput(load), lines, messages)


def _series_name(series: Series, runs: Sequence[Run]) -> str:
    parts = [series.what or phrase(series.name), runs[series.run].info.id if len(runs) > 1 else ""]
    return ", ".join(part for part in (*parts, "" if series.valid else "not valid") if part)


# -- fleet, environment, cases ----------------------------------------------------------------------------------------


def _fleets(collection: Collection) -> Values | None:
    fleets = [(run, fleet(run.fleet)) for run in collection.runs if run.fleet]
    return {"fleets": fleets} if fleets else None


def _environment(collection: Collection) -> Values:
    budget = EvidenceBudget()
    return {
        "fingerprints": [fingerprint(run) for run in collection.runs],
        "attached": [
            [show_evidence(run.folder, Evidence(name, file), budget) for name, file in run.info.attached.items()]
            for run in collection.runs
        ],
    }


def _cases(collection: Collection) -> Values:
    return {"suites": _suites(collection.cases)}


def _suites(cases: Iterable[CaseOfRun]) -> list[tuple[str, list[CaseOfRun]]]:
    by_suite: dict[str, list[CaseOfRun]] = {}
    for entry in cases:
        by_suite.setdefault(entry.case.suite or "no suite", []).append(entry)
    return sorted(by_suite.items())


SECTIONS: tuple[Section, ...] = (
    Section("findings", "Findings", TEMPLATES / "findings.html", _all_findings),
    Section("requirements", "Requirements", TEMPLATES / "requirements.html", _requirements),
    Section("performance", "Performance", TEMPLATES / "performance.html", _performance),
    Section("fleet", "Fleet", TEMPLATES / "fleet.html", _fleets),
    Section("environment", "Environment", TEMPLATES / "environment.html", _environment),
    Section("cases", "All cases", TEMPLATES / "cases.html", _cases),
)
