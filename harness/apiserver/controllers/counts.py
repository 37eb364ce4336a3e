"""Numbers of pods given as such or as a share of the whole (intstr.IntOrString)."""


def scaled(value: int | str | None, whole: int, *, up: bool) -> int:
    """`value`, or that percentage of `whole` rounded up or down; nothing given is 0."""
    if value is None:
        return 0
    if isinstance(value, str):
        if not value.endswith("%"):
            return int(value)
        product = int(value[:-1]) * whole
        return -(-product // 100) if up else product // 100
    return value


def rolling_bounds(surge: int | str | None, unavailable: int | str | None, whole: int) -> tuple[int, int]:
    """How many pods more and how many fewer than `whole` a rolling update may have; never neither.

    Follows `ResolveFenceposts` in `pkg/controller/deployment/util`.
    """
    more, fewer = scaled(surge, whole, up=True), scaled(unavailable, whole, up=False)
    if not more and not fewer:
        fewer = 1  # both percentages came out as nothing: without this the update would never move
    return more, fewer
