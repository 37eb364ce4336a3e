"""CEL: expressions over objects, in CRDs (`x-kubernetes-validations`) and webhooks (`matchConditions`).

Evaluated by cel-python, which is imported when the first expression is met. Of Kubernetes' own libraries (quantities,
URLs, list and text functions) it has nothing; an expression that uses one of them is passed over, with a warning in
the log, as if it were not there.
"""

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

log = logging.getLogger(__name__)

_FOREIGN = re.compile(
    r"\b(quantity|isQuantity|url|isURL|find|findAll|ip|isIP|cidr|isCIDR|format|semver|isSemver|indexOf|lastIndexOf"
    r"|split|join|lowerAscii|upperAscii|charAt|substring|trim|replace|sum|min|max|isSorted|optional|authorizer"
    r"|isLessThan|isGreaterThan|compareTo|allOf|slice|sort|bind)\s*\("
)


class ExpressionError(Exception):
    """The expression is not CEL, or has no value for these objects."""


def foreign(expression: str) -> bool:
    """Whether it uses what only kube-apiserver has."""
    found = _FOREIGN.search(expression)
    if found is not None:
        log.warning("expression passed-over function=%s expression=%r", found[1], expression)
    return found is not None


@lru_cache(maxsize=1024)
def _program(expression: str) -> Any:
    import celpy
    from celpy.celparser import CELParseError

    environment = celpy.Environment()
    try:
        return environment.program(environment.compile(expression))
    except CELParseError as error:
        raise ExpressionError(f"compilation failed: {error}") from error


def value_of(expression: str, objects: Mapping[str, Any]) -> Any:
    """What it comes to, as plain data; `objects` are its variables.

    Raises:
        ExpressionError: it cannot be compiled or evaluated.
    """
    from celpy.adapter import json_to_cel
    from celpy.celtypes import BoolType
    from celpy.evaluation import CELEvalError

    program = _program(expression)
    try:
        found = program.evaluate({name: json_to_cel(value) for name, value in objects.items()})
    except CELEvalError as error:
        raise ExpressionError(f"{error.args[0] if error.args else error} evaluating rule: {expression}") from error
    if isinstance(found, BoolType):
        return bool(found)
    return str(found) if isinstance(found, str) else found


def holds(expression: str, objects: Mapping[str, Any]) -> bool:
    """
    Raises:
        ExpressionError: it cannot be evaluated, or is neither true nor false.
    """
    found = value_of(expression, objects)
    if found is True or found is False:
        return bool(found)
    raise ExpressionError(f"expected true or false, found {found!r} evaluating rule: {expression}")
