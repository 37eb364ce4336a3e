"""matchConditions: CEL expressions over a request, which must all hold for a webhook to be asked."""

from harness.apiserver.store import Object


class Undecided(Exception):
    """An expression cannot be evaluated."""


def conditions_hold(conditions: tuple[tuple[str, str], ...], request: Object) -> bool:
    """
    Raises:
        Undecided: the expressions cannot be evaluated here.
    """
    raise Undecided(f"match condition {conditions[0][0]!r}: CEL expressions are not evaluated here")
