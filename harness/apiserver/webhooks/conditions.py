"""matchConditions: CEL expressions over a request, all of which must be true for a webhook to be called."""

from seatrial.harness.apiserver.cel.expressions import Budget, ExpressionError, holds
from seatrial.harness.apiserver.storage.store import Object

MATCH_CONDITION_STEPS = 2_000  # of all conditions of a webhook; they are evaluated on the event loop


class Undecided(Exception):
    """An expression cannot be evaluated."""


def conditions_hold(conditions: tuple[tuple[str, str], ...], request: Object) -> bool:
    """Whether all conditions are true. One false condition decides, even if others cannot be evaluated.

    Raises:
        Undecided: no condition is false, and one cannot be evaluated.
    """
    budget = Budget(steps=MATCH_CONDITION_STEPS)
    objects = {"request": request, "object": request["object"], "oldObject": request["oldObject"]}
    undecided = ""
    for name, expression in conditions:
        try:
            if not holds(expression, objects, budget):
                return False
        except ExpressionError as error:
            undecided = f"match condition {name!r}: {error}"
    if undecided:
        raise Undecided(undecided)
    return True
