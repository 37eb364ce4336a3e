"""Container images on nodes: their sizes, and the number of nodes that have each."""

import numpy as np

from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import Ints


class ImageRegistry:
    """Reads images of node objects. Read `version` first: it updates the registry."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._position = 0
        self._nodes = 0
        self._version = 0
        self._sizes: dict[str, dict[int, int]] = {}  # image name → row → bytes
        self._on_row: dict[int, dict[str, int]] = {}

    @property
    def version(self) -> int:
        """Changes when sizes or spreads of images may have."""
        columns = self._cache.columns
        if self._position != columns.static_changes:
            changed = columns.static_changed_since(self._position)
            self._position = columns.static_changes
            moved = [self._reread(row) for row in sorted(changed)]
            grown, self._nodes = self._nodes != self._cache.known_count, self._cache.known_count
            self._version += any(moved) or (grown and bool(self._sizes))
        return self._version

    @property
    def total(self) -> int:
        """The number of nodes."""
        return self._nodes

    def on(self, row: int) -> dict[str, int]:
        """The images on one row with their sizes, bytes."""
        return self._on_row.get(row, {})

    def holders(self, image: str) -> int:
        """The number of nodes that have the image."""
        return len(self._sizes.get(image, ()))

    def sizes(self, image: str) -> tuple[Ints, Ints]:
        """Rows that have the image, and its size on each, bytes."""
        size = self._sizes.get(image, {})
        return np.fromiter(size.keys(), np.int64, len(size)), np.fromiter(size.values(), np.int64, len(size))

    def _reread(self, row: int) -> bool:
        node = self._cache.find(self._cache.columns.names[row])
        here = node is not None and node.row == row
        images = (
            {name: image.size_bytes for image in node.known.status.images for name in image.names}
            if here and node is not None
            else {}
        )
        before = self._on_row.get(row, {})
        if images == before:
            return False
        for name in before.keys() - images.keys():
            rows = self._sizes[name]
            del rows[row]
            if not rows:
                del self._sizes[name]
        for name, size in images.items():
            self._sizes.setdefault(name, {})[row] = size
        self._on_row[row] = images
        return True
