"""Validation of pod updates, directly and through subresources.

The last check resets all mutable fields of the new spec to the old values and compares the specs. Upstream's message
adds a diff, which is omitted here.
"""

from collections.abc import Iterable
from typing import Any

from seatrial.harness.apiserver.defaults.qos import qos_class
from seatrial.harness.apiserver.field_errors import (
    Causes,
    duplicate,
    forbidden,
    immutable,
    invalid,
    not_found,
    required,
)
from seatrial.harness.apiserver.names import Object, dns_label, qualified, subdomain
from seatrial.harness.apiserver.schemas.formats import address
from seatrial.harness.apiserver.validation.placement import check_tolerations
from seatrial.harness.apiserver.validation.pods import MAX_SECONDS, check_pod_spec
from seatrial.harness.apiserver.validation.resources import check_requirements

_FIELDS = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)
_REFUSED = f"pod updates may not change fields other than {','.join(_FIELDS)}"
_NODE_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ADDRESSES = ("podIP", "podIPs", "hostIP", "hostIPs")
_IN_SPEC = "must match the {} of an entry in spec.initContainers.{} or spec.containers.{}"
_NO_CONTAINER = _IN_SPEC.format("name", "name", "name")
_NO_REQUEST = _IN_SPEC.format("extended resource name", "resources.requests", "resources.requests")
_RESIZABLE = frozenset({"cpu", "memory"})


