"""Compilation and evaluation of CEL expressions, for CRDs (`x-kubernetes-validations`) and `matchConditions`.

cel-python is imported when the first expression is compiled. Compiled expressions are cached.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from seatrial.harness.apiserver.long_computations import LOOP_STEPS, NeedsThread
from seatrial.harness.apiserver.text_cache import CHARACTERS, TextCache
from seatrial.scheduler.api.integers import MAX_LENGTH

if TYPE_CHECKING:
    import lark

MAX_STEPS = 100_000  # of all rules of an object; a rule over all pairs of 64 elements takes half
VALUES_A_STEP: Final = 10  # values whose conversion takes as long as one step of an evaluation
LOOP_EXPRESSIONS: Final = 500  # characters of an object's expressions that are compiled on the event loop: 30 ms
MAX_EXPRESSIONS: Final = 100_000  # characters of an object's expressions
MAX_EXPRESSION: Final = 10_000  # characters; compiling takes 60 µs each
_EXPRESSION_FIELDS: Final = frozenset({"rule", "expression", "messageExpression", "valueExpression"})
_CONTAINERS: Final = frozenset({dict, list})  # what JSON and YAML are decoded to
_NO_KEY: Final = re.compile(r"no such member in mapping: '(.*)'")


def value_count(value: Any) -> int:
    """The number of values in it; converting them for CEL takes time."""
    if isinstance(value, dict):
        return 1 + sum(value_count(field) for field in value.values())
    if isinstance(value, list):
        return 1 + sum(value_count(item) for item in value)
    return 1


def expression_length(value: Any) -> int:
    """The number of characters of all CEL expressions in an object. All objects of their kinds are asked.

    The schemas of one server have ten thousand values: comparing types takes half the time of `isinstance`.
    """
    number = 0
    left = [value]
    while left:
        outer = left.pop()
        if type(outer) is list:
            left.extend(item for item in outer if type(item) in _CONTAINERS)
        elif type(outer) is dict:
            for name, field in outer.items():
                kind = type(field)
                if kind in _CONTAINERS:
                    left.append(field)
                elif kind is str and name in _EXPRESSION_FIELDS:
                    number += len(field)
    return number


class TooLongError(Exception):
    """The expression exceeds the step limit. Not a CEL error, since macros continue after those."""


class Budget:
    """Counts the steps of evaluations that share one limit; few are allowed for those that block the event loop."""

    def __init__(self, *, on_loop: bool = False, steps: int = 0) -> None:
        self.used = 0
        self._limit = LOOP_STEPS if on_loop else steps or MAX_STEPS
        self._error: type[Exception] = NeedsThread if on_loop else TooLongError

    def spend(self, steps: int = 1) -> None:
        """
        Raises:
            NeedsThread: more steps than the event loop may take.
            TooLongError: the limit is exceeded.
        """
        self.used += steps
        if self.used > self._limit:
            raise self._error

    @property
    def exhausted(self) -> bool:
        return self.used > self._limit


class ExpressionError(Exception):
    """The expression cannot be compiled, or cannot be evaluated for the given objects."""


_LARGEST: Final = {"INT_LIT": ("int", 1 << 63), "UINT_LIT": ("uint", (1 << 64) - 1)}  # -2^63 is read as -(2^63)
_STEPS_A_CHARACTER: Final = 2  # of an evaluation, that take as long as compiling one character


def program(expression: str) -> Any:
    """The compiled expression, from the cache if it is there.

    Raises:
        ExpressionError: it cannot be parsed.
    """
    return _programs[expression]


def _compiled(expression: str) -> Any:
    """The compiled expression; its `ast` is the parser's tree.

    Raises:
        ExpressionError: it cannot be parsed.
    """
    if len(expression) > MAX_EXPRESSION:
        raise ExpressionError(
            f"compilation failed: expression code point size exceeds limit: size: {len(expression)}, limit"
            f" {MAX_EXPRESSION}"
        )
    from celpy.celparser import CELParseError

    from seatrial.harness.apiserver.cel.functions import FUNCTIONS
    from seatrial.scheduler.api.cel.evaluating import Runner
    from seatrial.scheduler.api.cel.parsing import desugared, environment, simplified

    place = environment(Runner)
    try:
        tree: lark.Tree[Any] = place.compile(desugared(expression))
    except CELParseError as error:
        line, column = error.line or 1, error.column or 1
        raise ExpressionError(
            f"compilation failed: {error_at(expression, line, column, 'Syntax error: no expression ends here')}"
        ) from error
    for token in tree.scan_values(lambda leaf: getattr(leaf, "type", "") in _LARGEST and whole_number(leaf) is None):
        why = f"invalid {_LARGEST[token.type][0]} literal"
        raise ExpressionError(f"compilation failed: {error_at(expression, token.line, token.column, why)}")
    return place.program(simplified(tree), FUNCTIONS)


def whole_number(literal: Any) -> int | None:
    """The number of an INT_LIT or UINT_LIT token; None if it has more than 64 bits."""
    digits = literal.rstrip("uU")
    if len(digits) > MAX_LENGTH:
        return None
    value = int(digits, 16 if "x" in digits.lower() else 10)
    return value if value <= _LARGEST[literal.type][1] else None


_programs: TextCache[Any] = TextCache(_compiled, CHARACTERS, MAX_EXPRESSION)


def error_at(expression: str, line: int, column: int, why: str) -> str:
    """An error message at `line` and `column` (from 1) in cel-go's format."""
    rows = expression.splitlines() or [""]
    shown = rows[min(line, len(rows)) - 1]
    return f"ERROR: <input>:{line}:{column}: {why}\n | {shown}\n | {'.' * (column - 1)}^"


