"""Matches the `pattern` of schemas and the `matches` of CEL rules with RE2, whose time grows linearly with the text.

RE2's syntax is that of Go's `regexp`, which kube-apiserver uses. Patterns that need backtracking are errors in both.
"""

from functools import lru_cache
from typing import Any

import re2

_MEMORY = 1 << 20  # bytes of one compiled pattern


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """The compiled pattern.

    Raises:
        ValueError: not a regular expression of RE2, or too large.
    """
    options = re2.Options()
    options.log_errors, options.max_mem = False, _MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        raise ValueError(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from error


def match_cost(pattern: str, text: str) -> int:
    """The worst case in steps: instructions of the pattern times characters; about 30 steps take a microsecond."""
    size: int = compiled(pattern).programsize
    return size * (len(text) + 1)