def check_pod_update(pod: Object, old: Object, causes: Causes) -> None:
    """Check an update of the pod itself; metadata is checked elsewhere."""
    spec, before = pod.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return
    check_pod_spec(spec, "spec", causes)
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(before.get(field) or ()):
            causes.append(forbidden(f"spec.{field}", "pod updates may not add or remove containers"))
            return
    if not _check_deadline(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"), causes):
        return
    _check_tolerations(spec.get("tolerations") or [], before.get("tolerations") or [], causes)
    _check_gates(spec.get("schedulingGates") or [], before.get("schedulingGates") or [], causes)
    if not _is_same(_with_mutable_fields_reset(spec, before, causes), before):
        causes.append(forbidden("spec", _REFUSED))


def check_pod_status(pod: Object, old: Object, causes: Causes) -> None:
    """Check an update of `status`; metadata is checked elsewhere."""
    spec, before = pod.get("spec") or {}, old.get("spec") or {}
    status, status_before = pod.get("status") or {}, old.get("status") or {}
    _check_conditions(status.get("conditions") or (), causes)
    if (spec.get("nodeName") or "") != (before.get("nodeName") or ""):
        causes.append(forbidden("status.nodeName", "may not be changed directly"))
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != status_before.get("nominatedNodeName"):
        causes.extend(invalid("status.nominatedNodeName", nominated, problem) for problem in subdomain(nominated))
    _check_generation(status, "status", causes)
    if status_before.get("qosClass"):
        causes.extend(immutable("status.qosClass", status.get("qosClass"), status_before["qosClass"]))
    policy = before.get("restartPolicy")
    if policy != "Always":
        _check_ended(status, status_before, policy, causes)
    if status.get("resourceClaimStatuses"):
        _check_claim_statuses(status["resourceClaimStatuses"], spec.get("resourceClaims") or (), causes)
    if status.get("extendedResourceClaimStatus"):
        _check_extended(status["extendedResourceClaimStatus"], spec, causes)
    if any(status.get(field) != status_before.get(field) for field in _ADDRESSES):
        _check_all_addresses(status, status_before, causes)


def _check_all_addresses(status: Object, before: Object, causes: Causes) -> None:
    addresses = [entry.get("ip") or "" for entry in status.get("podIPs") or ()]
    if status.get("podIP") and status["podIP"] not in addresses[:1]:
        addresses = [status["podIP"]]  # the list belongs to another address, and upstream drops it
    _check_addresses("podIPs", addresses, before, causes)
    hosts = [entry.get("ip") or "" for entry in status.get("hostIPs") or ()]
    if hosts and hosts[0] != (status.get("hostIP") or ""):
        causes.append(invalid("status.hostIPs[0].ip", hosts[0], "must be equal to `hostIP`"))
    _check_addresses("hostIPs", hosts, before, causes)


def _check_generation(obj: Object, path: str, causes: Causes) -> None:
    if (obj.get("observedGeneration") or 0) < 0:
        causes.append(
            invalid(f"{path}.observedGeneration", obj["observedGeneration"], "must be a non-negative integer")
        )


def _check_conditions(conditions: Iterable[Object], causes: Causes) -> None:
    for index, condition in enumerate(conditions):
        path, kind = f"status.conditions[{index}]", condition.get("type") or ""
        _check_generation(condition, path, causes)
        causes.extend(invalid(f"{path}.Type", kind, problem) for problem in qualified(kind))


def _check_claim_statuses(statuses: list[Object], claims: Iterable[Object], causes: Causes) -> None:
    known = {claim.get("name") for claim in claims}
    seen: set[str] = set()
    for index, entry in enumerate(statuses):
        path, name = f"status.resourceClaimStatuses[{index}].name", entry.get("name") or ""
        if name not in known:
            causes.append(invalid(path, name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            causes.append(duplicate(path, name))
        seen.add(name)
        claim = entry.get("resourceClaimName")
        causes.extend(invalid(path, claim, problem) for problem in (subdomain(claim) if claim is not None else ()))


def _check_extended(status: Object, spec: Object, causes: Causes) -> None:
    """Check what a scheduler says of the claim for extended resources (`validatePodExtendedResourceClaimStatus`)."""
    path = "status.extendedResourceClaimStatus"
    containers = {
        container.get("name"): (container.get("resources") or {}).get("requests") or {}
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    }
    mappings = status.get("requestMappings") or ()
    if not mappings:
        causes.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    seen: set[tuple[str, ...]] = set()
    for index, mapping in enumerate(mappings):
        place = f"{path}.requestMappings[{index}]"
        fields = {name: mapping.get(name) or "" for name in ("containerName", "resourceName", "requestName")}
        requests, request = containers.get(fields["containerName"]), fields["requestName"]
        if requests is None:
            causes.append(invalid(f"{place}.containerName", fields["containerName"], _NO_CONTAINER))
        elif fields["resourceName"] not in requests:
            causes.append(invalid(f"{place}.resourceName", fields["resourceName"], _NO_REQUEST))
        causes.extend(invalid(f"{path}.requestName", request, problem) for problem in dns_label(request))
        if tuple(fields.values()) in seen:
            causes.extend(duplicate(f"{place}.{name}", value) for name, value in fields.items())
        seen.add(tuple(fields.values()))
    name = status.get("resourceClaimName") or ""
    if name:
        causes.extend(invalid(f"{path}.resourceClaimName", name, problem) for problem in subdomain(name))
    else:
        causes.append(required(f"{path}.resourceClaimName"))


def _check_addresses(field: str, addresses: list[str], before: Object, causes: Causes) -> None:
    """Check the addresses of a pod or its host: at most one of each family. Those of before may stay as they are."""
    path, kept = f"status.{field}", {entry.get("ip") for entry in before.get(field) or ()}
    versions = []
    for index, text in enumerate(addresses):
        try:
            versions.append(address(text).version)
        except ValueError:
            if text not in kept:
                problem = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
                causes.append(invalid(f"{path}[{index}]", text, problem))
    if len(addresses) > 1 and sorted(versions) != [4, 6]:
        shown = [{"ip": text} for text in addresses]
        causes.append(invalid(path, shown, "may specify no more than one IP for each IP family"))


def _check_ended(status: Object, status_before: Object, policy: str | None, causes: Causes) -> None:
    """Check that no container that ended, and may not be started again, is said to run."""
    now = {entry.get("name"): entry for entry in status.get("containerStatuses") or ()}
    for index, entry in enumerate(status_before.get("containerStatuses") or ()):
        ended = (entry.get("state") or {}).get("terminated")
        if ended is None or (policy == "OnFailure" and ended.get("exitCode")) or entry.get("name") not in now:
            continue
        if (now[entry.get("name")].get("state") or {}).get("terminated") is None:
            problem = "may not be transitioned to non-terminated state"
            causes.append(forbidden(f"status.containerStatuses[{index}].state", problem))


def check_pod_resize(pod: Object, old: Object, causes: Causes) -> None:
    """Check an update through `resize`: only CPU and memory of containers may change."""
    spec, before = pod.get("spec") or {}, old.get("spec") or {}
    containers, containers_before = spec.get("containers") or [], before.get("containers") or []
    if len(containers) != len(containers_before):
        causes.append(forbidden("spec.containers", "pod updates may not add or remove containers"))
        return
    statuses = (old.get("status") or {}).get("containerStatuses") or ()
    running = next((status for status in statuses if (status.get("state") or {}).get("running") is not None), None)
    if running is not None and running.get("resources") is None:
        causes.append(forbidden("spec", "Pod running on node without support for resize"))
    put_back = []
    for index, (container, was) in enumerate(zip(containers, containers_before, strict=True)):
        path = f"spec.containers[{index}].resources"
        resources, resources_before = container.get("resources") or {}, was.get("resources") or {}
        check_requirements(resources, path, causes)
        for part in ("requests", "limits"):
            now, then = resources.get(part) or {}, resources_before.get(part) or {}
            if {name for name in now.keys() | then.keys() if now.get(name) != then.get(name)} - _RESIZABLE:
                causes.append(forbidden(path, "only cpu and memory resources are mutable"))
        put_back.append({**container, "resources": was.get("resources")})
    if not _is_same({**spec, "containers": put_back}, before):
        causes.append(forbidden("spec", "only cpu and memory resources are mutable"))
    if qos_class(spec) != (quality := qos_class(before)):
        causes.append(invalid("spec", quality, "Pod QOS Class may not change as a result of resizing"))


def check_ephemeral_containers(pod: Object, old: Object, causes: Causes) -> None:
    """Check an update through `ephemeralcontainers`: containers may only be added."""
    spec, before = pod.get("spec") or {}, old.get("spec") or {}
    path = "spec.ephemeralContainers"
    now = {entry.get("name"): entry for entry in spec.get("ephemeralContainers") or ()}
    for index, entry in enumerate(before.get("ephemeralContainers") or ()):
        name = entry.get("name")
        if name not in now:
            problem = "existing ephemeral containers may not be removed"
            causes.append(forbidden(f"{path}[{index}]", f'{problem}: "{name}"'))
        elif now[name] != entry:
            problem = "existing ephemeral containers may not be changed"
            causes.append(forbidden(f"{path}[{index}]", f'{problem}: "{name}"'))
    names = {entry.get("name") for part in ("containers", "initContainers") for entry in spec.get(part) or ()}
    targets = set(names)
    for index, entry in enumerate(spec.get("ephemeralContainers") or ()):
        if entry.get("name") in names:
            causes.append(duplicate(f"{path}[{index}].name", entry["name"]))
        names.add(entry.get("name"))
        target = entry.get("targetContainerName")
        if target and target not in targets:
            causes.append(not_found(f"{path}[{index}].targetContainerName", target))
        for field in ("name", "image"):
            if not entry.get(field):
                causes.append(required(f"{path}[{index}].{field}"))
        for field in ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources"):
            if entry.get(field):
                causes.append(forbidden(f"{path}[{index}].{field}", "cannot be set for an Ephemeral Container"))


def _check_deadline(now: int | None, before: int | None, causes: Causes) -> bool:
    path = "spec.activeDeadlineSeconds"
    if now is None:
        if before is not None:
            causes.append(invalid(path, None, "must not update from a positive integer to nil value"))
    elif not 0 <= now <= MAX_SECONDS:
        causes.append(invalid(path, now, f"must be between 0 and {MAX_SECONDS}, inclusive"))
        return False
    elif before is not None and now > before:
        causes.append(invalid(path, now, "must be less than or equal to previous value"))
        return False
    return True


def _check_tolerations(now: list[Object], before: list[Object], causes: Causes) -> None:
    kept = [_without_seconds(toleration) for toleration in now]
    if any(_without_seconds(toleration) not in kept for toleration in before):
        problem = "existing toleration can not be modified except its tolerationSeconds"
        causes.append(forbidden("spec.tolerations", problem))
        return
    check_tolerations(now, "spec.tolerations", causes)


def _without_seconds(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _check_gates(now: list[Object], before: list[Object], causes: Causes) -> None:
    known = {gate.get("name") for gate in before}
    for index, gate in enumerate(now):
        if gate.get("name") not in known:
            problem = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            causes.append(forbidden(f"spec.schedulingGates[{index}].name", problem))


def _with_mutable_fields_reset(spec: Object, before: Object, causes: Causes) -> Object:
    """The new spec with all mutable fields set to their old values."""
    spec = dict(spec)
    for field in ("containers", "initContainers"):
        pairs = zip(spec.get(field) or (), before.get(field) or (), strict=True)
        spec[field] = [{**container, "image": was.get("image")} for container, was in pairs]
    for field in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        spec[field] = before.get(field)
    grace = before.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        spec["terminationGracePeriodSeconds"] = grace
    if before.get("schedulingGates"):
        _reset_placement(spec, before, causes)
    return spec


def _reset_placement(spec: Object, before: Object, causes: Causes) -> None:
    """Reset node selection fields; those of a gated pod may become more restrictive, as job queues need it."""
    now, then = spec.get("nodeSelector") or {}, before.get("nodeSelector") or {}
    if any(now.get(key) != value for key, value in then.items()):
        problem = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        causes.append(invalid("spec.nodeSelector", now, problem))
    spec["nodeSelector"] = before.get("nodeSelector")
    affinity, was = spec.get("affinity") or {}, before.get("affinity") or {}
    nodes, nodes_before = affinity.get("nodeAffinity"), was.get("nodeAffinity")
    if nodes != nodes_before:
        _check_narrower(nodes or {}, nodes_before or {}, causes)
        others = {kind: terms for kind, terms in affinity.items() if kind != "nodeAffinity"}
        spec["affinity"] = {**others, "nodeAffinity": nodes_before} if nodes_before else others


def _check_narrower(now: Object, before: Object, causes: Causes) -> None:
    path = f"spec.affinity.nodeAffinity.{_NODE_REQUIRED}.nodeSelectorTerms"
    old_terms = (before.get(_NODE_REQUIRED) or {}).get("nodeSelectorTerms") or []
    terms = (now.get(_NODE_REQUIRED) or {}).get("nodeSelectorTerms") or []
    if not old_terms:
        return
    if len(terms) != len(old_terms):
        problem = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        causes.append(invalid(path, terms, problem))
        return
    for index, (term, was) in enumerate(zip(terms, old_terms, strict=True)):
        if not _only_adds(term, was):
            problem = "only additions are allowed (no mutations or deletions)"
            causes.append(invalid(f"{path}[{index}]", term, problem))


def _only_adds(term: Object, was: Object) -> bool:
    lists = [(term.get(field) or [], was.get(field) or []) for field in ("matchExpressions", "matchFields")]
    if not any(before for _, before in lists):
        return not any(now for now, _ in lists)  # an empty term matches nothing, so that any addition would widen it
    return all(now[: len(before)] == before for now, before in lists)


def _is_same(now: Any, before: Any) -> bool:
    """Equality that treats absent, null and empty values alike."""
    if isinstance(now, dict) and isinstance(before, dict):
        return all(_is_same(now.get(field), before.get(field)) for field in now.keys() | before.keys())
    if isinstance(now, list) and isinstance(before, list):
        return len(now) == len(before) and all(map(_is_same, now, before))
    return now == before or (now in _EMPTY and before in _EMPTY)


_EMPTY: tuple[Any, ...] = (None, "", [], {})
