"""Merge the results of runs: which requirement is verified, by which cases, at which grade of evidence.

Features come from `suites/features.yaml`: a list of `{id, title, release: [v0.7, …], group, promises}`. A row is
verified when each of its promises is; a promise is verified by a case that names it as ROW.promise and passed at the
grade of evidence that the promise needs. A row without promises is one promise itself. An ID that only a case names
is kept without a title, so that every case is counted.
"""

import hashlib
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from seatrial.harness.errors import ResultsError, UsageError
from seatrial.harness.results import INVALID_LOAD, Case, Run, RunVerdict, is_run, read_run
from seatrial.reports.grades import CLUSTERS, DEVICES, GRADES, Grade, grade_of, strength
from seatrial.scheduler.api.yaml_files import load_yaml

State = Literal["verified", "failed", "not verified"]

FEATURES = Path(__file__).parent.parent / "suites" / "features.yaml"
OTHER_GROUP = "Other"
NOT_BUILT = "not built"
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a row promises, and the grades of evidence that it needs."""

    text: str
    needs: tuple[str, ...] = ()


class Feature(msgspec.Struct, frozen=True):
    """A row of the feature list.

    `promises` are by their name in the row. `bare`: cases may name the row alone; that verifies none of its promises.
    `built`: false for a row that is listed although nothing of it is implemented, so that the page shows it.
    """

    id: str
    title: str = ""
    release: tuple[str, ...] = ()
    group: str = OTHER_GROUP
    bare: bool = False
    built: bool = True
    promises: dict[str, Promise] = {}


@dataclass(frozen=True, slots=True)
class CaseOfRun:
    """A case, and the index of its run."""

    run: int
    case: Case


@dataclass(frozen=True, slots=True)
class PromiseResult:
    """A promise with all cases that name it, and the grade of each case's evidence."""

    id: str
    promise: Promise
    cases: tuple[CaseOfRun, ...]
    grades: tuple[Grade, ...]
    built: bool = True  # of its row

    @property
    def state(self) -> State:
        """As `state_of`, where only cases with sufficient evidence verify; a failure counts at any grade."""
        state = state_of(entry.case for entry in self.cases)
        return "not verified" if state == "verified" and not self._sufficient() else state

    @property
    def passed_at(self) -> tuple[Grade, ...]:
        """The grades at which a case passed, from weak to strong."""
        pairs = zip(self.cases, self.grades, strict=True)
        return tuple(sorted({grade for entry, grade in pairs if entry.case.verdict == "passed"}, key=strength))

    @property
    def why(self) -> str:
        """Why the promise is not verified; empty if it is."""
        if self.state != "not verified":
            return "" if self.state == "verified" else "a case failed"
        if not self.built:
            return NOT_BUILT
        verdicts = {entry.case.verdict for entry in self.cases}
        if not verdicts:
            return "no case"
        if "broken" in verdicts:
            return "a case broke"
        lacking = without_load(entry.case for entry in self.cases)
        if lacking:
            return lacking[0].reason
        if "passed" in verdicts:
            seen = "; ".join(map(str, self.passed_at))
            return f"needs {' and '.join(self.promise.needs)}, passed at {seen}"
        return next((entry.case.reason for entry in self.cases if entry.case.reason), "skipped")

    def _sufficient(self) -> bool:
        return any(grade.suffices(self.promise.needs) for grade in self.passed_at)

    def of_run(self, run: int) -> "PromiseResult":
        """The same by the cases of one run."""
        own = [(entry, grade) for entry, grade in zip(self.cases, self.grades, strict=True) if entry.run == run]
        cases, grades = tuple(entry for entry, _ in own), tuple(grade for _, grade in own)
        return PromiseResult(self.id, self.promise, cases, grades, self.built)


@dataclass(frozen=True, slots=True)
class Requirement:
    """A feature with its promises, and all cases that name the row or one of its promises."""

    feature: Feature
    cases: tuple[CaseOfRun, ...]
    promises: tuple[PromiseResult, ...]

    @property
    def state(self) -> State:
        return _state_of_row(self.cases, self.promises)

    @property
    def kept(self) -> int:
        """The number of promises that are verified."""
        return sum(promise.state == "verified" for promise in self.promises)

    def state_in(self, run: int) -> State | None:
        """The state by the cases of one run; None if no case of that run names the feature."""
        cases = [entry for entry in self.cases if entry.run == run]
        return _state_of_row(cases, [promise.of_run(run) for promise in self.promises]) if cases else None

    def kept_in(self, run: int) -> int:
        """The number of promises that the cases of one run verify."""
        return sum(promise.of_run(run).state == "verified" for promise in self.promises)


