"""ErrorInjection: raises an exception at the extension point that a pod's annotation names, for tests of schedulers.

A profile has to enable the plugin; it is in no default profile.
"""

from collections import Counter

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.extension import RAISES_IN
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.extension_points import (
    NO_METADATA_CHANGES,
    Filter,
    MetadataChanges,
    Permit,
    PreBind,
    PreFilter,
    Reserve,
    Scope,
    Score,
)
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Status


class ErrorInjection(PreFilter, Filter, Score, Reserve, Permit, PreBind):
    """Raises `InjectedError` in PreFilter, Filter, Score, Reserve, Permit or PreBind."""

    name = "ErrorInjection"
    scope = Scope.NODE_PODS
    reads_annotations = (RAISES_IN,)

    def __init__(self, handle: Handle) -> None:
        del handle  # pods decide
        self._times: Counter[str] = Counter()  # by pod uid: how often an exception was raised for it

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        self._raise_at("PreFilter", pod)
        return SUCCESS if RAISES_IN in pod.metadata.annotations else Status.skip()

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        self._raise_at("Filter", pod)
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        self._raise_at("Score", pod)
        return 0

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self._raise_at("Reserve", pod)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Nothing was taken."""

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        self._raise_at("Permit", pod)
        return SUCCESS

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        self._raise_at("PreBind", pod)
        return NO_METADATA_CHANGES

    def _raise_at(self, point: str, pod: Pod) -> None:
        where, _, times = pod.metadata.annotations.get(RAISES_IN, "").partition("/")
        limit = integer(times, 0)
        if where == point and (limit is None or self._times[pod.metadata.uid] < limit):
            self._times[pod.metadata.uid] += 1
            raise InjectedError(f"annotation {RAISES_IN}={point}")


class InjectedError(Exception):
    """The exception that a pod asked for."""
