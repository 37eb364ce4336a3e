"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, numbered; what it rolls back to.

Follows `pkg/controller/history`. `data` is the patch that `kubectl rollout undo` sends.
"""

from harness.apiserver.controllers.control import Control
from harness.apiserver.controllers.owners import Dependents, reference_to
from harness.apiserver.controllers.templates import template_hash
from harness.apiserver.discovery.resources import Resource
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.options import Options
from harness.apiserver.storage.store import CollectionKey, Item, Object

REVISIONS: CollectionKey = ("apps", "controllerrevisions")
HASH_LABEL = "controller-revision-hash"


class Revisions:
    """The history of the objects of one kind."""

    def __init__(self, control: Control, owners: Resource) -> None:
        self._control, self._owners = control, owners
        self._resource = control.resource(REVISIONS)
        self._owned = Dependents(control.objects, REVISIONS)
        self._owned.follow(owners)

    def claim(self, owner: Item) -> list[Item]:
        """All revisions of `owner`, oldest first; orphans that it selects become its own."""
        return sorted(self._owned.claim(self._owners, owner), key=lambda one: (number_of(one), one.key[1]))

    def current(self, owner: Item, known: list[Item]) -> Item:
        """The revision of the present template, the newest of all; made or moved to the front if it is not.

        Raises:
            ApiStatusError: it cannot be made.
        """
        data = _data(owner.obj)
        newest = number_of(known[-1]) if known else 0
        same = [one for one in known if one.obj.get("data") == data]
        if same:
            found = same[-1]
            if number_of(found) == newest:
                return found
            body = {**found.obj, "metadata": dict(found.obj["metadata"]), "revision": newest + 1}
            return self._control.objects.collection(self._resource).put(found.key, body)
        return self._create(owner, data, newest + 1)

    def _create(self, owner: Item, data: Object, number: int) -> Item:
        collisions: int | None = None
        template = owner.obj["spec"]["template"]
        while True:
            mark = template_hash(template, collisions)
            labels = dict((template.get("metadata") or {}).get("labels") or {})
            body: Object = {
                "metadata": {
                    "name": f"{owner.key[1]}-{mark}",
                    "labels": {**labels, HASH_LABEL: mark},
                    "ownerReferences": [reference_to(self._owners, owner.obj)],
                },
                "data": self._control.copied(data),
                "revision": number,
            }
            annotations = owner.obj["metadata"].get("annotations")
            if annotations:
                body["metadata"]["annotations"] = dict(annotations)
            try:
                return self._control.objects.create(self._resource, owner.key[0], body, Options())
            except ApiStatusError as refused:
                if refused.reason != "AlreadyExists":
                    raise
                collisions = (collisions or 0) + 1

    def forget(self, known: list[Item], used: set[str], *, limit: int) -> None:
        """Delete the oldest revisions beyond `limit` that no pod has and that `used` does not name."""
        idle = [one for one in known if one.key[1] not in used]
        for one in idle[: max(0, len(idle) - limit)]:
            self._control.delete(self._resource, one)


def number_of(revision: Item) -> int:
    return int(revision.obj.get("revision", 0))


def mark_of(revision: Item) -> str:
    """The hash that pods of this revision carry in their label."""
    return str((revision.obj["metadata"].get("labels") or {}).get(HASH_LABEL, revision.key[1]))


def template_of(revision: Item) -> Object:
    """The pod template as it was."""
    template = dict(revision.obj["data"]["spec"]["template"])
    template.pop("$patch", None)
    return template


def _data(owner: Object) -> Object:
    return {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