@dataclass(frozen=True, slots=True)
class Collection:
    """Runs in the order they started, and the requirements in the order of the feature list."""

    runs: tuple[Run, ...]
    requirements: tuple[Requirement, ...]
    notes: tuple[str, ...] = ()
    cases: tuple[CaseOfRun, ...] = field(init=False)

    def __post_init__(self) -> None:
        every = tuple(CaseOfRun(number, case) for number, run in enumerate(self.runs) for case in run.cases)
        object.__setattr__(self, "cases", every)

    @property
    def verdict(self) -> RunVerdict:
        """Failed if a run failed; else incomplete if a run is incomplete; else passed."""
        verdicts = {run.verdict for run in self.runs}
        if "failed" in verdicts:
            return "failed"
        return "incomplete" if "incomplete" in verdicts else "passed"

    def count(self, *verdicts: str) -> int:
        """The number of cases with one of these verdicts."""
        return sum(entry.case.verdict in verdicts for entry in self.cases)

    def in_state(self, state: State) -> int:
        """The number of requirements in this state."""
        return sum(requirement.state == state for requirement in self.requirements)

    @property
    def not_built(self) -> int:
        """The number of requirements of which nothing is implemented."""
        return sum(not requirement.feature.built for requirement in self.requirements)

    @property
    def promises(self) -> tuple[PromiseResult, ...]:
        """The promises of all requirements."""
        return tuple(promise for requirement in self.requirements for promise in requirement.promises)

    @property
    def grade(self) -> Grade:
        """The strongest devices and the strongest cluster on which a case passed; the weakest if none passed."""
        seen = [
            grade_of(self.runs[entry.run].info, entry.case) for entry in self.cases if entry.case.verdict == "passed"
        ]
        devices = max((DEVICES.index(grade.devices) for grade in seen), default=0)
        return Grade(DEVICES[devices], CLUSTERS[max((CLUSTERS.index(grade.cluster) for grade in seen), default=0)])

    @property
    def coverage(self) -> str:
        """How much is verified, as in "61 of 92 requirements, simulated, 12 of 300 cases in virtual time, 1 of the
        loads not valid"."""
        devices = {"hardware": "on hardware", "stand-in": "on stand-ins"}.get(self.grade.devices, "simulated")
        passed = [entry for entry in self.cases if entry.case.verdict == "passed"]
        virtual = sum(grade_of(self.runs[entry.run].info, entry.case).cluster == CLUSTERS[0] for entry in passed)
        some = f", {virtual} of {len(passed)} cases in virtual time" if 0 < virtual < len(passed) else ""
        lacking = len(without_load(entry.case for entry in self.cases))
        loads = f", {lacking} of the loads not valid" if lacking else ""
        return f"{self.in_state('verified')} of {len(self.requirements)} requirements, {devices}{some}{loads}"


def state_of(cases: Iterable[Case]) -> State:
    """The state of a requirement with these cases.

    Failed if a case failed; verified if a case passed, none broke and none lacked its load; else not verified. Other
    skipped cases do not count.
    """
    cases = tuple(cases)
    verdicts = {case.verdict for case in cases}
    if "failed" in verdicts:
        return "failed"
    kept = "passed" in verdicts and "broken" not in verdicts and not without_load(cases)
    return "verified" if kept else "not verified"


def without_load(cases: Iterable[Case]) -> list[Case]:
    """The cases that got no valid load in any run: speed was not judged there."""
    cases = tuple(cases)
    passed = {case.nodeid for case in cases if case.verdict == "passed"}
    return [case for case in cases if case.reason.startswith(INVALID_LOAD) and case.nodeid not in passed]


def collect(folders: Sequence[Path], *, features: Path | None = None) -> Collection:
    """Read runs and match them with the feature list; a folder may be a run or hold runs.

    Raises:
        ResultsError: a folder is no run and holds none, or a run is damaged.
        UsageError: the given feature list cannot be read.
    """
    runs = sorted((read_run(home) for folder in folders for home in _runs_in(folder)), key=lambda run: run.info.started)
    known = read_features(features or FEATURES) if features or FEATURES.is_file() else []
    notes = [f"{run.info.id}: {note}" for run in runs for note in run.notes]
    notes += [f"{run.info.id}: {why}" for run in runs if (why := _why_incomplete(run))]
    notes += [f"{run.info.id}: {why}" for run in runs if (why := _why_partial(run))]
    notes += [f"{run.info.id}: {why}" for run in runs if (why := _why_no_hardware(run))]
    subjects = sorted({f"{run.info.subject.name} {run.info.subject.version}".strip() for run in runs})
    if len(subjects) > 1:
        notes.append(f"the runs have different subjects ({', '.join(subjects)}); the verdict covers all of them")
    return Collection(tuple(runs), tuple(_requirements(runs, known)), tuple(notes))


