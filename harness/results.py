"""The files of a run: format, writer and reader.

    run.json                one object: `RunInfo`; replaced atomically
    cases*.jsonl            one line for each test: `Case`
    measurements*.jsonl     one line for each measurement: `Measurement`
    timeline*.jsonl         one line for each event of a pod: `Event`
    fleet.json              the nodes and the allocation of their devices at the end: a list of `NodeState`
    evidence/…              evidence files of cases
    allure-results/         Allure's own

JSON Lines are appended and never rewritten. Each worker of pytest-xdist writes its own files (`cases-gw0.jsonl`), so
there is no locking. A crash can truncate only the last line of a file: the reader leaves it out, with a note.
Timestamps are RFC 3339 with an offset, durations are seconds. docs/results.md describes the fields with examples.
"""

import hashlib
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import msgspec

from seatrial.harness.errors import ResultsError
from seatrial.scheduler.api.clock import Clock, WallClock
from seatrial.scheduler.api.private_files import take_lock

FORMAT = "seatrial-run/1"
RUN, FLEET, EVIDENCE, ALLURE = "run.json", "fleet.json", "evidence", "allure-results"
LOCK = ".run.lock"  # locked while a run writes to the folder
PYTEST_TEMP = "pytest-tmp"  # folders of tests that failed
CASES, MEASUREMENTS, TIMELINE = "cases", "measurements", "timeline"

Verdict = Literal["passed", "failed", "broken", "skipped"]
RunVerdict = Literal["passed", "failed", "incomplete"]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
FeatureId = Annotated[str, msgspec.Meta(min_length=1)]
Percent = Annotated[float, msgspec.Meta(ge=0)]

_LINES = re.compile(rf"({CASES}|{MEASUREMENTS}|{TIMELINE})(-[\w.]+)?\.jsonl")
_LOG = re.compile(r"subject(-[\w.]+)?\.log")  # of the scheduler under test, one for each worker
_WORKER = re.compile(r"[\w.]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9.=_-]+")
_PYTHON_TYPES = {"`str`": "a text", "`object`": "an object", "`array`": "a list", "`int`": "a whole number"}


class Subject(msgspec.Struct, frozen=True):
    """The scheduler under test."""

    name: str
    version: str = ""


class RunInfo(msgspec.Struct, frozen=True):
    """What was run, on what, and whether it has finished."""

    id: str
    started: Moment
    command: tuple[str, ...]
    backend: str
    subject: Subject
    fleet: str = ""
    seed: int | None = None
    versions: dict[str, str] = {}
    host: dict[str, str] = {}
    suites: tuple[str, ...] = ()
    finished: Moment | None = None
    interrupted: bool = False
    keyword: str = ""  # expression of -k
    hardware: str = ""  # simulated, this machine's, or stand-in NAME
    provenance: dict[str, str] = {}  # what exactly was run: commit, SHA-256 of the subject and of the feature list
    attached: dict[str, str] = {}  # name → file in the folder, as the scheduler's configuration
    format: str = FORMAT


class Evidence(msgspec.Struct, frozen=True):
    """A file that belongs to a case; `file` is relative to the run's folder, with `/` on every system."""

    name: str
    file: str


INVALID_LOAD = "the load is not valid"
"""How the reason of a case begins that was skipped because it did not get the load that its promise requires."""


class Case(msgspec.Struct, frozen=True):
    """One test. `failed` is a verdict on the subject; `broken` is the harness's fault; `skipped` verified nothing."""

    nodeid: str
    verdict: Verdict
    title: str = ""
    description: str = ""
    case: str = ""
    features: tuple[FeatureId, ...] = ()
    suite: str = ""
    severity: str = "normal"
    reason: str = ""
    started: Moment | None = None
    seconds: float = 0.0
    evidence: tuple[Evidence, ...] = ()
    grades: tuple[str, ...] = ()  # grades of evidence that differ from the run's (reports/grades.py)
    source: str = ""  # what the expectation is judged by: a release, a document, or "ours"


class Measurement(msgspec.Struct, frozen=True, omit_defaults=True):
    """One figure (`value`) or samples (`values`); `labels` distinguish measurements with the same name.

    `valid` is false if it did not measure what it should; it is no part of what distinguishes measurements.
    """

    name: str
    unit: str
    at: Moment
    value: float | None = None
    values: tuple[float, ...] = ()
    labels: dict[str, str] = {}
    valid: bool = True

    def samples(self) -> tuple[float, ...]:
        """The samples; the figure alone where there are none."""
        return self.values if self.value is None else (self.value, *self.values)


