"""Random identifiers: UIDs of objects and suffixes of generated names."""

import random
from collections.abc import Callable

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"  # upstream's alphabet, without vowels (`apimachinery/pkg/util/rand`)
_NAME_LIMIT = 63
_NAME_TRIES = 8  # as upstream; then the create fails with AlreadyExists


class IdentifierSource:
    """Draws identifiers; the same sequence for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 identifiers are not secrets

    def uid(self) -> str:
        bits = self._random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | 4 << 76 | 0x2 << 62  # version 4, variant 1
        digits = f"{bits:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def name(self, stem: str, taken: Callable[[str], bool]) -> str:
        """A generated name that is not taken; among thousands of one stem, collisions are common."""
        name = ""
        for _ in range(_NAME_TRIES):
            name = stem[: _NAME_LIMIT - 5] + "".join(self._random.choices(_SUFFIX, k=5))
            if not taken(name):
                break
        return name