def read_features(path: Path) -> list[Feature]:
    """Read the feature list; the order is kept. A promise is a text, or `{text, needs: [hardware]}`.

    Raises:
        UsageError: there is no such file, or it is not a list of {id, title, release, group, promises}.
    """
    try:
        features = msgspec.convert(_with_whole_promises(load_yaml(path.read_bytes())), list[Feature])
        _check(features, path)
        return features
    except OSError as error:
        raise UsageError(f"feature list {path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"feature list {path}: expected a list of {{id, title, release, group}}: {error}") from error


def _with_whole_promises(rows: Any) -> Any:
    """The rows with each promise as a mapping."""
    if not isinstance(rows, list):
        return rows
    whole = []
    for row in rows:
        promises = row.get("promises") if isinstance(row, dict) else None
        if isinstance(promises, dict):
            full = {name: {"text": text} if isinstance(text, str) else text for name, text in promises.items()}
            row = {**row, "promises": full}  # noqa: PLW2901  # the row itself is not changed
        whole.append(row)
    return whole


def _check(rows: Sequence[Feature], path: Path) -> None:
    """
    Raises:
        UsageError: an ID is listed twice, or a promise has a name or a grade that cannot be used.
    """
    ids: set[str] = set()
    for row in rows:
        if row.id in ids:
            raise UsageError(f"feature list {path}: {row.id} is listed twice")
        ids.add(row.id)
        for name, promise in row.promises.items():
            if not _NAME.fullmatch(name):
                raise UsageError(f"feature list {path}: {row.id}: promise {name!r}: expected a name as in whole-cards")
            for need in promise.needs:
                if need not in GRADES:
                    raise UsageError(
                        f"feature list {path}: {row.id}.{name}: needs {need!r}: expected one of: {', '.join(GRADES)}"
                    )


def fingerprint(run: Run) -> str:
    """SHA-256 over the run's files, to compare a signed page with the files it was made from."""
    digest = hashlib.sha256()
    own = [*run.folder.glob("*.json"), *run.folder.glob("*.jsonl"), *(run.folder / "evidence").rglob("*")]
    for path in sorted(path for path in own if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{content}  {path.relative_to(run.folder).as_posix()}\n".encode())
    return digest.hexdigest()


def _runs_in(folder: Path) -> list[Path]:
    if is_run(folder):
        return [folder]
    runs = sorted(path for path in folder.iterdir() if is_run(path)) if folder.is_dir() else []
    if not runs:
        read_run(folder)  # raises an error that names what was found
        raise ResultsError(f"{folder}: expected a run's folder, or a folder of them")
    return runs


def _why_incomplete(run: Run) -> str:
    if run.info.interrupted:
        return "the run was interrupted; cases that did not run are not verified"
    if run.info.finished is None:
        return "the run has no end time; it crashed, or it is still running"
    return "" if run.verdict != "incomplete" else "no case passed; nothing is verified"


def _why_partial(run: Run) -> str:
    if not run.info.keyword:
        return ""
    return f"only cases that match -k {shlex.quote(run.info.keyword)} were run; failures of other cases would not show"


def _why_no_hardware(run: Run) -> str:
    """A note for runs on this machine with stand-ins; simulated nodes need no note."""
    if not run.info.hardware.startswith("stand-in"):
        return ""
    return f"the devices were a {run.info.hardware}; nothing here is verified on hardware"


def _requirements(runs: Sequence[Run], known: Sequence[Feature]) -> list[Requirement]:
    by_name: dict[str, list[CaseOfRun]] = defaultdict(list)
    for number, run in enumerate(runs):
        for case in run.cases:
            for feature in dict.fromkeys(case.features):
                by_name[feature].append(CaseOfRun(number, case))
    listed = {feature.id for feature in known}
    listed |= {f"{feature.id}.{name}" for feature in known for name in feature.promises}
    extra = [Feature(name) for name in sorted(by_name, key=_natural) if name not in listed]
    return [_requirement(feature, runs, by_name) for feature in (*known, *extra)]


def _requirement(feature: Feature, runs: Sequence[Run], by_name: Mapping[str, Sequence[CaseOfRun]]) -> Requirement:
    named = {f"{feature.id}.{name}": promise for name, promise in feature.promises.items()}
    results = []
    for name, promise in (named or {feature.id: Promise(feature.title)}).items():
        cases = tuple(by_name.get(name, ()))
        grades = tuple(grade_of(runs[entry.run].info, entry.case) for entry in cases)
        results.append(PromiseResult(name, promise, cases, grades, feature.built))
    entries = {
        (entry.run, entry.case.nodeid): entry for name in (feature.id, *named) for entry in by_name.get(name, ())
    }
    return Requirement(feature, tuple(entries.values()), tuple(results))


def _state_of_row(cases: Iterable[CaseOfRun], promises: Sequence[PromiseResult]) -> State:
    """Failed if a case failed; verified if each promise is and no case broke; else not verified."""
    verdicts = {entry.case.verdict for entry in cases}
    if "failed" in verdicts:
        return "failed"
    kept = all(promise.state == "verified" for promise in promises)
    return "verified" if kept and "broken" not in verdicts else "not verified"


def _natural(name: str) -> tuple[str, int, str]:
    """A sort key that puts DEV-2 before DEV-10."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number), "") if number.isdecimal() else (name, 0, "")
