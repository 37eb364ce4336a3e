"""A cache of functions of one text. Its memory is bounded in characters: texts come from clients."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LONGEST = 256  # characters of a text whose result is kept; names, labels and most queries are shorter
CHARACTERS = 1 << 17  # of all texts that a cache keeps


class TextCache(dict[str, T]):
    """Results by text. A hit is a look-up in a dictionary; the cache is emptied when it is full."""

    def __init__(self, compute: Callable[[str], T], characters: int, longest: int) -> None:
        super().__init__()
        self._compute, self._characters, self._longest = compute, characters, longest
        self._left = characters

    def __missing__(self, text: str) -> T:
        result = self._compute(text)
        if len(text) <= self._longest:
            if len(text) >= self._left:
                self.clear()
                self._left = self._characters
            self._left -= len(text) + 1
            self[text] = result
        return result


def cached(characters: int = CHARACTERS, longest: int = LONGEST) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Keep the results of a function of one text. Longer texts are computed each time; exceptions are not kept."""

    def decorate(compute: Callable[[str], T]) -> Callable[[str], T]:
        return TextCache(compute, characters, longest).__getitem__

    return decorate