class Share(msgspec.Struct, frozen=True):
    """A part of one device: percent of its core and of its memory."""

    minor: int
    core: float = 0.0
    memory_ratio: float = 0.0


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of a pod: created, bound, started, preempted, deleted, or a name that a suite defines."""

    at: Moment
    event: str
    pod: str
    node: str = ""
    devices: dict[str, tuple[Share, ...]] = {}
    case: str = ""


class DeviceState(msgspec.Struct, frozen=True):
    """A device and its allocated parts in percent; `health` is "ok" or the fault."""

    type: str
    minor: int
    model: str = ""
    numa: int | None = None
    health: str = "ok"
    used_core_percent: Percent = 0.0
    used_memory_percent: Percent = 0.0
    pods: tuple[str, ...] = ()


class NodeState(msgspec.Struct, frozen=True):
    """A node with its devices."""

    name: str
    labels: dict[str, str] = {}
    devices: tuple[DeviceState, ...] = ()


class Run(msgspec.Struct, frozen=True):
    """A run as read from disk. `notes` state what the reader left out."""

    folder: Path
    info: RunInfo
    cases: tuple[Case, ...]
    measurements: tuple[Measurement, ...]
    timeline: tuple[Event, ...]
    fleet: tuple[NodeState, ...]
    notes: tuple[str, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """The number of cases with this verdict."""
        return sum(case.verdict == verdict for case in self.cases)

    @property
    def verdict(self) -> RunVerdict:
        """Failed if a case failed or broke; incomplete if the run was interrupted or no case passed; else passed."""
        if any(case.verdict in ("failed", "broken") for case in self.cases):
            return "failed"
        whole = self.info.finished is not None and not self.info.interrupted
        return "passed" if whole and self.count("passed") else "incomplete"


def moment(seconds: float) -> datetime:
    """Convert seconds since 1970 (`Clock.now()`) to a timestamp of results."""
    return datetime.fromtimestamp(seconds, UTC)


class ResultsWriter:
    """Writes one run's folder. Each further process that writes has a unique `worker` name.

    Each line is one write to a file opened for appending, so it is kept even if the process is killed afterwards.
    """

    def __init__(
        self, folder: Path | str, *, worker: str = "", fresh: bool = False, clock: Clock | None = None
    ) -> None:
        """Open `folder`; create it if needed. `fresh` removes the files of an earlier run (not for workers).

        A fresh writer locks the folder until it is closed or its process ends.

        Raises:
            ResultsError: the folder cannot be written, contains files that are not of a run, or is that of a run which
                has not ended.
        """
        if not _WORKER.fullmatch(worker):
            raise ResultsError(f"worker {worker!r}: expected letters, digits, dots and underscores")
        self.folder = Path(folder)
        self._clock = clock or WallClock()
        self._suffix = f"-{worker}" if worker else ""
        self._files: dict[str, int] = {}
        self._evidence: dict[str, list[Evidence]] = {}
        self._info: RunInfo | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _refuse_strangers(self.folder)
            if fresh:
                self._files[LOCK] = _lock(self.folder)
                _clear(self.folder)
            self._file(CASES)  # marks the folder as a run for later writers
        except OSError as error:
            raise ResultsError(f"results folder {self.folder}: cannot be written: {error.strerror}") from error

    def run(self, info: RunInfo) -> None:
        """Write run.json; may be called again with more information."""
        self._info = info
        _replace(self.folder / RUN, info)

    def finish(self, *, interrupted: bool = False) -> None:
        """Set the end time in run.json to now.

        Raises:
            RuntimeError: `run` was not called before.
        """
        if self._info is None:
            raise RuntimeError("finish() before run(): there is no run to finish")
        ended = moment(self._clock.now())
        self.run(msgspec.structs.replace(self._info, finished=ended, interrupted=interrupted))

    def case(self, case: Case) -> None:
        """Add the result of a test, with the evidence attached to its nodeid so far."""
        attached = self._evidence.pop(case.nodeid, [])
        self._append(CASES, msgspec.structs.replace(case, evidence=(*case.evidence, *attached)))

    def measure(
        self,
        name: str,
        unit: str,
        value: float | None = None,
        *,
        values: Iterable[float] = (),
        labels: Mapping[str, str] | None = None,
        valid: bool = True,
        at: float | None = None,
    ) -> None:
        """Add a measurement, taken `at` (seconds since 1970; default: now).

        `valid` is false for each figure of a load that was not valid: no report judges it.

        Raises:
            ValueError: there is no figure, or a figure is not finite.
        """
        samples = tuple(float(sample) for sample in values)
        figures = samples if value is None else (value, *samples)
        if not figures or not all(map(math.isfinite, figures)):
            raise ValueError(f"measurement {name!r}: expected finite figures, found {figures[:5] or 'none'}")
        taken = moment(self._clock.now() if at is None else at)
        self._append(MEASUREMENTS, Measurement(name, unit, taken, value, samples, dict(labels or {}), valid))

    def event(
        self,
        event: str,
        pod: str,
        *,
        node: str = "",
        devices: Mapping[str, Sequence[Share]] | None = None,
        case: str = "",
        at: float | None = None,
    ) -> None:
        """Add an event to the timeline; `at` is in seconds since 1970 (default: now)."""
        happened = moment(self._clock.now() if at is None else at)
        shares = {kind: tuple(parts) for kind, parts in (devices or {}).items()}
        self._append(TIMELINE, Event(happened, event, pod, node, shares, case))

    def fleet(self, nodes: Iterable[NodeState]) -> None:
        """Write the state of the nodes; a later call replaces it."""
        _replace(self.folder / FLEET, list(nodes))

    def attach(self, nodeid: str, name: str, content: str | bytes, suffix: str = ".txt") -> str:
        """Store evidence for the next result of `nodeid`; returns the path relative to the folder."""
        digest = hashlib.sha256(nodeid.encode()).hexdigest()[:8]
        home = self.folder / EVIDENCE / f"{_slug(nodeid)[-60:]}-{digest}"
        home.mkdir(parents=True, exist_ok=True)
        data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
        path = _write_new(home, _slug(name)[:60] or "evidence", _UNSAFE.sub("", suffix), data)
        relative = path.relative_to(self.folder).as_posix()
        self._evidence.setdefault(nodeid, []).append(Evidence(name, relative))
        return relative

    def close(self) -> None:
        """Close the files. Without it no data is lost."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, kind: str, line: msgspec.Struct) -> None:
        os.write(self._file(kind), msgspec.json.encode(line) + b"\n")

    def _file(self, kind: str) -> int:
        descriptor = self._files.get(kind)
        if descriptor is None:
            path = self.folder / f"{kind}{self._suffix}.jsonl"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            _cut_torn_tail(path, descriptor)
            self._files[kind] = descriptor
        return descriptor


