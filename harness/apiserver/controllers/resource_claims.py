"""ResourceClaims of pods and PodGroups: creation from templates, and what becomes of claims that are no longer used.

Follows `pkg/controller/resourceclaim/controller.go`. A claim that a pod needs is named in the pod's
`status.resourceClaimStatuses`. When its last user has ended, the claim loses its devices. A pod's entry that equals one
of its PodGroup means the group's claim, which has the group as its user (DRA-R124).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from seatrial.harness.apiserver.admission.pod_groups import POD_GROUPS
from seatrial.harness.apiserver.attempts import Pending
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.event_recorder import WARNING
from seatrial.harness.apiserver.controllers.owners import Dependents, controller_of
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.errors import invalid as invalid_object
from seatrial.harness.apiserver.field_errors import details, forbidden, message
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object

CLAIMS: Final[CollectionKey] = ("resource.k8s.io", "resourceclaims")
TEMPLATES: Final[CollectionKey] = ("resource.k8s.io", "resourceclaimtemplates")
NAMESPACES: Final[CollectionKey] = ("", "namespaces")
ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_NEEDS_LABEL: Final = (
    "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
)
SLICES: Final[CollectionKey] = ("resource.k8s.io", "resourceslices")
TAINT_RULES: Final[CollectionKey] = ("resource.k8s.io", "devicetaintrules")
STAMPED: Final = frozenset({SLICES, TAINT_RULES})  # with the times of their taints
COMPONENT = "resource_claim"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
ENTRY: Final = "resource.kubernetes.io/pod-claim-name"
WEBHOOK_PERIOD = 1.0  # seconds after which a creation that waits for a webhook is looked at again
_MAX_PREFIX = 57  # characters of a generated name without its random part
_OF_USERS: Final = frozenset({"allocation", "devices", "reservedFor"})  # fields of a status
_FINISHED = frozenset({"Succeeded", "Failed"})
_SOURCES: Final = ("name", "resourceClaimName", "resourceClaimTemplateName")


@dataclass(frozen=True, slots=True)
class _Kind:
    """Objects that claims are made for: pods or PodGroups."""

    resource: Resource
    queue: WorkQueue[Key]
    waiting: dict[Key, set[Key]]  # template → those that wait for it


class ResourceClaims:
    """Reconciles pods and PodGroups with claims, and claims."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._pods, self._claims = control.pods, control.resource(CLAIMS)
        self._templates = control.resource(TEMPLATES)
        self._pod_queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync_pod)
        self._claim_queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync_claim)
        self._of_pods = _Kind(self._pods, self._pod_queue, {})
        self._groups = control.resource(POD_GROUPS)
        self._of_groups = _Kind(self._groups, WorkQueue(control.clock, self._sync_group), {})
        self._dependents = Dependents(control.objects, CLAIMS)
        self._synced: Key | None = None  # the pod that is being synced; what is written for it is no news
        control.objects.collection(self._groups).listen(self._group_changed)
        control.objects.collection(self._pods).listen(self._pod_changed)
        control.objects.collection(self._claims).listen(self._claim_changed)
        control.objects.collection(self._templates).listen(self._template_changed)

    # -- admission -----------------------------------------------------------------------------------------------------

    def admit(self, resource: Resource, body: Object, _old: Object | None, _subresource: str) -> None:
        """Complete a slice or a rule."""
        spec = body.get("spec") or {}
        if resource.key == SLICES:
            self._stamp(taint for device in spec.get("devices") or () for taint in device.get("taints") or ())
        else:
            self._stamp([spec["taint"]] if spec.get("taint") else [])

    def _stamp(self, taints: Iterable[Object]) -> None:
        """Taints have the time of their addition (DRA-R1)."""
        for taint in taints:
            taint.setdefault("timeAdded", self._control.clock.timestamp())

    def check_access(self, resource: Resource, body: Object, old: Object | None, _subresource: str) -> None:
        """Check a new claim or template for administrators.

        Their access needs a label of the namespace (`pkg/registry/resource/utils.go`, DRA-R8).

        Raises:
            ApiStatusError: 422, it has no such label.
        """
        if old is not None or resource.key not in {CLAIMS, TEMPLATES}:
            return
        path, spec = "spec", body.get("spec") or {}
        if resource.key == TEMPLATES:
            path, spec = "spec.spec", spec.get("spec") or {}
        causes = [
            forbidden(f"{path}.devices.requests[{index}].adminAccess", _NEEDS_LABEL)
            for index, request in enumerate((spec.get("devices") or {}).get("requests") or ())
            if (request.get("exactly") or {}).get("adminAccess")
        ]
        if not causes:
            return
        metadata = body["metadata"]
        namespace = self._control.get(self._control.resource(NAMESPACES), ("", metadata.get("namespace") or ""))
        labels = (namespace.obj["metadata"].get("labels") or {}) if namespace is not None else {}
        if labels.get(ADMIN_LABEL) != "true":
            name = metadata.get("name") or ""
            text = message(f"{resource.kind}.{resource.group}", name, causes)
            raise invalid_object(resource.kind, resource.group, name, text, details(causes))

    # -- events --------------------------------------------------------------------------------------------------------

    def _pod_changed(self, change: Change) -> None:
        pod = change.new or change.old
        if pod is None or not (pod.obj["spec"].get("resourceClaims") or _extended(pod.obj)):
            return
        if change.new is not None and change.key != self._synced:
            self._pod_queue.add(change.key)
        if change.new is None or is_done(change.new.obj):
            for name in claim_names(pod.obj):
                self._claim_queue.add((change.key[0], name))

    def _claim_changed(self, change: Change) -> None:
        claim = change.new or change.old
        owner = controller_of(claim.obj) if claim is not None else None
        key = (change.key[0], owner["name"] if owner is not None else "")
        if key == self._synced:
            return
        if change.new is not None:
            self._claim_queue.add(change.key)
        once = change.new is None or change.old is None
        for kind in (self._of_pods, self._of_groups):
            owns = owner is not None and owner.get("kind") == kind.resource.kind
            if owns and (once or kind is self._of_groups or self._has_node(key)):
                kind.queue.add(key)

    def _has_node(self, key: Key) -> bool:
        """Whether the pod is on a node: a change of its claim concerns no other pod."""
        pod = self._control.get(self._pods, key)
        return pod is not None and bool(pod.obj["spec"].get("nodeName"))

    def _template_changed(self, change: Change) -> None:
        for kind in (self._of_pods, self._of_groups):
            for key in kind.waiting.pop(change.key, ()):
                kind.queue.add(key)

    def _group_changed(self, change: Change) -> None:
        group = change.new or change.old
        if group is None or not group.obj["spec"].get("resourceClaims"):
            return
        if change.new is not None:
            self._of_groups.queue.add(change.key)
        else:
            for name in claim_names(group.obj):
                self._claim_queue.add((change.key[0], name))

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _sync_pod(self, key: Key) -> None:
        pod = self._control.get(self._pods, key)
        if pod is None or is_done(pod.obj) or "deletionTimestamp" in pod.obj["metadata"]:
            self._pod_queue.forget(key)
            return
        self._synced = key
        try:
            names = self._names(self._of_pods, pod)
            if names is None:
                return
            self._record(self._of_pods, pod, names)
            current = self._control.get(self._pods, key)
            if current is not None and current.obj["spec"].get("nodeName"):
                self._reserve(current)
        finally:
            self._synced = None
        self._pod_queue.forget(key)

    def _sync_group(self, key: Key) -> None:
        """The claims that all pods of a group share; the pods name them after that."""
        group, queue = self._control.get(self._groups, key), self._of_groups.queue
        if group is None or "deletionTimestamp" in group.obj["metadata"]:
            queue.forget(key)
            return
        names = self._names(self._of_groups, group)
        if names is None:
            return
        self._record(self._of_groups, group, names)
        for pod in self._control.objects.collection(self._pods).each(key[0]):
            if group_of(pod.obj) == key[1] and pod.obj["spec"].get("resourceClaims"):
                self._pod_queue.add(pod.key)
        queue.forget(key)

    def _names(self, kind: _Kind, owner: Item) -> dict[str, str] | None:
        """The claims by the entries with a template; None as long as one of them is not there."""
        status = owner.obj.get("status") or {}
        names = {entry["name"]: entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or ()}
        for entry in owner.obj["spec"].get("resourceClaims") or ():
            template = entry.get("resourceClaimTemplateName")
            if not template:
                continue
            group = self._group_with(owner, entry) if kind is self._of_pods else None
            name = self._owned(group or owner, entry["name"], names.get(entry["name"]))
            if name is None and group is not None:
                return None  # asked again when the group's claim is there
            if name is None:
                name, problem = self._create(kind, owner, entry["name"], template)
                if problem:
                    message = f"{kind.resource.kind}ResourceClaim {entry['name']}: {problem}"
                    self._control.recorder.record(
                        COMPONENT, kind.resource, owner, WARNING, "FailedResourceClaimCreation", message
                    )
                    kind.queue.add_rate_limited(owner.key)
                if not name:
                    return None
            names[entry["name"]] = name
        return {entry: name for entry, name in names.items() if name}

    def _record(self, kind: _Kind, owner: Item, names: dict[str, str]) -> None:
        """Write the names of the claims into the status."""
        results = [{"name": entry, "resourceClaimName": name} for entry, name in sorted(names.items())]
        current = self._control.get(kind.resource, owner.key)
        if results and current is not None and current.obj["metadata"]["uid"] == owner.obj["metadata"]["uid"]:
            status = current.obj.get("status") or {}
            if status.get("resourceClaimStatuses") != results:
                self._control.put_status(kind.resource, current, {**status, "resourceClaimStatuses": results})

    def _group_with(self, pod: Item, entry: Object) -> Item | None:
        """The pod's group, if it has the same entry (upstream `resourceclaim.BindTo`)."""
        name = group_of(pod.obj)
        group = self._control.get(self._groups, (pod.key[0], name)) if name else None
        own = [entry.get(field) for field in _SOURCES]
        same = group is not None and any(
            own == [other.get(field) for field in _SOURCES] for other in group.obj["spec"].get("resourceClaims") or ()
        )
        return group if same else None

    def _owned(self, owner: Item, entry: str, recorded: str | None) -> str | None:
        """The name of the claim that was made for the entry; None if there is none (any more)."""
        if recorded:
            claim = self._control.get(self._claims, (owner.key[0], recorded))
            return recorded if claim is not None and _is_owned(claim, owner) else None
        for claim in self._dependents.of(owner.obj["metadata"]["uid"]):
            annotations = claim.obj["metadata"].get("annotations") or {}
            if annotations.get(ENTRY) == entry and _is_owned(claim, owner):
                return claim.key[1]
        return None

    def _create(self, kind: _Kind, item: Item, entry: str, template: str) -> tuple[str, str]:
        """The name of a new claim, and the problem if there is none; neither while a webhook is called."""
        key = (item.key[0], template)
        record = self._control.get(self._templates, key)
        if record is None:
            kind.waiting.setdefault(key, set()).add(item.key)
            return (
                "",
                f'resource claim template "{template}": resourceclaimtemplate.resource.k8s.io "{template}" not found',
            )
        spec = self._control.copied(record.obj["spec"])
        value = spec.get("metadata") or {}
        head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
        owner = {**head, "name": item.key[1], "uid": item.obj["metadata"]["uid"], "controller": True}
        metadata: dict[str, Any] = {
            "generateName": generated(item.key[1], entry),
            "annotations": {**(value.get("annotations") or {}), ENTRY: entry},
            "ownerReferences": [owner],
        }
        if value.get("labels"):
            metadata["labels"] = value["labels"]
        body = {"metadata": metadata, "spec": spec.get("spec") or {}}
        try:
            made = self._control.objects.create(self._claims, item.key[0], body, Options(manager=CONTROLLER_MANAGER))
        except Pending:
            kind.queue.add_after(WEBHOOK_PERIOD, item.key)  # a refusal is not notified
            return "", ""
        except ApiStatusError as refused:
            return "", f"create ResourceClaim : {refused.message}"
        return made.key[1], ""

    def _reserve(self, pod: Item) -> None:
        """A pod that has its node without a scheduler may use its claims that have devices (DRA-R29)."""
        made = {one["name"]: one for one in (pod.obj.get("status") or {}).get("resourceClaimStatuses") or ()}
        for entry in pod.obj["spec"].get("resourceClaims") or ():
            name = entry.get("resourceClaimName") or (made.get(entry["name"]) or {}).get("resourceClaimName") or ""
            claim = self._control.get(self._claims, (pod.key[0], name))
            status = (claim.obj.get("status") or {}) if claim is not None else {}
            users = status.get("reservedFor") or []
            group = self._group_with(pod, entry)
            user = _consumer(self._pods, pod) if group is None else _consumer(self._groups, group)
            if claim is None or not status.get("allocation") or any(other["uid"] == user["uid"] for other in users):
                continue
            self._control.put_status(self._claims, claim, {**status, "reservedFor": [*users, user]})

    # -- claims --------------------------------------------------------------------------------------------------------

    def _sync_claim(self, key: Key) -> None:
        claim = self._control.get(self._claims, key)
        if claim is None:
            return
        status = claim.obj.get("status") or {}
        users = status.get("reservedFor") or []
        kept = [user for user in users if not self._is_gone(key[0], user)]
        deleted = "deletionTimestamp" in claim.obj["metadata"]
        if kept and kept != users:
            claim = self._control.put_status(self._claims, claim, {**status, "reservedFor": kept})
        elif not kept and (users or deleted):
            left = {name: value for name, value in status.items() if name not in _OF_USERS}
            claim = self._control.put_status(self._claims, claim, left)
            if FINALIZER in (claim.obj["metadata"].get("finalizers") or ()):
                claim = self._control.drop_finalizer(self._claims, claim, FINALIZER)
        if kept:
            return
        if self._is_left(claim) and self._control.get(self._claims, key) is not None:
            self._control.delete(self._claims, claim)

    def _is_gone(self, namespace: str, user: Object) -> bool:
        """Whether a pod or a group no longer uses its claims; users of other kinds are kept (DRA-R30)."""
        kind = user.get("apiGroup") or "", user.get("resource")
        if kind not in {self._pods.key, POD_GROUPS}:
            return False
        is_pod = kind == self._pods.key
        item = self._control.get(self._pods if is_pod else self._groups, (namespace, user.get("name") or ""))
        return item is None or item.obj["metadata"]["uid"] != user.get("uid") or (is_pod and is_done(item.obj))

    def _is_left(self, claim: Item) -> bool:
        """Whether it was made for a pod that has ended, or for another one of that name (DRA-R33)."""
        owner = controller_of(claim.obj)
        if owner is None or owner.get("kind") != self._pods.kind or "deletionTimestamp" in claim.obj["metadata"]:
            return False
        pod = self._control.get(self._pods, (claim.key[0], owner["name"]))
        return pod is not None and (pod.obj["metadata"]["uid"] != owner.get("uid") or is_done(pod.obj))