def value_of(expression: str, objects: Mapping[str, Any], budget: Budget | None = None) -> Any:
    """The value of the expression as plain data; `objects` are its variables.

    Expressions with the same `budget` share the limit of steps.

    Raises:
        ExpressionError: it cannot be compiled or evaluated.
    """
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError

    try:
        if budget is not None and expression not in _programs:
            budget.spend(len(expression) * _STEPS_A_CHARACTER)
        compiled = program(expression)
        evaluate = compiled.counted({name: _cel_value(value) for name, value in objects.items()}, budget or Budget())
    except CELEvalError as error:
        why = _NO_KEY.sub(r"no such key: \1", str(error.args[0] if error.args else error))
        raise ExpressionError(f"{why} evaluating rule: {expression}") from error
    except TooLongError as error:
        raise ExpressionError(too_long(expression)) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # cel-python does not convert some errors of value operations.
        raise ExpressionError(f"no such overload evaluating rule: {expression}") from error
    if isinstance(evaluate, BoolType):
        return bool(evaluate)
    return str(evaluate) if isinstance(evaluate, str) else evaluate


def too_long(expression: str) -> str:
    """The message for an expression that exceeds the limit of steps."""
    why = "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to"
    return f"{why} call cost exceeds limit for rule: {expression}"


class OptionalVariable:
    """An optional variable: `optional.of(value)`, or `optional.none()` if the value is None."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _cel_value(value: Any) -> Any:
    from celpy.adapter import json_to_cel

    from seatrial.scheduler.api.cel.values import NONE, Optional

    if isinstance(value, OptionalVariable):
        return NONE if value.value is None else Optional((json_to_cel(value.value),))
    return json_to_cel(value)


def holds(expression: str, objects: Mapping[str, Any], budget: Budget | None = None) -> bool:
    """Whether the expression is true.

    Raises:
        ExpressionError: it cannot be evaluated, or is neither true nor false.
    """
    value = value_of(expression, objects, budget)
    if value is True or value is False:
        return bool(value)
    raise ExpressionError(f"expected true or false, found {value!r} evaluating rule: {expression}")
