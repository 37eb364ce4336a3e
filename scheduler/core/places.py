"""Places on nodes: taken for a pod by Reserve, Permit and the cache, and given back in one place."""

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.runner import Runner, Runners
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Status


class Places:
    """Takes places, and gives them back."""

    def __init__(self, handle: Handle, runners: Runners) -> None:
        self._handle, self._cache, self._runners = handle, handle.cache, runners

    def take(self, info: PodInfo, runner: Runner, state: CycleState, node: str) -> Status:
        """Run Reserve and Permit, and assume the pod on the node. Success, Wait with `waits`, or why nothing was taken.

        Raises:
            Exception: a plugin raised it. All that was taken for the pod is given back.
        """
        try:
            status = runner.reserve(state, info.pod, node)
            if status is not SUCCESS and not status.ok:
                return status
            if runner.profile.permit:
                status = runner.permit(state, info.pod, node)
                if not status.ok and not status.waits:
                    return status
            self._cache.assume(info, node)
        except Exception:
            self.give_back(info, state, node)
            raise
        return status

    def give_back(self, info: PodInfo, state: CycleState, node: str) -> None:
        """Undo `take`, however far it came. Exceptions of plugins are recorded; the others are called."""
        runner = self._runners.of(info)
        runner.unreserve(state, info.pod, node)
        try:
            self._cache.forget(info.uid)
        except Exception as error:  # noqa: BLE001 the cache has forgotten the pod
            self._handle.evaluation_failed(error, f"pod={info.key}")
        if runner.groups is not None:
            runner.groups.released(info.uid)
