"""Merge the results of runs: which requirement is verified, by which cases, on which backends.

Features come from `suites/features.yaml`: a list of `{id, title, release: [v0.7, …], group}`. An ID that only a case
names is kept without a title, so that every case is counted.
"""

import hashlib
import shlex
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from seatrial.harness.errors import ResultsError, UsageError
from seatrial.harness.results import Case, Run, RunVerdict, is_run, read_run

State = Literal["verified", "failed", "not verified"]

FEATURES = Path(__file__).parent.parent / "suites" / "features.yaml"
OTHER_GROUP = "Other"


class Feature(msgspec.Struct, frozen=True):
    """A row of the feature list."""

    id: str
    title: str = ""
    release: tuple[str, ...] = ()
    group: str = OTHER_GROUP


@dataclass(frozen=True, slots=True)
class CaseOfRun:
    """A case, and the index of its run."""

    run: int
    case: Case


@dataclass(frozen=True, slots=True)
class Requirement:
    """A feature with all cases that name it."""

    feature: Feature
    cases: tuple[CaseOfRun, ...]

    @property
    def state(self) -> State:
        return state_of(entry.case for entry in self.cases)

    def state_in(self, run: int) -> State | None:
        """The state by the cases of one run; None if no case of that run names the feature."""
        cases = [entry.case for entry in self.cases if entry.run == run]
        return state_of(cases) if cases else None


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


def state_of(cases: Iterable[Case]) -> State:
    """The state of a requirement with these cases.

    Failed if a case failed; verified if a case passed and none broke; else not verified. Skipped cases do not count.
    """
    verdicts = {case.verdict for case in cases}
    if "failed" in verdicts:
        return "failed"
    return "verified" if "passed" in verdicts and "broken" not in verdicts else "not verified"


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
    """Read the feature list; the order is kept.

    Raises:
        UsageError: there is no such file, or it is not a list of {id, title, release, group}.
    """
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()), list[Feature])
    except OSError as error:
        raise UsageError(f"feature list {path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"feature list {path}: expected a list of {{id, title, release, group}}: {error}") from error


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
    found = sorted(path for path in folder.iterdir() if is_run(path)) if folder.is_dir() else []
    if not found:
        read_run(folder)  # raises an error that names what was found
        raise ResultsError(f"{folder}: expected a run's folder, or a folder of them")
    return found


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
    by_feature: dict[str, list[CaseOfRun]] = defaultdict(list)
    for number, run in enumerate(runs):
        for case in run.cases:
            for feature in dict.fromkeys(case.features):
                by_feature[feature].append(CaseOfRun(number, case))
    listed = {feature.id for feature in known}
    extra = [Feature(name) for name in sorted(by_feature, key=_natural) if name not in listed]
    return [Requirement(feature, tuple(by_feature.get(feature.id, ()))) for feature in (*known, *extra)]


def _natural(name: str) -> tuple[str, int, str]:
    """A sort key that puts DEV-2 before DEV-10."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number), "") if number.isdecimal() else (name, 0, "")
