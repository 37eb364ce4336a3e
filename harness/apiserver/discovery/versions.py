"""The order of the versions of an API group.

Follows `apimachinery/pkg/version`.
"""

import re
from collections.abc import Iterable
from typing import Final

_VERSION: Final = re.compile(r"v(\d{1,9})(?:(alpha|beta)(\d{1,9}))?")
_STAGES: Final = {"alpha": 0, "beta": 1, None: 2}


def preferred(versions: Iterable[str]) -> list[str]:
    """The versions in order of preference: stable before beta before alpha, then newest first."""
    return sorted(versions, key=rank, reverse=True)


def rank(version: str) -> tuple[int, int, int]:
    """The place of a version: a greater one is preferred. Other names than those of Kubernetes' versions come last."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return -1, 0, 0
    number, stage, step = match.groups()
    return _STAGES[stage], int(number), int(step or 0)
