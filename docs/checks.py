"""What ruff does not check: names are nouns, and each rule of docs/spec that the repository cites exists.

Run from anywhere: `python docs/checks.py [ROOT]`. Prints a line for each problem; the exit status is 1 if there is one.

- A variable, parameter, attribute, function or class has no participle for its name (`NOUNS`). Strings, comments and
  words within longer names (`not_found`) are not looked at.
- A citation names its page and resolves. An ID is defined where it starts a list item (`- **DEV-R22** …`), a table row
  (`| QUOTA-M1 | …`) or a heading (`### FWK-E7 …`).
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

NOUNS = {  # by word: what to write in its place
    "found": "what it is, as in `pod`, `match` or `problems`",
    "wanted": "`request`, `target`, or what is to be: `limit`, `labels`",
    "told": "`message`, `event` or `response`",
    "said": "`message`, `output` or `text`",
    "given": "`value`, `arguments`, or what it holds: `fields`, `shares`",
    "asked": "`request`, `requests` or `amount`",
}
MENTION = re.compile(rf"(?i)\b_*(?:{'|'.join(NOUNS)})_*\b")
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


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each variable, parameter, attribute, function and class that the module binds."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(
            node,
            ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar,
        ):
            yield node.lineno, node.name or ""
        elif isinstance(node, ast.alias):
            yield node.lineno, node.asname or ""


def participles(root: Path, files: Iterable[str]) -> Iterator[str]:
    """`PATH:LINE: what is wrong` for each name in these Python files (relative to `root`) that is a participle."""
    for file in (file for file in files if file.endswith(".py")):
        source = (root / file).read_text("utf-8")
        if MENTION.search(source):
            for line, name in names(ast.parse(source)):
                word = name.strip("_").lower()
                if word in NOUNS:
                    yield f"{file}:{line}: {name} is a participle; name it with a noun: {NOUNS[word]}"


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


def wrong_citations(root: Path, files: Iterable[str]) -> Iterator[str]:
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
    files = [file for file in listed.stdout.split("\0") if file and (root / file).is_file()]
    wrong = [*participles(root, files), *wrong_citations(root, files)]
    for line in wrong:
        print(line)  # noqa: T201
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
