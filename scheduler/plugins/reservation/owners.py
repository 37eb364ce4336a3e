"""Index of reservation owners: finds the reservations that may match a pod without testing all of them.

Reservations with equal owners form one group. A group is filed under one property that its pods must have (a uid, a
name, a controller, a label), so that pods without reservation are recognised after a few lookups.
"""

from collections.abc import Iterable, Iterator

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.reservation import ControllerReference, ObjectReference, ReservationOwner
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.pods.selectors import selector_matches

Mark = tuple[str, ...]
ANYBODY: Mark = ()


class OwnerIndex:
    """Groups of owners with the number of reservations of each."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[ReservationOwner, ...]] = {}
        self._counts: dict[str, int] = {}
        self._filed: dict[Mark, dict[str, None]] = {}
        self.version = 0  # number of changes of the groups

    def __bool__(self) -> bool:
        return bool(self._owners)

    def add(self, owners: tuple[ReservationOwner, ...]) -> str:
        """Add a reservation's owners; returns the key of their group."""
        group = to_json(owners).decode()
        self._counts[group] = self._counts.get(group, 0) + 1
        if group not in self._owners:
            self._owners[group] = owners
            self.version += 1
            for mark in map(_mark, owners):
                self._filed.setdefault(mark, {})[group] = None
        return group

    def remove(self, group: str) -> None:
        """Remove one reservation of the group."""
        self._counts[group] -= 1
        if self._counts[group]:
            return
        del self._counts[group]
        self.version += 1
        for mark in set(map(_mark, self._owners.pop(group))):
            del self._filed[mark][group]
            if not self._filed[mark]:
                del self._filed[mark]

    def groups(self, pod: Pod) -> list[str]:
        """Keys of the groups that match `pod`, sorted."""
        if not self._filed:
            return []
        near = {group for mark in _marks(pod) for group in self._filed.get(mark, ())}
        return sorted(group for group in near if matches(self._owners[group], pod))

    def knows(self, pod: Pod) -> bool:
        """Whether `groups` would find any."""
        filed = self._filed
        return bool(filed) and any(
            matches(self._owners[group], pod) for mark in _marks(pod) if mark in filed for group in filed[mark]
        )


def matches(owners: Iterable[ReservationOwner], pod: Pod) -> bool:
    """Whether one of the owners matches (RSV-R17)."""
    return any(_owner_matches(owner, pod) for owner in owners)


def _owner_matches(owner: ReservationOwner, pod: Pod) -> bool:
    """Whether all that is given in `owner` holds for the pod (RSV-R17); the kind of an object is not compared."""
    return (
        (owner.object is None or _is_object(owner.object, pod))
        and (owner.controller is None or _controls(owner.controller, pod))
        and (owner.label_selector is None or selector_matches(owner.label_selector, pod.metadata.labels))
    )


def _is_object(pod_ref: ObjectReference, pod: Pod) -> bool:
    metadata = pod.metadata
    return (
        pod_ref.uid in {"", metadata.uid}
        and pod_ref.name in {"", metadata.name}
        and pod_ref.namespace in {"", metadata.namespace}
        and pod_ref.api_version in {"", "v1"}
    )


def _controls(controller_reference: ControllerReference, pod: Pod) -> bool:
    if controller_reference.namespace not in {"", pod.metadata.namespace}:
        return False
    return any(
        controller_reference.uid in {"", owner.uid}
        and controller_reference.name in {"", owner.name}
        and controller_reference.kind in {"", owner.kind}
        and controller_reference.api_version in {"", owner.api_version}
        and (controller_reference.controller is None or controller_reference.controller == owner.controller)
        for owner in pod.metadata.owner_references
    )


def _mark(owner: ReservationOwner) -> Mark:
    """One property that every pod of this owner has."""
    pod_ref, controller, selector = owner.object, owner.controller, owner.label_selector
    if pod_ref is not None and (pod_ref.uid or pod_ref.name):
        return ("uid", pod_ref.uid) if pod_ref.uid else ("name", pod_ref.name)
    if controller is not None and (controller.uid or controller.name):
        return ("by-uid", controller.uid) if controller.uid else ("by-name", controller.name)
    if selector is not None and selector.match_labels:
        return ("label", *min(selector.match_labels.items()))
    return ANYBODY


def _marks(pod: Pod) -> Iterator[Mark]:
    metadata = pod.metadata
    yield ANYBODY
    yield "uid", metadata.uid
    yield "name", metadata.name
    for key, value in metadata.labels.items():
        yield "label", key, value
    for reference in metadata.owner_references:
        yield "by-uid", reference.uid
        yield "by-name", reference.name
