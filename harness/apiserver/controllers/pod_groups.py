"""The controller `podgroupprotection`: a deleted PodGroup goes when no active pod names it.

Follows `pkg/controller/scheduling/podgroupprotection`. A pod that is being deleted is active until it is gone or ends.
"""

from seatrial.harness.apiserver.admission.pod_groups import POD_GROUPS, PROTECTION
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.storage.store import Change, Item, Key, Object


class PodGroupProtection:
    """Removes the finalizer of PodGroups that no active pod uses."""

    def __init__(self, control: Control) -> None:
        self._control, self._groups = control, control.resource(POD_GROUPS)
        self._pods = control.objects.collection(control.pods)
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        control.objects.collection(self._groups).listen(self._group_changed)
        self._pods.listen(self._pod_changed)

    def _group_changed(self, change: Change) -> None:
        if change.new is not None and "deletionTimestamp" in change.new.obj["metadata"]:
            self._queue.add(change.key)

    def _pod_changed(self, change: Change) -> None:
        name = _active_in(change.old)
        if name and _active_in(change.new) != name:
            self._queue.add((change.key[0], name))

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._groups, key)
        if item is None or "deletionTimestamp" not in item.obj["metadata"]:
            return
        if PROTECTION not in (item.obj["metadata"].get("finalizers") or ()):
            return
        if not any(_active_in(pod) == key[1] for pod in self._pods.each(key[0])):
            self._control.drop_finalizer(self._groups, item, PROTECTION)


def _active_in(pod: Item | None) -> str:
    """The PodGroup that a pod names which has not ended; "" if there is none."""
    if pod is None or (pod.obj.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return ""
    group: Object = pod.obj["spec"].get("schedulingGroup") or {}
    return str(group.get("podGroupName") or "")
