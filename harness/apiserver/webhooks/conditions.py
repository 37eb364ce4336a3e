"""matchConditions: CEL expressions over a request, which must all hold for a webhook to be asked."""

from harness.apiserver.cel.expressions import ExpressionError, holds
from harness.apiserver.storage.store import Object


class Undecided(Exception):
    """An expression cannot be evaluated."""


def conditions_hold(conditions: tuple[tuple[str, str], ...], request: Object) -> bool:
    """One that does not hold settles it, whatever the others come to.

    Raises:
        Undecided: none is known not to hold, and one cannot be evaluated.
    """
    objects = {"request": request, "object": request["object"], "oldObject": request["oldObject"]}
    undecided = ""
    for name, expression in conditions:
        try:
            if not holds(expression, objects):
                return False
        except ExpressionError as error:
            undecided = f"match condition {name!r}: {error}"
    if undecided:
        raise Undecided(undecided)
    return True
