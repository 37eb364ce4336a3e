"""Label selectors in text form, as k8s.io/apimachinery `labels.Parse` reads them: `pool=fast,disk in (a, b),!spot`."""

import re
from collections.abc import Iterator

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.wire import Requirement
from seatrial.scheduler.api.wrong_values import shown

MAX_LENGTH = 1 << 16  # characters
_TOKEN = re.compile(r"[ \t\r\n]*+(==|!=|[=!<>(),]|[^ \t\r\n=!<>(),]++|\Z)")
_SYMBOLS = frozenset({"=", "==", "!=", "!", "<", ">", "(", ")", ",", ""})  # "" is the end of the text
_OPERATORS = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", ">": "Gt", "<": "Lt"}
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?"
_is_key = re.compile(rf"(?:{_DOMAIN}/)?{_NAME}").fullmatch
_is_value = re.compile(rf"(?:{_NAME})?").fullmatch


class SelectorError(ValueError):
    """The text is not a label selector; the message says what was found and expected there."""

    def __init__(self, value: str, expected: str) -> None:
        super().__init__(f"found {shown(value)}, expected: {expected}")


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """The requirements of a selector, with the operators of a LabelSelector and Gt and Lt; "" selects everything.

    Raises:
        SelectorError: it cannot be parsed.
    """
    if len(text) > MAX_LENGTH:
        raise SelectorError(text, f"at most {MAX_LENGTH} characters")
    words = (match[1] for match in _TOKEN.finditer(text))
    requirements: list[Requirement] = []
    word = next(words)
    while word or requirements:
        requirement, word = _requirement(word, words)
        requirements.append(requirement)
        if not word:
            break
        if word != ",":
            raise SelectorError(word, "',' or 'end of string'")
        word = next(words)
    return tuple(requirements)


def _requirement(word: str, words: Iterator[str]) -> tuple[Requirement, str]:
    """One requirement, and the word after it."""
    absent = word == "!"
    key = next(words) if absent else word
    if key in _SYMBOLS:
        raise SelectorError(key, "identifier" if absent else "!, identifier, or 'end of string'")
    if not _is_key(key):
        raise SelectorError(key, "a label key: an optional DNS subdomain and '/', and a name of at most 63 characters")
    operator = next(words)
    if operator in {",", ""}:
        return Requirement(key, "DoesNotExist" if absent else "Exists"), operator
    if absent or operator not in _OPERATORS:
        raise SelectorError(operator, "',' or 'end of string'" if absent else ", ".join(_OPERATORS))
    value = next(words)
    if operator in {"in", "notin"}:
        if value != "(":
            raise SelectorError(value, "'('")
        values = _listed(words)
        word = next(words)
    else:
        word = value if value in {",", ""} else next(words)
        values = ("" if value in {",", ""} else value,)
    for value in values:
        if value in _SYMBOLS - {""} or not _is_value(value):
            raise SelectorError(value, "a label value: at most 63 letters, digits, '-', '_' and '.'")
        if operator in {">", "<"} and integer(value) is None:
            raise SelectorError(value, "an integer")
    return Requirement(key, _OPERATORS[operator], values), word


def _listed(words: Iterator[str]) -> tuple[str, ...]:
    """The values between parentheses; an empty one between commas."""
    values = [""]
    for word in words:
        if word == ")":
            if values == [""]:
                raise SelectorError("()", "at least one value")
            return tuple(values)
        if word == ",":
            values.append("")
        elif word in _SYMBOLS or values[-1]:
            raise SelectorError(word, "',' or ')'")
        else:
            values[-1] = word
    raise SelectorError("", "')'")