def read_run(folder: Path | str) -> Run:
    """Read a run's folder.

    Raises:
        ResultsError: the folder is not a run, or a file does not have the format.
    """
    home = Path(folder)
    info = read_info(home)
    notes: list[str] = []
    cases = _last_of_each(_lines(home, CASES, Case, notes), notes)
    measurements = map(_with_validity, _lines(home, MEASUREMENTS, Measurement, notes))
    timeline = sorted(_lines(home, TIMELINE, Event, notes), key=lambda event: event.at)
    fleet: tuple[NodeState, ...] = ()
    if (home / FLEET).is_file():
        fleet = _decode((home / FLEET).read_bytes(), tuple[NodeState, ...], str(home / FLEET))
    return Run(home, info, tuple(cases), tuple(measurements), tuple(timeline), fleet, tuple(notes))


def read_info(home: Path) -> RunInfo:
    """What was run, or is being run.

    Raises:
        ResultsError: the folder is not a run, or its file does not have the format.
    """
    if not (home / RUN).is_file():
        raise ResultsError(f"{home}: expected a run's folder with {RUN} in it, found {_kind_of(home)}")
    info = _decode((home / RUN).read_bytes(), RunInfo, str(home / RUN))
    if info.format != FORMAT:
        raise ResultsError(f"{home / RUN}: expected format {FORMAT!r}, found {info.format!r}")
    return info


def read_cases(folder: Path) -> list[Case]:
    """The last result of each case so far, of a run that may still write.

    Raises:
        ResultsError: a file does not have the format.
    """
    return _last_of_each(_lines(folder, CASES, Case, []), [])


def _with_validity(measurement: Measurement) -> Measurement:
    """The measurement; `valid` is a label in files written up to version 0.1.0."""
    if "valid" not in measurement.labels:
        return measurement
    labels = {name: text for name, text in measurement.labels.items() if name != "valid"}
    return msgspec.structs.replace(
        measurement, labels=labels, valid=measurement.valid and measurement.labels["valid"] == "yes"
    )


