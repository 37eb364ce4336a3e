"""A run as the page shows it: its cases as they end, with their evidence. Read from the run's own files."""

from pathlib import Path

from seatrial.harness.results import CASES, Case, read_cases
from seatrial.reports.evidence import MAX_TEXT, PICTURES
from seatrial.reports.live.tables import Row, Tables

TABLE = "cases"
MAX_REASON = 600  # characters


class RunView:
    """The rows of a run's page."""

    def __init__(self, folder: Path) -> None:
        self.tables = Tables()
        self._folder = folder
        self._sizes: dict[Path, int] = {}
        self._evidence: set[str] = set()

    def refresh(self) -> None:
        """Make the rows of what has ended; files that have not grown are not read again."""
        sizes = {path: path.stat().st_size for path in self._folder.glob(f"{CASES}*.jsonl")}
        if sizes == self._sizes:
            return
        self._sizes = sizes
        for case in read_cases(self._folder):
            self.tables.set(TABLE, case.nodeid, _row(case))
            self._evidence.update(each.file for each in case.evidence)

    def evidence(self, path: str) -> tuple[str, bytes] | None:
        """Content type and beginning of an evidence file; None if no case has such a file. Never as markup."""
        if path not in self._evidence:
            return None
        file = self._folder / path
        picture = PICTURES.get(file.suffix)
        try:
            with file.open("rb") as source:
                return (picture, source.read()) if picture else ("text/plain; charset=utf-8", source.read(MAX_TEXT))
        except OSError:
            return None


def _row(case: Case) -> Row:
    return {
        "case": case.case,
        "title": case.title or case.nodeid,
        "suite": case.suite,
        "verdict": case.verdict,
        "reason": case.reason[:MAX_REASON],
        "seconds": case.seconds,
        "ended": case.started.timestamp() + case.seconds if case.started else 0.0,
        "evidence": [[each.name, each.file] for each in case.evidence],
    }
