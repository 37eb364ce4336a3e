"""Warnings that are said once for each thing, however often it is looked at."""

import logging
from collections.abc import Hashable

_KEPT = 4096  # things; the oldest are forgotten, so that names of users' objects do not pile up


class Once:
    """Logs what is wrong with a thing when it is new or differs from the last time."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last: dict[Hashable, str] = {}

    def __call__(self, thing: Hashable, text: str) -> None:
        """`text` "": the thing is right again."""
        if not text:
            self._last.pop(thing, None)
        elif self._last.get(thing) != text:
            self._last[thing] = text
            if len(self._last) > _KEPT:
                del self._last[next(iter(self._last))]
            self._log.warning("%s", text)