def is_run(folder: Path) -> bool:
    """Whether the folder is a run."""
    return (folder / RUN).is_file()


_Line = TypeVar("_Line", bound=msgspec.Struct)
_Any = TypeVar("_Any")


def _lines(home: Path, kind: str, of: type[_Line], notes: list[str]) -> list[_Line]:
    decoder, lines = msgspec.json.Decoder(of), list[_Line]()
    for path in sorted(home.glob(f"{kind}*.jsonl")):
        *whole, torn = path.read_bytes().split(b"\n")
        for number, line in enumerate(whole, 1):
            if not line.strip():
                continue
            try:
                lines.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ResultsError(f"{path} line {number}: {_expectation(error)}, found {_excerpt(line)}") from error
        if torn:
            notes.append(f"{path.name} line {len(whole) + 1}: left out, it ends in the middle (the run was cut off)")
    return lines


def _last_of_each(cases: list[Case], notes: list[str]) -> list[Case]:
    """The last result of each case: by start time, then by position in the files."""
    by_start = sorted(cases, key=lambda case: case.started.timestamp() if case.started else 0.0)
    last = {case.nodeid: case for case in by_start}
    again = len(cases) - len(last)
    if again:
        notes.append(f"{again} earlier results of cases that were run again are left out; the last one counts")
    return list(last.values())


def _decode(data: bytes, of: type[_Any], where: str) -> _Any:
    try:
        return msgspec.json.decode(data, type=of)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultsError(f"{where}: {_expectation(error)}, found {_excerpt(data)}") from error


def _expectation(error: Exception) -> str:
    text = str(error)
    for word, plain in _PYTHON_TYPES.items():
        text = text.replace(word, plain)
    if text.startswith("Expected"):
        return text[0].lower() + text[1:]
    return f"expected JSON as in docs/results.md ({text})"


def _excerpt(data: bytes) -> str:
    text = data.decode(errors="replace").strip()
    return repr(text if len(text) <= 80 else text[:77] + "…")


def _kind_of(folder: Path) -> str:
    if not folder.exists():
        return "nothing"
    if not folder.is_dir():
        return "a file"
    names = sorted(path.name for path in folder.iterdir())
    return f"a folder with {', '.join(names[:4])}{', …' if len(names) > 4 else ''}" if names else "an empty folder"


def _refuse_strangers(folder: Path) -> None:
    """Refuse a folder that contains other files."""
    names = [path.name for path in folder.iterdir()]
    if RUN in names:
        try:
            entry = msgspec.json.decode((folder / RUN).read_bytes(), type=dict[str, Any]).get("format")
        except (msgspec.DecodeError, UnicodeDecodeError):
            entry = None
        if entry == FORMAT:
            return
    elif all(
        _LINES.fullmatch(name) or name in (FLEET, EVIDENCE, ALLURE, PYTEST_TEMP, LOCK) or name.startswith(f".{RUN}.")
        for name in names
    ):
        return  # empty, or a run that has just started
    raise ResultsError(
        f"results folder {folder}: expected a new or empty folder, or one that an earlier run left; "
        f"found {_kind_of(folder)}; name another folder"
    )


def _lock(folder: Path) -> int:
    """Lock the folder for one run; returns the descriptor that holds the lock. The kernel ends it with the process.

    Raises:
        ResultsError: another run holds it.
    """
    path = folder / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if not take_lock(descriptor):
        holder = path.read_text(errors="replace").strip() or "another process"
        os.close(descriptor)
        raise ResultsError(
            f"results folder {folder}: a run that has not ended writes to it ({holder}); name another folder, or wait"
        )
    os.truncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()}\n".encode())
    return descriptor


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name in (EVIDENCE, ALLURE, PYTEST_TEMP) and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name in (RUN, FLEET) or _LINES.fullmatch(path.name) or _LOG.fullmatch(path.name):
            path.unlink()


def _replace(path: Path, content: object) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    draft.replace(path)


def _cut_torn_tail(path: Path, descriptor: int) -> None:
    """Remove an incomplete last line, so that the next line starts on its own."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.ftruncate(descriptor, path.read_bytes().rfind(b"\n") + 1)


def _write_new(home: Path, stem: str, suffix: str, data: bytes) -> Path:
    number = 1
    while True:
        path = home / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            number += 1
        else:
            return path


def _slug(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-.")
