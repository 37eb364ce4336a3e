"""The volume claims of a StatefulSet's pods: creation with the pod, and the retention policy."""

from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.owners import reference_to
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import CollectionKey, Item, Object

CLAIMS: CollectionKey = ("", "persistentvolumeclaims")


class Claims:
    """Creates the claims of StatefulSet pods and sets their owner references."""

    def __init__(self, control: Control, owners: Resource) -> None:
        self._control, self._owners = control, owners
        self._resource = control.resource(CLAIMS)

    def create_missing(self, item: Item, ordinal: int, pod_spec: Object) -> None:
        """Create the missing claims of pod `ordinal` and add their volumes to `pod_spec`.

        Raises:
            ApiStatusError: a claim cannot be created.
        """
        templates = item.obj["spec"].get("volumeClaimTemplates") or ()
        if not templates:
            return
        names = {claim["metadata"]["name"] for claim in templates}
        volumes = [volume for volume in pod_spec.get("volumes") or () if volume.get("name") not in names]
        for template in templates:
            name = _name(template, item, ordinal)
            volumes.append({"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": name}})
            if self._control.get(self._resource, (item.key[0], name)) is None:
                self._create(item, template, name)
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
            self._control.objects.create(self._resource, item.key[0], body, Options(manager=CONTROLLER_MANAGER))
        except ApiStatusError as refused:
            if refused.reason != "AlreadyExists":
                raise

    def apply_retention_policy(self, item: Item, pods: dict[int, Item], target: range) -> None:
        """Set owner references by the retention policy: a claim is deleted with the set, or with a surplus pod."""
        templates = item.obj["spec"].get("volumeClaimTemplates") or ()
        policy = item.obj["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
        if not templates:
            return
        with_set, with_pod = policy.get("whenDeleted") == "Delete", policy.get("whenScaled") == "Delete"
        for ordinal, pod in pods.items():
            owners: list[Object] = []
            if with_pod and ordinal not in target:
                owners = [{"apiVersion": "v1", "kind": "Pod", "name": pod.key[1], "uid": pod.obj["metadata"]["uid"]}]
            elif with_set:
                owners = [reference_to(self._owners, item.obj)]
            managed = {item.obj["metadata"]["uid"], pod.obj["metadata"]["uid"]}
            for template in templates:
                self._set_owners(item.key[0], _name(template, item, ordinal), owners, managed)

    def _set_owners(self, namespace: str, name: str, owners: list[Object], managed: set[str]) -> None:
        claim = self._control.get(self._resource, (namespace, name))
        if claim is None:
            return
        metadata = dict(claim.obj["metadata"])
        have = metadata.get("ownerReferences") or []
        targets = [*(owner for owner in have if owner.get("uid") not in managed), *owners]
        if targets == have:
            return
        metadata["ownerReferences"] = targets
        if not targets:
            del metadata["ownerReferences"]
        self._control.objects.store_change(self._resource.key, claim, {**claim.obj, "metadata": metadata})


def _name(template: Object, item: Item, ordinal: int) -> str:
    return f"{template['metadata']['name']}-{item.key[1]}-{ordinal}"
