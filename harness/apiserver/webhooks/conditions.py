"""matchConditions: CEL expressions over a request, all of which must be true for a webhook to be called."""

from seatrial.harness.apiserver.cel.expressions import ExpressionError, holds
from seatrial.harness.apiserver.storage.store import Object


class Undecided(Exception):
    """An expression cannot be evaluated."""


def conditions_hold(conditions: tuple[tuple[str, str], ...], request: Object) -> bool:
    """Whether all conditions are true. One false condition decides, even if others cannot be evaluated.

    Raises:
        Undecided: no condition is false, and one cannot be evaluated.
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
