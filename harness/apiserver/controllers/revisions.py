"""ControllerRevisions: the numbered template history of a StatefulSet or DaemonSet, used for rollbacks.

Follows `pkg/controller/history`. `data` is the patch that `kubectl rollout undo` sends.
"""

from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.owners import Dependents, reference_to
from seatrial.harness.apiserver.controllers.templates import template_hash
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import CollectionKey, Item, Object

REVISIONS: CollectionKey = ("apps", "controllerrevisions")
HASH_LABEL = "controller-revision-hash"


class Revisions:
    """Reads and writes the revision history of one kind of owner."""

    def __init__(self, control: Control, owners: Resource) -> None:
        self._control, self._owners = control, owners
        self._resource = control.resource(REVISIONS)
        self._owned = Dependents(control.objects, REVISIONS)
        self._owned.follow(owners)

    def claim(self, owner: Item) -> list[Item]:
        """All revisions of `owner`, oldest first; matching orphans are adopted."""
        return sorted(
            self._owned.claim(self._owners, owner), key=lambda revision: (number_of(revision), revision.key[1])
        )

    def current(self, owner: Item, known: list[Item]) -> Item:
        """The revision of the current template, created or renumbered so that it has the highest number.

        Raises:
            ApiStatusError: it cannot be created.
        """
        data = _data(owner.obj)
        newest = number_of(known[-1]) if known else 0
        same = [revision for revision in known if revision.obj.get("data") == data]
        if same:
            item = same[-1]
            if number_of(item) == newest:
                return item
            body = {**item.obj, "metadata": dict(item.obj["metadata"]), "revision": newest + 1}
            return self._control.objects.store_change(self._resource.key, item, body)
        return self._create(owner, data, newest + 1)

    def _create(self, owner: Item, data: Object, number: int) -> Item:
        collisions: int | None = None
        template = owner.obj["spec"]["template"]
        while True:
            hash_ = template_hash(template, collisions)
            labels = dict((template.get("metadata") or {}).get("labels") or {})
            body: Object = {
                "metadata": {
                    "name": f"{owner.key[1]}-{hash_}",
                    "labels": {**labels, HASH_LABEL: hash_},
                    "ownerReferences": [reference_to(self._owners, owner.obj)],
                },
                "data": self._control.copied(data),
                "revision": number,
            }
            annotations = owner.obj["metadata"].get("annotations")
            if annotations:
                body["metadata"]["annotations"] = dict(annotations)
            try:
                return self._control.objects.create(
                    self._resource, owner.key[0], body, Options(manager=CONTROLLER_MANAGER)
                )
            except ApiStatusError as refused:
                if refused.reason != "AlreadyExists":
                    raise
                collisions = (collisions or 0) + 1

    def prune(self, known: list[Item], used: set[str], *, limit: int) -> None:
        """Delete the oldest revisions beyond `limit`, except those named in `used`."""
        idle = [revision for revision in known if revision.key[1] not in used]
        for revision in idle[: max(0, len(idle) - limit)]:
            self._control.delete(self._resource, revision)


def number_of(revision: Item) -> int:
    """The revision's number; 0 if it has none."""
    return int(revision.obj.get("revision", 0))


def hash_of(revision: Item) -> str:
    """The hash in the label of this revision's pods."""
    return str((revision.obj["metadata"].get("labels") or {}).get(HASH_LABEL, revision.key[1]))


def template_of(revision: Item) -> Object:
    """The pod template of the revision."""
    template = dict(revision.obj["data"]["spec"]["template"])
    template.pop("$patch", None)
    return template


def _data(owner: Object) -> Object:
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