def generated(pod: str, entry: str) -> str:
    """The `generateName` of a claim; a long one is cut in proportion to its parts (DRA-R25)."""
    whole = f"{pod}-{entry}-"
    if len(whole) <= _MAX_PREFIX:
        return whole
    return f"{pod[: len(pod) * _MAX_PREFIX // len(whole)]}-{entry[: len(entry) * _MAX_PREFIX // len(whole)]}"


def is_done(pod: Object) -> bool:
    """Whether the pod has ended, or is deleted before it got a node."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in _FINISHED or ("deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName"))


def group_of(pod: Object) -> str:
    """The name of the pod's PodGroup of scheduling.k8s.io; "" if it has none."""
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def _is_owned(claim: Item, item: Item) -> bool:
    owner = controller_of(claim.obj)
    return owner is not None and owner.get("uid") == item.obj["metadata"]["uid"]


def _consumer(resource: Resource, item: Item) -> Object:
    """The user of a claim."""
    group = {"apiGroup": resource.group} if resource.group else {}
    return {**group, "resource": resource.plural, "name": item.key[1], "uid": item.obj["metadata"]["uid"]}


def claim_names(pod: Object) -> list[str]:
    """Names of the claims that a pod or PodGroup uses, its own and those made for it."""
    named = [entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims") or ()]
    made = [entry.get("resourceClaimName") for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()]
    return [name for name in (*named, *made, _extended(pod)) if name]


def _extended(pod: Object) -> str:
    """The name of the claim that a scheduler made for extended resources of the pod; "" if there is none."""
    status = pod.get("status") or {}
    return (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName") or ""
