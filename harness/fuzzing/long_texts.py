"""Long runs of each class of characters for every text of a document, and the search for super-linear cost."""

import copy
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from hypothesis import strategies as st

from seatrial.harness.fuzzing.running import FaultError

IN_TEXT: Final = "(JSON)"  # a step into a text that is a JSON document
UNITS: Final = (
    "1",
    "0",
    "9",
    "a",
    "A",
    " ",
    "\t",
    "\n",
    ",",
    ".",
    ":",
    ";",
    "-",
    "+",
    "_",
    "/",
    "=",
    "!",
    "%",
    "*",
    "\\",
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    "<",
    "e",
    "h",
    "m",
    "s",
    "E",
    "K",
    "i",
    "T",
    "Z",
    "²",
    "é",
    "1h",
    "1.",
    "1h1.",
    "0.",
    "1e",
    "-1",
    "+-",
    "a,",
    "a=b,",
    "a in (",
    "0-1,",
    "0-9999999999,",
    "[[",
    "[1,",
    "[]",
    '{"a":',
    '"a",',
    '["a/b",',
    "a/b,",
    "../",
    "%0",
    '\\"',
    "a.",
    "()",
    "||",
    "2026-01-01T00:00:00Z",
    "10.0.0.1/",
)
HEADS: Final = ("", "[", '["', "-", "1", "a", "a=", "0.")
TAILS: Final = ("", "x", "]", "s", "Gi", "=", ")", "\x00")
LARGEST: Final = 1 << 18  # characters: what the annotations of an object may have
ENOUGH: Final = 0.05  # seconds of processor time for which a cost is measured
RATIO: Final = 3.0  # of the costs of a text and of half of it; linear: 2, quadratic: 4
_REPEATS: Final = 3
_ROUNDS: Final = 2

Path = tuple[str | int, ...]
LongText = tuple[str, str, str, int]  # head, unit, tail, number of characters


def text_of(run: LongText) -> str:
    """The text of that many characters."""
    head, unit, tail, size = run
    return (head + unit * (size // len(unit) + 1))[: max(size - len(tail), 1)] + tail


long_texts: st.SearchStrategy[LongText] = st.tuples(
    st.sampled_from(HEADS),
    st.sampled_from(UNITS),
    st.sampled_from(TAILS),
    st.integers(4, 18).map(lambda power: 1 << power),
)


def text_paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """The paths of all texts of a document, also of those inside of texts that are JSON."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from text_paths(below, (*at, name))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, below in enumerate(value):
            yield from text_paths(below, (*at, number))
    elif isinstance(value, str):
        yield at
        if value[:1] in {"{", "["}:
            yield from text_paths(json.loads(value), (*at, IN_TEXT))


def with_text(document: Any, path: Path, text: str) -> Any:
    """A copy of the document with another text at `path`; missing maps on the way are made."""
    if not path:
        return text
    step, rest = path[0], path[1:]
    if step == IN_TEXT:
        return json.dumps(with_text(json.loads(document), rest, text))
    texts = copy.copy(document)
    texts[step] = with_text(texts[step] if isinstance(step, int) else texts.get(step, {}), rest, text)
    return texts


def check_cost(run: LongText, cost_of: Callable[[LongText], float], enough: float = ENOUGH) -> None:
    """Feed the text; one that takes more than `enough` seconds is compared with its half.

    Raises:
        FaultError: its cost grows faster than its length.
    """
    if cost_of(run) < enough:
        return
    half: LongText = (*run[:3], run[3] // 2)
    whole_cost = half_cost = math.inf
    for _ in range(_ROUNDS):  # a busy machine makes some of them take long
        whole_cost, half_cost = (
            min(before, *(cost_of(each) for _ in range(_REPEATS)))
            for before, each in ((whole_cost, run), (half_cost, half))
        )
        if whole_cost <= max(enough, RATIO * half_cost):
            return
    shown = text_of((*run[:3], 12))
    raise FaultError(
        f"super-linear: {run[3]} characters like {shown!r} take {whole_cost * 1000:.0f} ms,"
        f" half of them {half_cost * 1000:.0f} ms"
    )


def processor_time(action: Callable[[], object]) -> float:
    """The seconds of processor time that the action takes."""
    began = time.process_time()
    action()
    return time.process_time() - began
