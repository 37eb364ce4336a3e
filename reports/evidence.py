"""Evidence files as the sign-off page shows them: text, a picture as a data URI, or a remark why it is left out."""

import base64
from dataclasses import dataclass
from pathlib import Path

from seatrial.harness.results import Evidence

TEXTS = frozenset({".txt", ".log", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".md", ".xml", ".py", ".prom"})
PICTURES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml"}
MAX_TEXT = 64 * 1024  # bytes of one text file on the page
MAX_PICTURE = 512 * 1024
MAX_EVIDENCE = 8 * 1024 * 1024  # bytes of all files together; a larger page opens slowly in browsers


@dataclass(frozen=True, slots=True)
class ShownEvidence:
    """One evidence file: `text`, or `picture` (a data URI), or a `remark` why neither is on the page."""

    name: str
    file: str
    text: str = ""
    picture: str = ""
    remark: str = ""


class EvidenceBudget:
    """The number of bytes of evidence that the page can still take."""

    def __init__(self, limit: int = MAX_EVIDENCE) -> None:
        self.left = limit

    def take(self, size: int) -> bool:
        """Reserve `size` bytes; False if they exceed the rest."""
        if size > self.left:
            return False
        self.left -= size
        return True


def show_evidence(folder: Path, evidence: Evidence, budget: EvidenceBudget | None = None) -> ShownEvidence:
    """Read one evidence file of a run. A path that leads out of the run's folder is not followed."""
    budget = budget or EvidenceBudget()
    path = folder / evidence.file
    suffix = path.suffix.lower()
    here = ShownEvidence(evidence.name, evidence.file)
    if not path.resolve().is_relative_to(folder.resolve()):
        return _with(here, remark="not shown: the path leads out of the run's folder")
    if not path.is_file():
        return _with(here, remark="not there any more")
    size = path.stat().st_size
    if suffix in PICTURES and size <= MAX_PICTURE and budget.take(size):
        data = base64.b64encode(path.read_bytes()).decode()
        return _with(here, picture=f"data:{PICTURES[suffix]};base64,{data}")
    if suffix in TEXTS and budget.take(min(size, MAX_TEXT)):
        with path.open("rb") as file:
            text = file.read(MAX_TEXT).decode(errors="replace")
        cut = f"the first {MAX_TEXT // 1024} KiB of {size // 1024:,} KiB" if size > MAX_TEXT else ""
        return _with(here, text=text, remark=cut)
    return _with(here, remark=f"{size:,} bytes, kept beside this page")


def _with(shown: ShownEvidence, **what: str) -> ShownEvidence:
    return ShownEvidence(shown.name, shown.file, **what)
