"""Check that no variable, parameter, attribute, function or class has a participle for a name: a noun says what it is.

Run from anywhere: `python docs/check_words.py [ROOT]`. Prints one line per wrong name and exits with status 1 if there
is one. Strings, comments and words within longer names (`not_found`) are not looked at.
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


def problems(root: Path, files: Iterable[str]) -> Iterator[str]:
    """`PATH:LINE: what is wrong` for each such name in these files (relative to `root`)."""
    for file in files:
        source = (root / file).read_text("utf-8")
        if MENTION.search(source):
            for line, name in names(ast.parse(source)):
                word = name.strip("_").lower()
                if word in NOUNS:
                    yield f"{file}:{line}: {name} is a participle; name it with a noun: {NOUNS[word]}"


def main(root: Path) -> int:
    """Check all Python files that git tracks below `root`; returns the exit status."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.py"], cwd=root, capture_output=True, text=True, check=True)  # noqa: S607
    wrong = list(problems(root, filter(None, listed.stdout.split("\0"))))
    for line in wrong:
        print(line)  # noqa: T201
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent))
