"""How names, moments and durations are written for people."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from markupsafe import Markup

from seatrial.harness.results import Case
from seatrial.reports.run_figures import short

MAX_LISTED = 8
ACRONYMS = frozenset({"api", "cpu", "gpu", "hami", "npu", "numa", "rdma", "http"})


def name_of(case: Case) -> str:
    """The text of a link to a case: the case ID, or the test's name where it has none."""
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


def counted(number: int, noun: str) -> str:
    """A number and its noun: 1 case, 1,090 cases."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Names as a list; beyond `MAX_LISTED` only their number."""
    rest = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def phrase(name: str) -> str:
    """A measurement's name in words: `gpu_allocated` becomes "GPU allocated"."""
    text = " ".join(word.upper() if word in ACRONYMS else word for word in name.split("_") if word)
    return text[:1].upper() + text[1:]


def own_text(*files: Path) -> Markup:
    """Our own style sheets or scripts, one after the other, as markup. Never for texts from runs."""
    return Markup("".join(file.read_text(encoding="utf-8") for file in files))  # noqa: S704  # our own files
