"""A rig with PodGroups, and builders of gang members."""

from typing import Any

import msgspec

from seatrial.scheduler.api.builders import GangBuilder, PodBuilder, pod
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_NAME, POD_GROUP_LABEL, PodGroup
from seatrial.scheduler.plugins.coscheduling.cache import GangCache
from seatrial.scheduler.plugins.coscheduling.gang import Gang
from seatrial.scheduler.tests.rig import Rig


class GangRig(Rig):
    """A rig that is told of PodGroups as the informer tells the plugin."""

    @property
    def cache(self) -> GangCache:
        groups = self.core.handle.groups
        assert isinstance(groups, GangCache)
        return groups

    def gang(self, gang_id: str) -> Gang:
        return self.cache.gangs[gang_id]

    def group(self, builder: GangBuilder, **annotations: str) -> None:
        manifest: dict[str, Any] = builder.manifest
        manifest["metadata"].setdefault("namespace", "default")
        manifest["metadata"].setdefault("annotations", {}).update(
            {f"gang.scheduling.koordinator.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
        )
        self.cache.set_object(msgspec.convert(manifest, PodGroup))

    def held(self, name: str) -> str:
        """The words of what holds a pod back."""
        entry = self.core.queue.find(f"uid-{name}")
        assert entry is not None, f"{name} is not in the queue"
        return self.core.held_back(entry.info)

    def placed(self) -> list[str]:
        return sorted(name for name in self.pods if self.where(name))

    def waiting(self) -> list[str]:
        return sorted(name for name in self.pods if f"uid-{name}" in self.core.groups.members)


def member(name: str, gang: str, *, cpu: int = 1) -> PodBuilder:
    """A member of a PodGroup."""
    return pod(name).request(cpu=cpu).label(POD_GROUP_LABEL, gang)


def light(name: str, gang: str, minimum: str | None, *, cpu: int = 1) -> PodBuilder:
    """A member of an annotation gang."""
    built = pod(name).request(cpu=cpu).annotation(GANG_NAME, gang)
    return built if minimum is None else built.annotation(GANG_MIN, minimum)
