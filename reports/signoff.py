"""The sign-off page: one HTML file without scripts or links outward, made from run folders alone.

The same files give the same page, byte for byte: nothing in it depends on when or where it is made. It carries a
fingerprint of each run, so that a signed copy can be held against what it was made from.
"""

import base64
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from harness.errors import ResultsError
from harness.results import Case, Evidence, Run
from reports import svg
from reports.collect import CaseOfRun, Collection, Requirement, fingerprint
from reports.figures import Load, Series, loads_of, series_of, short
from reports.fleet import describe, fleet, occupancy, step_of

TEMPLATES = Path(__file__).parent / "templates"
TEXTS = frozenset({".txt", ".log", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".md", ".html", ".xml", ".py", ".prom"})
PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml"}
MOST_TEXT = 64 * 1024  # bytes of one piece of evidence that go into the page
MOST_PICTURE = 512 * 1024
MOST_EVIDENCE = 8 * 1024 * 1024  # of all together, so that the page still opens
OPEN_FINDINGS = 12  # so many stand open; the rest a reader opens
ACRONYMS = frozenset({"api", "cpu", "gpu", "hami", "npu", "numa", "rdma", "http"})
VERDICTS = {"passed": "PASS", "failed": "FAIL", "incomplete": "INCOMPLETE"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A piece of evidence as the page has it: text, a picture as a data URI, or a remark on why it is not here."""

    name: str
    file: str
    text: str = ""
    picture: str = ""
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that did not pass."""

    anchor: str
    case: Case
    run: Run
    evidence: tuple[Shown, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture with its legend and what it says."""

    title: str
    picture: Markup
    legend: tuple[svg.Line, ...]
    caption: str


def signoff(collection: Collection, *, title: str = "") -> str:
    """The page as HTML.

    Raises:
        ResultsError: there is no run to report on.
    """
    if not collection.runs:
        raise ResultsError("sign-off: expected at least one run, found none")
    return _environment().get_template("signoff.html").render(_content(collection, title))


def write_signoff(collection: Collection, file: Path, *, title: str = "") -> Path:
    """Write the page to `file` and give the file.

    Raises:
        ResultsError: there is no run to report on, or the file cannot be written.
    """
    page = signoff(collection, title=title)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"sign-off page {file}: cannot be written: {error.strerror}") from error
    return file


def headline(collection: Collection) -> str:
    """The verdict in a sentence."""
    passed, against = collection.count("passed"), collection.count("failed", "broken")
    skipped, total = collection.count("skipped"), len(collection.cases)
    if collection.verdict == "incomplete" and not against:
        return f"Not all that was asked for was run: {passed} of {total} cases passed, none failed. See the remarks."
    if against:
        return f"{against} of {total} cases failed or broke; {passed} passed, {skipped} did not run."
    said = f"All {passed} cases that ran passed; {skipped} did not run." if skipped else f"All {passed} cases passed."
    unproven = collection.in_state("not verified")
    return f"{said} {unproven} of {len(collection.requirements)} requirements are not verified." if unproven else said


def name_of(case: Case) -> str:
    """What a link to a case says: its number, or else the test's own name."""
    return case.case or case.nodeid.rpartition("::")[2]


def moment_text(moment: datetime | None) -> str:
    """A moment in UTC, to the second."""
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC") if moment else "not known"


def duration_text(seconds: float) -> str:
    """A duration: 0.41 s, 12.3 s, 4 min 05 s, 2 h 13 min."""
    if seconds < 60:
        return f"{short(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"moment": moment_text, "duration": duration_text, "short": short, "case_name": name_of}
    made.filters["phrase"] = phrase
    made.filters["as_typed"] = shlex.join
    made.globals |= {"occupancy": occupancy, "step_of": step_of, "describe": describe}
    made.globals["style"] = Markup((TEMPLATES / "signoff.css").read_text(encoding="utf-8"))  # noqa: S704  # our own file
    return made


def _content(collection: Collection, title: str) -> dict[str, Any]:
    runs = collection.runs
    anchors = {id(entry): f"case-{entry.run}-{number}" for number, entry in enumerate(collection.cases)}
    by_case = {(entry.run, entry.case.nodeid): anchors[id(entry)] for entry in collection.cases}
    budget = _Budget(MOST_EVIDENCE)
    subjects = list(dict.fromkeys(f"{run.info.subject.name} {run.info.subject.version}".strip() for run in runs))
    ends = [run.info.finished for run in runs if run.info.finished]
    series = series_of(runs)
    return {
        "title": title or " and ".join(subjects),
        "collection": collection,
        "runs": runs,
        "many": len(runs) > 1,
        "stamp": VERDICTS[collection.verdict],
        "headline": headline(collection),
        "finished": max(ends, default=None),
        "counts": {verdict: collection.count(verdict) for verdict in ("passed", "failed", "broken", "skipped")},
        "states": {state: collection.in_state(state) for state in ("verified", "failed", "not verified")},
        "groups": _groups(collection.requirements),
        "columns": range(len(runs)),
        "links": lambda requirement: _links(requirement, by_case),
        "failed": _findings(collection, ("failed",), by_case, budget),
        "broken": _findings(collection, ("broken",), by_case, budget),
        "skipped": _skips(collection, by_case),
        "suites": _suites(collection.cases),
        "anchor": lambda entry: by_case[entry.run, entry.case.nodeid],
        "open_findings": OPEN_FINDINGS,
        "plots": [*_latency_plots(series, runs), *(_load_plot(load, runs) for load in loads_of(runs))],
        "series": series,
        "fleets": [(run, fleet(run.fleet)) for run in runs if run.fleet],
        "fingerprints": [fingerprint(run) for run in runs],
    }


class _Budget:
    """How much evidence the page still takes."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


def _groups(requirements: Sequence[Requirement]) -> list[tuple[str, list[Requirement]]]:
    order = list(dict.fromkeys(requirement.feature.group for requirement in requirements))
    by_group = sorted(requirements, key=lambda requirement: order.index(requirement.feature.group))
    return [(group, list(members)) for group, members in groupby(by_group, key=lambda one: one.feature.group)]


_WORST_FIRST = ("failed", "broken", "passed", "skipped")


def _links(requirement: Requirement, by_case: dict[tuple[int, str], str]) -> list[tuple[str, Case]]:
    """The cases of a requirement, those against it first."""
    ordered = sorted(requirement.cases, key=lambda entry: _WORST_FIRST.index(entry.case.verdict))
    return [(by_case[entry.run, entry.case.nodeid], entry.case) for entry in ordered]


_SEVERITIES = ("blocker", "critical", "normal", "minor", "trivial")


def _findings(
    collection: Collection, verdicts: Sequence[str], by_case: dict[tuple[int, str], str], budget: _Budget
) -> list[Finding]:
    """The cases with such a verdict, the gravest first, with their evidence."""
    found = []
    for entry in sorted((entry for entry in collection.cases if entry.case.verdict in verdicts), key=_gravity):
        run = collection.runs[entry.run]
        evidence = tuple(show(run.folder, piece, budget) for piece in entry.case.evidence)
        found.append(Finding(by_case[entry.run, entry.case.nodeid], entry.case, run, evidence))
    return found


def _gravity(entry: CaseOfRun) -> int:
    severity = entry.case.severity
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else _SEVERITIES.index("normal")


def _skips(collection: Collection, by_case: dict[tuple[int, str], str]) -> list[tuple[str, list[Finding]]]:
    """Skipped cases by their reason: fifty cases that all want a GPU are one line."""
    by_reason: dict[str, list[Finding]] = {}
    for entry in collection.cases:
        if entry.case.verdict == "skipped":
            finding = Finding(by_case[entry.run, entry.case.nodeid], entry.case, collection.runs[entry.run], ())
            by_reason.setdefault(entry.case.reason or "no reason given", []).append(finding)
    return sorted(by_reason.items(), key=lambda item: -len(item[1]))


def _suites(cases: Iterable[CaseOfRun]) -> list[tuple[str, list[CaseOfRun]]]:
    by_suite: dict[str, list[CaseOfRun]] = {}
    for entry in cases:
        by_suite.setdefault(entry.case.suite or "no suite", []).append(entry)
    return sorted(by_suite.items())


def show(folder: Path, evidence: Evidence, budget: _Budget | None = None) -> Shown:
    """A piece of evidence as the page has it. A path that leads out of the run's folder is not followed."""
    budget = budget or _Budget(MOST_EVIDENCE)
    path = folder / evidence.file
    suffix = path.suffix.lower()
    here = Shown(evidence.name, evidence.file)
    if not path.resolve().is_relative_to(folder.resolve()):
        return _with(here, remark="not shown: the path leads out of the run's folder")
    if not path.is_file():
        return _with(here, remark="not there any more")
    size = path.stat().st_size
    if suffix in PICTURES and size <= MOST_PICTURE and budget.take(size):
        data = base64.b64encode(path.read_bytes()).decode()
        return _with(here, picture=f"data:{PICTURES[suffix]};base64,{data}")
    if suffix in TEXTS and budget.take(min(size, MOST_TEXT)):
        with path.open("rb") as file:
            text = file.read(MOST_TEXT).decode(errors="replace")
        cut = f"the first {MOST_TEXT // 1024} KiB of {size // 1024:,} KiB" if size > MOST_TEXT else ""
        return _with(here, text=text, remark=cut)
    return _with(here, remark=f"{size:,} bytes, kept beside this page")


def _with(shown: Shown, **what: str) -> Shown:
    return Shown(shown.name, shown.file, **what)


def _latency_plots(series: Sequence[Series], runs: Sequence[Run]) -> list[Plot]:
    plots = []
    latencies = [one for one in series if one.is_latency]
    for (name, unit), group in groupby(latencies, key=lambda one: (one.name, one.unit)):
        own = list(group)
        for first in range(0, len(own), svg.COLOURS):  # as many curves as there are colours
            part = own[first : first + svg.COLOURS]
            names = [_series_name(one, runs) for one in part]
            said = "; ".join(
                f"{label}: p50 {short(one.at(50))}, p99 {short(one.at(99))} {unit}"
                for one, label in zip(part, names, strict=True)
                if len(part) <= 2  # more than two are read in the table
            )
            plots.append(Plot(phrase(name), svg.latency(part, names), tuple(svg.legend(names)), said))
    return plots


def _load_plot(load: Load, runs: Sequence[Run]) -> Plot:
    where = f" on {runs[load.run].info.id}" if len(runs) > 1 else ""
    case = load.case.rpartition("::")[2]
    said = f"{load.pods:,} pods bound in {duration_text(load.seconds)}: {short(load.rate)} pods/s{where}"
    lines = (svg.Line("bars", "bound"), *((svg.Line("c1", "created"),) if any(load.created) else ()))
    return Plot(f"Throughput{f', {case}' if case else ''}", svg.throughput(load), lines, said)


def _series_name(series: Series, runs: Sequence[Run]) -> str:
    parts = [series.what, runs[series.run].info.id if len(runs) > 1 else ""]
    return ", ".join(part for part in parts if part) or phrase(series.name)


def phrase(name: str) -> str:
    """A measurement's name for people: gpu_allocated is GPU allocated."""
    text = " ".join(word.upper() if word in ACRONYMS else word for word in name.split("_") if word)
    return text[:1].upper() + text[1:]
