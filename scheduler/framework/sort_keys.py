"""Keys of QueueSort: what a plugin may return, as the queue compares the keys of any two pods."""

import reprlib
from numbers import Real

EXPECTATION = "return a tuple of numbers that are not NaN, such as (-priority, queued_at)"


def checked(key: object) -> tuple[float, ...]:
    """`key` if it can be compared with any other key. Numbers of other types, such as NumPy's, become floats.

    Called for each pod that enters the queue, so that the usual types come first.

    Raises:
        TypeError: it is not a tuple, or has something else than numbers in it.
        ValueError: it has NaN in it.
    """
    if type(key) is tuple:
        for part in key:
            kind = type(part)
            if kind is not int and (kind is not float or part != part):  # noqa: PLR0124 NaN differs from itself
                break
        else:
            return key
    if not isinstance(key, tuple) or not all(isinstance(part, Real) for part in key):
        raise TypeError(f"sort_key returned {reprlib.repr(key)}; {EXPECTATION}")
    numbers = tuple(part if type(part) is int else float(part) for part in key)
    if any(number != number for number in numbers):  # noqa: PLR0124
        raise ValueError(f"sort_key returned {reprlib.repr(key)}; {EXPECTATION}")
    return numbers
