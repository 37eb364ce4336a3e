"""Pod state as controllers see it: active, ready, available, and the order of deletion."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.harness.apiserver.times import seconds_of
from seatrial.scheduler.api.integers import integer

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def phase(pod: Object) -> str:
    """The pod's phase; Pending if the status has none."""
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_terminating(pod: Object) -> bool:
    """Whether the pod is deleted and its containers may still run."""
    return "deletionTimestamp" in pod["metadata"]


def is_finished(pod: Object) -> bool:
    """Whether the pod's phase is Succeeded or Failed."""
    return phase(pod) in {"Succeeded", "Failed"}


def is_active(pod: Object) -> bool:
    """Whether the pod is neither finished nor terminating."""
    return not is_terminating(pod) and not is_finished(pod)


def condition(obj: Object, kind: str) -> Object | None:
    """The condition of type `kind` in the object's status; None if there is none."""
    for entry in (obj.get("status") or {}).get("conditions") or ():
        if entry.get("type") == kind:
            results: Object = entry
            return results
    return None


def is_ready(pod: Object) -> bool:
    """Whether the pod's condition Ready is True."""
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True"


def available_in(pod: Object, min_ready: int, now: float) -> float | None:
    """Seconds until the pod has been ready for `min_ready` seconds; 0 if it has; None while it is not ready."""
    ready = condition(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return None
    if not min_ready:
        return 0.0
    since = ready.get("lastTransitionTime")
    return max(0.0, seconds_of(since) + min_ready - now) if since else float(min_ready)


def restarts(pod: Object) -> int:
    """The highest restart count of the pod's containers."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return max((int(status.get("restartCount", 0)) for status in statuses), default=0)


def deletion_order(pods: Iterable[Item], related: Iterable[Item]) -> list[Item]:
    """`pods` in order of deletion; `related` are the pods counted per node.

    Follows `ActivePodsWithRanks` in `pkg/controller/controller_utils.go`: unbound, pending, not ready, lower
    deletion cost, more related pods on the same node, ready for a shorter time, more restarts, younger.
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
    return integer((pod["metadata"].get("annotations") or {}).get(DELETION_COST, "0")) or 0


class _Descending:
    """A string with reversed sort order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: "_Descending") -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)
