"""The volume claims of a StatefulSet's pods: made with the pod, kept or deleted as the retention policy says."""

from harness.apiserver.controllers.control import Control
from harness.apiserver.controllers.owners import reference_to
from harness.apiserver.discovery.resources import Resource
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.options import Options
from harness.apiserver.storage.store import CollectionKey, Item, Object

CLAIMS: CollectionKey = ("", "persistentvolumeclaims")


class Claims:
    """One for all StatefulSets."""

    def __init__(self, control: Control, owners: Resource) -> None:
        self._control, self._owners = control, owners
        self._resource = control.resource(CLAIMS)

    def furnish(self, item: Item, ordinal: int, pod_spec: Object) -> None:
        """Make the claims of pod `ordinal` that are not there, and mount them in `pod_spec`.

        Raises:
            ApiStatusError: a claim cannot be made.
        """
        templates = item.obj["spec"].get("volumeClaimTemplates") or ()
        if not templates:
            return
        names = {one["metadata"]["name"] for one in templates}
        volumes = [one for one in pod_spec.get("volumes") or () if one.get("name") not in names]
        for one in templates:
            name = _name(one, item, ordinal)
            volumes.append({"name": one["metadata"]["name"], "persistentVolumeClaim": {"claimName": name}})
            if self._control.get(self._resource, (item.key[0], name)) is None:
                self._create(item, one, name)
        pod_spec["volumes"] = volumes

    def _create(self, item: Item, template: Object, name: str) -> None:
        copied = self._control.copied(template)
        own = copied.get("metadata") or {}
        selected = (item.obj["spec"].get("selector") or {}).get("matchLabels") or {}
        metadata = {"name": name, "labels": {**(own.get("labels") or {}), **selected}}
        if own.get("annotations"):
            metadata["annotations"] = own["annotations"]
        body = {"metadata": metadata, "spec": copied.get("spec") or {}}
        try:
            self._control.objects.create(self._resource, item.key[0], body, Options())
        except ApiStatusError as refused:
            if refused.reason != "AlreadyExists":
                raise

    def keep_policy(self, item: Item, pods: dict[int, Item], wanted: range) -> None:
        """Let the garbage collector have the claims that are to go: with the set, or with a pod that is too much."""
        templates = item.obj["spec"].get("volumeClaimTemplates") or ()
        policy = item.obj["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
        if not templates:
            return
        with_set, with_pod = policy.get("whenDeleted") == "Delete", policy.get("whenScaled") == "Delete"
        for ordinal, pod in pods.items():
            owners: list[Object] = []
            if with_pod and ordinal not in wanted:
                owners = [{"apiVersion": "v1", "kind": "Pod", "name": pod.key[1], "uid": pod.obj["metadata"]["uid"]}]
            elif with_set:
                owners = [reference_to(self._owners, item.obj)]
            ours = {item.obj["metadata"]["uid"], pod.obj["metadata"]["uid"]}
            for one in templates:
                self._own(item.key[0], _name(one, item, ordinal), owners, ours)

    def _own(self, namespace: str, name: str, owners: list[Object], ours: set[str]) -> None:
        claim = self._control.get(self._resource, (namespace, name))
        if claim is None:
            return
        metadata = dict(claim.obj["metadata"])
        have = metadata.get("ownerReferences") or []
        wanted = [*(one for one in have if one.get("uid") not in ours), *owners]
        if wanted == have:
            return
        metadata["ownerReferences"] = wanted
        if not wanted:
            del metadata["ownerReferences"]
        self._control.objects.collection(self._resource).put(claim.key, {**claim.obj, "metadata": metadata})


def _name(template: Object, item: Item, ordinal: int) -> str:
    return f"{template['metadata']['name']}-{item.key[1]}-{ordinal}"
