"""Jobs: pods that end together. Preemption evicts a whole job or nothing of it.

A pod's job is its label `scheduling.koordinator.sh/questioned-object-key` (with its namespace), else its gang group,
else the pod itself (GANG-D9; upstream counts all pods without the label as one job). Members of a group of
scheduling.k8s.io are one job if its disruptionMode is `all` (WAS-R48). Without job-level preemption they are the only
jobs of several pods.
"""

from collections.abc import Iterable, Sequence

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.podgroup import gang_name
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.plugins.coscheduling.cache import GangCache

JOB_LABEL = "scheduling.koordinator.sh/questioned-object-key"


class Units:
    """The jobs of Kubernetes' own API."""

    def __init__(self, gangs: GangCache) -> None:
        self._gangs = gangs

    def key_of(self, info: PodInfo) -> str:
        """The job's name, equal for all its pods."""
        gang = self._gangs.gang_of(info.uid)
        return f"gang {gang.id}" if gang is not None and gang.whole else info.uid

    def key_of_pending(self, info: PodInfo) -> str:
        """The same for a pod that has no place."""
        return Units.key_of(self, info)

    def pods_of(self, info: PodInfo) -> Sequence[PodInfo]:
        """All placed pods of the pod's job."""
        return self._gangs.unit_of(info) or (info,)

    def rank(self, pods: Sequence[PodInfo], priority: int, violations: int) -> tuple[int, ...]:
        """The lower, the sooner the job stays: the job of these pods violates so many disruption budgets (WAS-R43)."""
        grouped = bool(self._gangs.unit_of(pods[0]))
        return not violations, -priority, not grouped, -len(pods)


class JobIndex(Units, Listener):
    """The placed pods of each job of more than one pod."""

    def __init__(self, cache: Cache, gangs: GangCache) -> None:
        super().__init__(gangs)
        self._pods: dict[str, dict[str, PodInfo]] = {}  # by label or gang id, then by uid
        self._key_of: dict[str, str] = {}  # by uid
        for node in cache.nodes.values():
            for info in node.pods.values():
                self.pod_placed(info)
        cache.listen(self)

    def key_of(self, info: PodInfo) -> str:
        return self._name(self._key_of.get(info.uid)) or super().key_of(info)

    def key_of_pending(self, info: PodInfo) -> str:
        return self._name(_key(info.pod)) or super().key_of_pending(info)

    def _name(self, key: str | None) -> str:
        """The job's name for the key of one of its pods; "" without one."""
        if not key or not key.startswith("gang "):
            return key or ""
        gang = self._gangs.gangs.get(key.removeprefix("gang "))
        return key if gang is None else f"gang {gang.group.id}"

    def pods_of(self, info: PodInfo) -> Sequence[PodInfo]:
        key = self._key_of.get(info.uid)
        if key is None:
            return super().pods_of(info)
        gang = self._gangs.gangs.get(key.removeprefix("gang "))
        keys: Iterable[str] = (key,)
        if gang is not None and key.startswith("gang "):
            keys = (f"gang {group_id}" for group_id in gang.group.ids)
        pods = [pod for key in keys for pod in self._pods.get(key, {}).values()]
        return sorted(pods, key=lambda pod: pod.key)

    def rank(self, pods: Sequence[PodInfo], priority: int, violations: int) -> tuple[int, ...]:
        return -priority, -violations, -len(pods)

    def pod_placed(self, info: PodInfo) -> None:
        key = _key(info.pod)
        if key:
            self._key_of[info.uid] = key
            self._pods.setdefault(key, {})[info.uid] = info

    def pod_gone(self, info: PodInfo) -> None:
        key = self._key_of.pop(info.uid, None)
        if key is not None:
            pods = self._pods[key]
            del pods[info.uid]
            if not pods:
                del self._pods[key]

    def pod_changed(self, info: PodInfo, before: Pod) -> None:
        if _key(info.pod) != _key(before):
            self.pod_gone(info)
            self.pod_placed(info)


def _key(pod: Pod) -> str:
    metadata = pod.metadata
    label = metadata.labels.get(JOB_LABEL)
    if label:
        return f"job {metadata.namespace}/{label}"
    name = gang_name(pod)
    return f"gang {metadata.namespace}/{name}" if name and pod.spec.scheduling_group is None else ""
