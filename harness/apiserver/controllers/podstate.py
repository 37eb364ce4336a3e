"""What controllers want to know of a pod: whether it counts, whether it is ready, and which one goes first."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from harness.apiserver.storage.store import Item, Object
from scheduler.api.clock import from_rfc3339

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def is_finished(pod: Object) -> bool:
    return phase(pod) in {"Succeeded", "Failed"}


def is_active(pod: Object) -> bool:
    """Neither finished nor on its way out."""
    return not is_going(pod) and not is_finished(pod)


def condition(obj: Object, kind: str) -> Object | None:
    """The condition of that type in the object's status."""
    for one in (obj.get("status") or {}).get("conditions") or ():
        if one.get("type") == kind:
            found: Object = one
            return found
    return None


def is_ready(pod: Object) -> bool:
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def available_in(pod: Object, min_ready: int, now: float) -> float | None:
    """Seconds until the pod has been ready for `min_ready` seconds, 0 if it has; None while it is not ready."""
    ready = condition(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    if not min_ready:
        return 0.0
    since = ready.get("lastTransitionTime")
    return max(0.0, from_rfc3339(since) + min_ready - now) if since else float(min_ready)


def restarts(pod: Object) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(one.get("restartCount", 0)) for one in statuses), default=0)


def deletion_order(pods: Iterable[Item], related: Iterable[Item]) -> list[Item]:
    """`pods`, the one to delete first at the front; `related` are all that count for crowded nodes.

    Follows `ActivePodsWithRanks` in `pkg/controller/controller_utils.go`: not yet bound, pending, not ready, of lower
    deletion cost, beside more of its kind, ready for a shorter time, restarted more often, younger.
    """
    crowd = Counter(pod.obj["spec"].get("nodeName", "") for pod in related if is_active(pod.obj))

    def rank(item: Item) -> tuple[Any, ...]:
        pod = item.obj
        node = pod["spec"].get("nodeName", "")
        ready = condition(pod, "Ready")
        is_up = ready is not None and ready.get("status") == "True"
        since = str((ready or {}).get("lastTransitionTime") or "") if is_up else ""
        return (
            bool(node),
            _PHASES.get(phase(pod), 1),
            is_up,
            _cost(pod),
            -crowd[node],
            _Descending(since),
            -restarts(pod),
            _Descending(pod["metadata"].get("creationTimestamp", "")),
            -item.version,
        )

    return sorted(pods, key=rank)


def _cost(pod: Object) -> int:
    try:
        return int((pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0"))
    except ValueError:
        return 0


class _Descending:
    """A text that sorts the other way round."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: "_Descending") -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)
