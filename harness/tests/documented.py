"""The commands of the documentation: lines that begin with `$ ` in console blocks, and lines of sh blocks."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
_BLOCK = re.compile(r"^```(console|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_OPTIONAL = re.compile(r"\[(--[^\]]*)\]")  # `[--flag VALUE]`: the reader may leave it out
_ENDS = re.compile(r"[|;&<>]+")


@dataclass(frozen=True, slots=True)
class Command:
    """One command as a shell would see its words, without redirection and what follows in a pipe."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def commands(page: str) -> Iterator[Command]:
    """The commands of a page, in its order."""
    for language, body in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        for line in re.sub(r"\\\n\s*", "", body).splitlines():
            text = line.removeprefix("$ ") if language == "console" and line.startswith("$ ") else line
            if language == "sh" or text != line:
                yield from (Command(page, words) for words in _simple_commands(text))


def _simple_commands(line: str) -> Iterator[tuple[str, ...]]:
    """The simple commands of a line; comments and redirections are dropped."""
    lexer = shlex.shlex(_OPTIONAL.sub(r"\1", line), posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    skipped = False  # the word is the file of a redirection
    for word in lexer:
        if skipped:
            skipped = False
        elif word[0] in "<>":
            skipped = True
        elif _ENDS.fullmatch(word):
            yield tuple(words)
            words = []
        else:
            words.append(word)
    if words:
        yield tuple(words)
