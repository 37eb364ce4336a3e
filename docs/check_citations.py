"""Check that every rule of docs/spec that the repository cites exists, and that each citation names its page.

Run from anywhere: `python docs/check_citations.py [ROOT]`. Prints one line per wrong citation and exits with status 1
if there is one. An ID is defined where it starts a list item (`- **DEV-R22** …`), a table row
(`| QUOTA-M1 | …`) or a heading (`### FWK-E7 …`).
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ID = (
    r"(?:(?:DEV|FWK|NUMA|RSV)-[RE]\d+|(?:QUOTA|GANG|DRA|WAS)-[REMD]\d+|API-A\d+|HAMI-(?:AS|CB|GT|HC|NV|RC|RD)-\d+"
    r"|QOS-(?:[A-Z]{1,2}\d?-\d+|E\d+))[a-z]?"
)
CITATION = re.compile(rf"(?<![\w-]){ID}(?![\w])")
LEADING = re.compile(rf"^(?:\| *|#+ +|- +|(?:- +|\d+\. +)?\*\*)((?:{ID}[ ,/\u2013]*)+)")  # what a line defines
RANGE = re.compile(rf"({ID})\u2013({ID})")
BARE = re.compile(r"(?<![\w'-])R\d{1,2}[a-z]?(?![\w\"'(=])")  # "R22" without its page
SPEC = "docs/spec"
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".toml", ".c", ".h", ".cc", ".go"}


def defined(pages: Iterable[Path]) -> set[str]:
    """The IDs of all rules, examples, messages and defects on these pages."""
    matches: set[str] = set()
    for page in pages:
        for leading in filter(None, map(LEADING.match, page.read_text("utf-8").splitlines())):
            matches.update(re.findall(ID, leading[1]))
            for first, last in RANGE.findall(leading[1]):
                prefix, number = _split(first)
                matches.update(f"{prefix}{between}" for between in range(number, _split(last)[1]))
    return matches


def _split(name: str) -> tuple[str, int]:
    number = re.search(r"\d+", name.split("-", 1)[1])
    assert number is not None, name
    return name[: len(name) - len(number[0])], int(number[0])


def problems(root: Path, files: Iterable[str]) -> Iterator[str]:
    """`PATH:LINE: what is wrong` for each citation in these files (relative to `root`) that does not resolve."""
    known = defined(sorted((root / SPEC).glob("*.md")))
    for name in files:
        path = root / name
        if path.suffix not in SUFFIXES or not path.is_file():
            continue
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            for cited in CITATION.findall(line):
                if cited not in known and cited.rstrip("abcdefgh") not in known:  # DEV-R9a is a part of DEV-R9
                    yield f"{name}:{number}: {cited} is cited, but no page of {SPEC} defines it; correct the ID"
            if not name.startswith(SPEC) and path.suffix == ".py":
                for bare in BARE.findall(line):
                    yield f"{name}:{number}: {bare} does not name its page; write an ID of {SPEC}, such as DEV-{bare}"


def main(root: Path) -> int:
    """Check all files that git tracks below `root`; returns the exit status."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)  # noqa: S607
    wrong = list(problems(root, filter(None, listed.stdout.split("\0"))))
    for line in wrong:
        print(line)  # noqa: T201
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
