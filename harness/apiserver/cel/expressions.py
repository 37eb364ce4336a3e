"""Compilation and evaluation of CEL expressions, for CRDs (`x-kubernetes-validations`) and `matchConditions`.

cel-python is imported when the first expression is compiled. Compiled expressions are cached.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import lark

_NO_KEY: Final = re.compile(r"no such member in mapping: '(.*)'")


class ExpressionError(Exception):
    """The expression cannot be compiled, or cannot be evaluated for the given objects."""


@lru_cache(maxsize=1024)
def program(expression: str) -> Any:
    """The compiled expression; its `ast` is the parser's tree.

    Raises:
        ExpressionError: it cannot be parsed.
    """
    from celpy.celparser import CELParseError

    from seatrial.harness.apiserver.cel.evaluating import desugared, environment, simplified
    from seatrial.harness.apiserver.cel.functions import FUNCTIONS

    place = environment()
    try:
        tree: lark.Tree[Any] = place.compile(desugared(expression))
    except CELParseError as error:
        line, column = error.line or 1, error.column or 1
        raise ExpressionError(
            f"compilation failed: {error_at(expression, line, column, 'Syntax error: no expression ends here')}"
        ) from error
    return place.program(simplified(tree), FUNCTIONS)


def error_at(expression: str, line: int, column: int, why: str) -> str:
    """An error message at `line` and `column` (from 1) in cel-go's format."""
    rows = expression.splitlines() or [""]
    shown = rows[min(line, len(rows)) - 1]
    return f"ERROR: <input>:{line}:{column}: {why}\n | {shown}\n | {'.' * (column - 1)}^"


def value_of(expression: str, objects: Mapping[str, Any]) -> Any:
    """The value of the expression as plain data; `objects` are its variables.

    Raises:
        ExpressionError: it cannot be compiled or evaluated.
    """
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError

    from seatrial.harness.apiserver.cel.evaluating import TooLongError

    compiled = program(expression)
    try:
        found = compiled.evaluate({name: _given(value) for name, value in objects.items()})
    except CELEvalError as error:
        why = _NO_KEY.sub(r"no such key: \1", str(error.args[0] if error.args else error))
        raise ExpressionError(f"{why} evaluating rule: {expression}") from error
    except TooLongError as error:
        why = "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to"
        raise ExpressionError(f"{why} call cost exceeds limit for rule: {expression}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # cel-python does not convert some errors of value operations.
        raise ExpressionError(f"no such overload evaluating rule: {expression}") from error
    if isinstance(found, BoolType):
        return bool(found)
    return str(found) if isinstance(found, str) else found


class OptionalVariable:
    """An optional variable: `optional.of(value)`, or `optional.none()` if the value is None."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _given(value: Any) -> Any:
    from celpy.adapter import json_to_cel

    from seatrial.harness.apiserver.cel.values import NONE, Optional

    if isinstance(value, OptionalVariable):
        return NONE if value.value is None else Optional((json_to_cel(value.value),))
    return json_to_cel(value)


def holds(expression: str, objects: Mapping[str, Any]) -> bool:
    """Whether the expression is true.

    Raises:
        ExpressionError: it cannot be evaluated, or is neither true nor false.
    """
    found = value_of(expression, objects)
    if found is True or found is False:
        return bool(found)
    raise ExpressionError(f"expected true or false, found {found!r} evaluating rule: {expression}")
