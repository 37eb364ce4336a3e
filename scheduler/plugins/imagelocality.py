"""ImageLocality: prefer nodes that have the pod's images (kubernetes plugins/imagelocality, FWK-R74).

An image counts with its size times the share of nodes that have it, so that an image on one node only does not attract
every pod.
"""

from collections.abc import Sequence

import numpy as np

from seatrial.scheduler.api.core import Container, Pod
from seatrial.scheduler.cache.columns import Batch, Ints
from seatrial.scheduler.cache.images import ImageRegistry
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.accelerations import ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey

LEAST = 23 << 20  # bytes; smaller sums score 0
MAX_IMAGE_SIZE = 1000 << 20  # bytes for each container; larger sums score the maximum

IMAGES: StateKey[tuple[str, ...]] = StateKey("ImageLocality/images")


class ImageLocality(ScoreBatch):
    """The extension points of ImageLocality."""

    name = "ImageLocality"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        self._cache = handle.cache
        self._book = handle.shared(ImageRegistry)
        self._counted: dict[str, int] = {}
        self._counted_at = -1

    @property
    def version(self) -> int:
        """Scores depend also on how many other nodes have the images."""
        return self._book.version

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        state[IMAGES] = tuple(normalized(container) for container in (*pod.spec.init_containers, *pod.spec.containers))
        return any(container.image for container in (*pod.spec.init_containers, *pod.spec.containers))

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        here = _images(node)
        total = 0
        for name in state[IMAGES]:
            if name in here:
                total += int(here[name] * (self._holders(name) / self._cache.known_count))
        most = MAX_IMAGE_SIZE * len(state[IMAGES])
        return (min(max(total, LEAST), most) - LEAST) * MAX_NODE_SCORE // (most - LEAST)

    def _holders(self, name: str) -> int:
        """The number of nodes with the image, counted once for all nodes that are scored."""
        version = self.version
        if version != self._counted_at:
            self._counted_at = version
            self._counted.clear()
        if name not in self._counted:
            self._counted[name] = sum(name in _images(other) for other in self._cache)
        return self._counted[name]

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        book = self._book
        if not book.version or not any(book.holders(name) for state in stacked for name in state[IMAGES]):
            return None
        weighed = np.zeros((len(stacked), batch.columns.capacity), np.int64)
        for line, state in zip(weighed, stacked, strict=True):
            for name in state[IMAGES]:
                rows, sizes = book.sizes(name)
                line[rows] += (sizes * (len(rows) / book.total)).astype(np.int64)
            most = MAX_IMAGE_SIZE * len(state[IMAGES])
            line[:] = (np.clip(line, LEAST, most) - LEAST) * MAX_NODE_SCORE // (most - LEAST)
        return batch.pick(weighed).copy()


def normalized(container: Container) -> str:
    """The image name as nodes report it: without a tag it is `latest`."""
    image = container.image
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def _images(node: NodeInfo) -> dict[str, int]:
    return {name: image.size_bytes for image in node.known.status.images for name in image.names}
