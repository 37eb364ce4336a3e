"""The reason of a failure as one sentence, and the cause that failures share.

Run files keep reasons as Python wrote them, with the values of an assert. Here values are written as words:
`{'a', 'b'}` is "a, b", `[]` is "none", `JobStatus(phase='Running', status='')` is "JobStatus: phase Running".
"""

import ast
import re
import warnings

from seatrial.harness import errors
from seatrial.harness.results import Case

LONGEST = 200  # characters of a sentence
_MAX_READ = 2000  # characters of a reason's first line that are read; values are searched in quadratic time
_OPERATORS: dict[type[ast.cmpop], tuple[str, str]] = {  # as Python writes it, and as a sentence does
    ast.Eq: ("==", "expected {right}; found {left}"),
    ast.NotEq: ("!=", "expected other than {right}"),
    ast.LtE: ("<=", "expected at most {right}; found {left}"),
    ast.GtE: (">=", "expected at least {right}; found {left}"),
    ast.Lt: ("<", "expected less than {right}; found {left}"),
    ast.Gt: (">", "expected more than {right}; found {left}"),
    ast.NotIn: ("not in", "{left} is in {right}"),
    ast.In: ("in", "{left} is not in {right}"),
}
_VALUE = re.compile(r"\b[A-Z]\w*\(|(?<!\w)[\[{(]")  # where the text of a value can begin
_CUT_VALUE = re.compile(r"[\[({'\"]*(?P<start>[\w./-]*\w)")
_RULE = re.compile(r"AUD-\d+\b")
_VARYING = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def sentence(reason: str) -> str:
    """The first line of a reason, with values as words, cut at the end of a word; empty if there is no reason."""
    text = reason.partition("\n")[0][:_MAX_READ].strip()
    name, colon, rest = text.partition(": ")
    if colon and (name == "AssertionError" or hasattr(errors, name)):
        text = rest
    whole = _parsed(text)
    if whole is not None and (words := _words(whole)) is not None:
        return cut(f"found {words}")
    return cut(_comparison(text) or _with_words(text))


def cut(text: str, longest: int = LONGEST) -> str:
    """The text, or its first words and an ellipsis if it is longer than `longest` characters."""
    if len(text) <= longest:
        return text
    words = text[: longest - 1].rpartition(" ")[0].rstrip(",;: ")
    if len(words) < longest // 2:  # one long word
        words = text[: longest - 2]
    return f"{words} …"


def cause(case: Case) -> tuple[str, ...]:
    """What failures of one cause share.

    That is the rule of the auditor; for a broken case its reason; for another failure the test, whatever its
    parameters, and the reason. Numbers and UIDs in a reason make no difference. Equal reasons of two tests can have
    different causes: "expected pod a to run within 30 s".
    """
    text = sentence(case.reason)
    if rule := _RULE.match(text):
        return case.verdict, rule[0]
    same = _VARYING.sub("#", text)
    return (case.verdict, same) if case.verdict == "broken" and text else (case.verdict, _test(case), same)


def _test(case: Case) -> str:
    return case.nodeid.partition("[")[0]


def _comparison(text: str) -> str:
    """The sentence of "expected SOURCE, found LEFT == RIGHT" and of "assert LEFT == RIGHT"; empty for other texts."""
    if text.startswith("assert "):
        values = text.removeprefix("assert ")
        written = sorted(_OPERATORS.values(), key=lambda pair: _place(values, pair[0]))
        return _sentence(values, *written[0])
    start = text.find(", found ")
    while text.startswith("expected ") and start > 0:
        whole = text[len("expected ") : start]
        source = _parsed(whole)
        if isinstance(source, ast.Compare) and len(source.ops) == 1 and type(source.ops[0]) in _OPERATORS:
            message = _sentence(text[start + len(", found ") :], *_OPERATORS[type(source.ops[0])])
            return f"{ast.get_source_segment(whole, source.left)}: {message}" if message else ""
        start = text.find(", found ", start + 1)
    return ""


def _sentence(values: str, operator: str, words: str) -> str:
    """The values of a comparison as a sentence; empty if the operator is not there, as in a value that was cut."""
    left, result, right = values.partition(f" {operator} ")
    return words.format(left=_value(left), right=_value(right)) if result else ""


def _place(text: str, operator: str) -> int:
    place = text.find(f" {operator} ")
    return place if place >= 0 else len(text)


def _value(text: str) -> str:
    """A value in words. Of one that pytest cut in the middle, only its beginning is known."""
    node = _parsed(text)
    if node is not None and (words := _words(node)) is not None:
        return words
    start = _CUT_VALUE.match(text.partition("...")[0])
    return f"{start['start']}…" if "..." in text and start else text


def _with_words(text: str) -> str:
    """The text with each value in it as words."""
    parts, done = [], 0
    for begin in _VALUE.finditer(text):
        if begin.start() < done:
            continue
        end = _end(text, begin.end() - 1)
        node = _parsed(text[begin.start() : end])
        # A JSON object, as in an annotation, stays as the user knows it.
        words = _words(node) if node is not None and '{"' not in text[begin.start() : end] else None
        if words is not None:
            parts += [text[done : begin.start()], words]
            done = end
    return "".join(parts) + text[done:]


def _end(text: str, opening: int) -> int:
    """The place after the bracket that closes the one at `opening`; the end of the text if none does."""
    awaited, quote = [], ""
    for place in range(opening, len(text)):
        sign = text[place]
        if quote:
            quote = "" if sign == quote and text[place - 1] != "\\" else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _CLOSING:
            awaited.append(_CLOSING[sign])
        elif sign == awaited[-1]:
            awaited.pop()
            if not awaited:
                return place + 1
    return len(text)


def _parsed(text: str) -> ast.expr | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes and comparisons in the text, which is not run
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the latter two for deep nesting
        return None


def _words(node: ast.expr) -> str | None:
    """A literal, or an object as dataclasses write themselves, as words; None for any other expression."""
    match node:
        case ast.Constant(value=bool() | None as value):
            return str(value).lower()
        case ast.Constant(value=str() as value):
            return value or "nothing"
        case ast.Constant(value=value):
            return str(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return f"-{value}"
        case ast.Call(func=ast.Name(id="set" | "frozenset"), args=[], keywords=[]):
            return "none"
        case ast.List(elts=members) | ast.Tuple(elts=members) | ast.Set(elts=members):
            return _joined([("", member) for member in members])
        case ast.Dict(keys=keys, values=values):
            names = [None if key is None else _words(key) for key in keys]
            return (
                _joined([(f"{name}: ", value) for name, value in zip(names, values, strict=True)])
                if all(names)
                else None
            )
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[_, *_] as fields) if name[:1].isupper():
            messages = [(f"{field.arg} ", field.value) for field in fields if not _is_empty(field.value)]
            inner = _joined(messages)
            return None if inner is None else f"{name}: {inner}"
        case _:
            return None


def _joined(members: list[tuple[str, ast.expr]]) -> str | None:
    """Members, each after its name; one that has members itself is in parentheses. None if one has no words."""
    results = []
    for name, member in members:
        words = _words(member)
        if words is None:
            return None
        nested = not isinstance(member, ast.Constant | ast.UnaryOp) and not _is_empty(member)
        results.append(f"{name}({words})" if nested else f"{name}{words}")
    return ", ".join(results) or "none"


def _is_empty(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value="" | None) | ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case _:
            return False
