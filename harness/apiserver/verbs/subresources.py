"""The subresources binding, eviction and scale."""

from typing import Any

import msgspec

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.label_selectors import LabelSelector
from seatrial.harness.apiserver.patching.patch import PatchError, json_patch, merge_patch
from seatrial.harness.apiserver.request.options import DeleteOptions
from seatrial.harness.apiserver.request.request import check_delete_options
from seatrial.harness.apiserver.schemas.shapes import TypeMismatch, conform, report_unknown_fields, unknown_fields
from seatrial.harness.apiserver.storage.store import Item, Key, Object
from seatrial.harness.apiserver.verbs.deletion import check_preconditions
from seatrial.harness.apiserver.verbs.objects import Objects
from seatrial.harness.apiserver.verbs.patch_errors import of_mismatch, of_problems
from seatrial.scheduler.api.transport import JSON_PATCH, STRATEGIC_MERGE_PATCH

BUDGETS = ("policy", "poddisruptionbudgets")


def bind(objects: Objects, pods: Resource, key: Key, body: Object, *, dry_run: bool) -> None:
    """Bind a pod to a node and copy the annotations and labels of the Binding to the pod.

    Raises:
        ApiStatusError: the pod does not exist, is being deleted, gated or bound, or the Binding names no node.
    """
    entry = body.get("metadata") or {}
    _check_name(entry, key, "Binding")
    target = body.get("target") or {}
    node = target.get("name")
    if not node:
        raise errors.invalid(
            "Binding",
            "",
            key[1],
            f'Binding "{key[1]}" is invalid: target.name: Required value',
            [{"reason": "FieldValueRequired", "message": "Required value", "field": "target.name"}],
        )
    if target.get("kind", "Node") not in {"", "Node"}:
        text = f'Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise errors.invalid(
            "Binding",
            "",
            key[1],
            f'Binding "{key[1]}" is invalid: target.kind: {text}',
            [{"reason": "FieldValueNotSupported", "message": text, "field": "target.kind"}],
        )
    item = objects.find(pods, key)
    pod = item.obj
    metadata, spec = pod["metadata"], pod["spec"]
    if entry.get("uid") and entry["uid"] != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {entry['uid']}, UID in object meta: {metadata['uid']}"
        raise errors.conflict("pods/binding", "", key[1], why)
    if entry.get("resourceVersion") and entry["resourceVersion"] != metadata["resourceVersion"]:
        why = (
            f"Precondition failed: ResourceVersion in precondition: {entry['resourceVersion']},"
            f" ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
        raise errors.conflict("pods/binding", "", key[1], why)
    if "deletionTimestamp" in metadata:
        raise errors.conflict(
            "pods/binding", "", key[1], f"pod {key[1]} is being deleted, cannot be assigned to a host"
        )
    if spec.get("nodeName"):
        why = f'pod {key[1]} is already assigned to node "{spec["nodeName"]}"'
        raise errors.conflict("pods/binding", "", key[1], why)
    if spec.get("schedulingGates"):
        raise errors.conflict("pods/binding", "", key[1], f"pod {key[1]} has non-empty .spec.schedulingGates")
    if dry_run:
        return
    now = objects.clock.timestamp()
    status = pod.get("status") or {}
    conditions = [row for row in status.get("conditions") or () if row.get("type") != "PodScheduled"]
    conditions.append({"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now})
    changed = dict(metadata)
    for field in ("annotations", "labels"):
        if entry.get(field):
            changed[field] = {**(metadata.get(field) or {}), **entry[field]}
    bound = {  # the generation stays, as upstream
        **pod,
        "metadata": changed,
        "spec": {**spec, "nodeName": node},
        "status": {**status, "conditions": conditions},
    }
    bound["status"].pop("nominatedNodeName", None)
    objects.write(pods, item, bound)


def evict(objects: Objects, pods: Resource, key: Key, body: Object, *, dry_run: bool) -> None:
    """Delete a pod unless a PodDisruptionBudget forbids it.

    Raises:
        ApiStatusError: 404; 409, a precondition fails; 429, the budget allows no disruption; 500, several budgets
            select the pod.
    """
    _check_name(body.get("metadata") or {}, key, "Eviction")
    item = objects.find(pods, key)
    requested: dict[str, Any] = body.get("deleteOptions") or {}
    check_delete_options(requested)
    options = DeleteOptions(
        grace=requested.get("gracePeriodSeconds"),
        uid=(requested.get("preconditions") or {}).get("uid", ""),
        version=(requested.get("preconditions") or {}).get("resourceVersion", ""),
        dry_run=dry_run or bool(requested.get("dryRun")),
    )
    phase = item.obj.get("status", {}).get("phase")
    if phase not in {"Succeeded", "Failed", "Pending"} and "deletionTimestamp" not in item.obj["metadata"]:
        _charge_budget(objects, item, dry_run=options.dry_run)
    check_preconditions(pods, item, options)  # upstream's addConditionAndDeletePod checks them before it writes
    if not options.dry_run and not options.version and "deletionTimestamp" not in item.obj["metadata"]:
        why = "Eviction API: evicting"
        objects.write(pods, item, disrupted(item.obj, "EvictionByEvictionAPI", why, objects.clock.timestamp()))
    objects.delete(pods, key, options)


def disrupted(pod: Object, reason: str, message: str, now: str) -> Object:
    """A copy of the pod with the condition DisruptionTarget, which Jobs use to distinguish disruptions from failures.

    `now` is RFC 3339.
    """
    status = pod.get("status") or {}
    conditions = [row for row in status.get("conditions") or () if row.get("type") != "DisruptionTarget"]
    conditions.append(
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
    )
    return {**pod, "metadata": dict(pod["metadata"]), "status": {**status, "conditions": conditions}}


def _check_name(metadata: Object, key: Key, kind: str) -> None:
    if metadata.get("name", "") != key[1]:
        raise errors.bad_request(f"name in URL does not match name in {kind} object")


def _charge_budget(objects: Objects, pod: Item, *, dry_run: bool) -> None:
    """Use up one disruption of the budget that selects the pod, if there is one."""
    collection = objects.store.collection(BUDGETS)
    labels = pod.obj["metadata"].get("labels") or {}
    budgets = [budget for budget in collection.each(pod.key[0]) if _selects(budget.obj, labels)]
    if not budgets:
        return
    if len(budgets) > 1:
        raise errors.internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    budget = budgets[0]
    status = budget.obj.get("status") or {}
    name = budget.key[1]
    if status.get("observedGeneration", 0) < budget.obj["metadata"].get("generation", 0):
        raise errors.too_many(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            retry_after=10,
            causes=[
                {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {name} is still being processed by the server.",
                }
            ],
        )
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        text = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        raise errors.too_many(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            retry_after=0,
            causes=[{"reason": "DisruptionBudget", "message": text}],
        )
    if dry_run:
        return
    disrupted = {**(status.get("disruptedPods") or {}), pod.key[1]: objects.clock.timestamp()}
    charged = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
    collection.put(budget.key, {**budget.obj, "metadata": dict(budget.obj["metadata"]), "status": charged})


def _selects(budget: Object, labels: dict[str, str]) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and msgspec.convert(selector, LabelSelector).matches(labels)


# -- scale ------------------------------------------------------------------------------------------------------------


def scale_of(resource: Resource, item: Item) -> Object:
    """The Scale of a workload, or of a custom resource by the paths in its CRD.

    Raises:
        ApiStatusError: 404, this kind cannot be scaled.
    """
    metadata = item.obj["metadata"]
    spec_path, status_path, selector_path = _scale_paths(resource)
    selector = _at(item.obj, selector_path)
    scale: Object = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            name: metadata[name]
            for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if name in metadata
        },
        "spec": {"replicas": replicas} if (replicas := _at(item.obj, spec_path)) else {},  # without zero, as upstream
        "status": {"replicas": _at(item.obj, status_path) or 0},
    }
    if selector:
        scale["status"]["selector"] = selector if isinstance(selector, str) else _selector_text(selector)
    return scale


def patched_scale(scale: Object, kind: str, patch: Any, strictness: str, warnings: list[str]) -> Object:
    """The Scale after a patch. Scale has no lists, so a strategic merge patch is a merge patch.

    `strictness` is what happens to unknown fields, as in `Options`.

    Raises:
        ApiStatusError: the patch does not apply, or the result is not a Scale.
    """
    try:
        body = json_patch(scale, patch) if kind == JSON_PATCH else merge_patch(scale, patch)
    except PatchError as error:
        raise errors.of_patch(error.reason, str(error)) from error
    if not isinstance(body, dict):
        raise errors.bad_request("the patched Scale: expected an object, found another type")
    strategic = patch if kind == STRATEGIC_MERGE_PATCH else None
    try:
        shaped, unknown = conform("autoscaling/v1", "Scale", body)
    except ApiStatusError as error:
        if isinstance(error.__cause__, TypeMismatch):
            raise of_mismatch(error.__cause__, body, strategic) from error
        raise
    if unknown and strictness == "Strict":
        raise of_problems(unknown_fields(unknown), body, strategic)
    report_unknown_fields("Scale", "v1", unknown, strictness, warnings)
    return dict(shaped)


def check_put_scale(scale: Object, name: str) -> None:
    """
    Raises:
        ApiStatusError: 400, the object is no Scale, or the Scale of another object.
    """
    if scale.get("kind", "Scale") != "Scale" or scale.get("apiVersion", "autoscaling/v1") != "autoscaling/v1":
        raise errors.bad_request(
            f"{scale.get('kind')} in version {str(scale.get('apiVersion'))!r} cannot be handled as a Scale:"
            " expected autoscaling/v1, Kind=Scale"
        )
    entry = (scale.get("metadata") or {}).get("name")
    if entry and entry != name:
        raise errors.bad_request(f"the name of the object ({entry}) does not match the name on the URL ({name})")


def rescaled(resource: Resource, item: Item, scale: Object) -> Object:
    """The object with the replicas of a Scale.

    Raises:
        ApiStatusError: the number is missing or negative.
    """
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise errors.invalid(
            "Scale",
            "autoscaling",
            item.key[1],
            f'Scale.autoscaling "{item.key[1]}" is invalid: spec.replicas: {text}',
            [{"reason": "FieldValueInvalid", "message": text, "field": "spec.replicas"}],
        )
    spec_path, _, _ = _scale_paths(resource)
    metadata = {**item.obj["metadata"]}
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        metadata["resourceVersion"] = version
    return _with({**item.obj, "metadata": metadata}, spec_path, replicas)


def checked_scale(scale: Object) -> Object:
    """A Scale that was applied, in its shape.

    Raises:
        ApiStatusError: a field has a wrong type, or, 500 as upstream, does not exist.
    """
    shaped, unknown = conform("autoscaling/v1", "Scale", scale)
    if unknown:
        name = (shaped.get("metadata") or {}).get("name") or ""
        raise errors.ApiStatusError(
            500,
            "",
            f"failed to create typed patch object (/{name}; autoscaling/v1, Kind=Scale): .{unknown[0]}:"
            " field not declared in schema",
        )
    return dict(shaped)


def scale_config(resource: Resource, item: Item, scale: Object) -> Object:
    """The configuration of the scaled object that sets what the Scale sets.

    Raises:
        ApiStatusError: the number of replicas is negative.
    """
    rescaled(resource, item, scale)
    stated = scale.get("metadata") or {}
    metadata = {name: stated[name] for name in ("name", "namespace", "uid", "resourceVersion") if stated.get(name)}
    config: Object = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
    replicas = (scale.get("spec") or {}).get("replicas")
    return config if replicas is None else _with(config, _scale_paths(resource)[0], replicas)


def _scale_paths(resource: Resource) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    if resource.custom is None:
        return ("spec", "replicas"), ("status", "replicas"), ("spec", "selector")
    scale = (resource.custom.get("subresources") or {}).get("scale") or {}

    def path(name: str) -> tuple[str, ...]:
        return tuple(part for part in scale.get(name, "").split(".") if part)

    return path("specReplicasPath"), path("statusReplicasPath"), path("labelSelectorPath")


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return None
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _with(obj: Object, path: tuple[str, ...], value: Any) -> Object:
    if len(path) == 1:
        return {**obj, path[0]: value}
    return {**obj, path[0]: _with(obj.get(path[0]) or {}, path[1:], value)}


def _selector_text(selector: Object) -> str:
    parts = [
        f"{key}={value}"
        for key, value in sorted((selector.get("matchLabels") or selector).items())
        if isinstance(value, str)
    ]
    return ",".join(parts)
