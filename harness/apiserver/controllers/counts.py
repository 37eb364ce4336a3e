"""Pod counts given as a number or a percentage (intstr.IntOrString)."""

from seatrial.scheduler.api.integers import integer


def scaled(value: int | str | None, whole: int, *, up: bool) -> int:
    """`value`, or that percentage of `whole` rounded up (`up`) or down; 0 for None."""
    if value is None:
        return 0
    if isinstance(value, str):
        product = (integer(value.removesuffix("%")) or 0) * whole
        return -(-product // 100) if up else product // 100
    return value


def rolling_bounds(surge: int | str | None, unavailable: int | str | None, whole: int) -> tuple[int, int]:
    """Numbers of pods that a rolling update may have above and below `whole`; never both zero.

    Follows `ResolveFenceposts` in `pkg/controller/deployment/util`.
    """
    more, fewer = scaled(surge, whole, up=True), scaled(unavailable, whole, up=False)
    if not more and not fewer:
        fewer = 1  # both percentages rounded to zero, and the update would never progress
    return more, fewer
