"""Writes the list of known differences into docs/api-conformance.md: `python -m …differential.page`."""

import sys
from pathlib import Path

from seatrial.harness.apiserver.differential.comparison import calls, known_differences
from seatrial.harness.apiserver.differential.recorded import NAMESPACE

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api-conformance.md"
_BEGIN, _END = "<!-- differences: written by the tool -->\n", "<!-- end of differences -->\n"


def written(page: str) -> str:
    """The page with the present list.

    Raises:
        ValueError: the marks around the list are missing.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name}: expected the marks {_BEGIN.strip()!r} and {_END.strip()!r}")
    reasons = "".join(f"- {entry.reason}\n" for entry in known_differences())
    count = sum(1 for _ in calls(NAMESPACE))
    return f"{before}{begin}{count:,} requests are compared. The differences that are meant:\n\n{reasons}{end}{after}"


def main() -> int:
    """Write the list into the page."""
    PAGE.write_text(written(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
