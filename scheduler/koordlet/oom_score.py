"""The OOM score of containers by annotation (HK-12)."""

from collections.abc import Mapping

import msgspec

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.wire import decode_as

OF_POD, OF_CONTAINERS = "koordinator.sh/oom-score-adj", "koordinator.sh/oom-score-adj-spec"  # annotations
LEAST, MOST = -1000, 1000


def oom_score(annotations: Mapping[str, str], container: str) -> int | None:
    """`oom_score_adj` of a container's processes; None: it stays as it is. Scores that the kernel lacks are none."""
    try:
        scores = decode_as(annotations.get(OF_CONTAINERS) or "{}", dict[str, int])
    except msgspec.MsgspecError:
        scores = {}
    score = scores.get(container, integer(annotations.get(OF_POD, "")))
    return score if score is not None and LEAST <= score <= MOST else None
