"""Validation of Workloads, PodGroups and `scheduling` of Jobs; follows the markers in `api/scheduling/v1beta1`."""

from typing import Any

from seatrial.harness.apiserver.field_errors import Causes, duplicate, forbidden, immutable, invalid, required, too_many
from seatrial.harness.apiserver.names import Object, dns_label, qualified, subdomain

_POLICIES = ("basic", "gang")
_MAX_TEMPLATES, _MAX_CLAIMS = 8, 4
_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
_MAX_PRIORITY = 1_000_000_000
_ONE_PRIORITY = "all priority and priorityClassName values must be identical, detected multiple values"


def check_pod_group(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a PodGroup to `causes`; of the spec of `old` only `minCount` may change."""
    spec = obj.get("spec") or {}
    reference = spec.get("workloadRef")
    if reference is not None:
        for field in ("workloadName", "templateName"):
            _check_name(reference.get(field), f"spec.workloadRef.{field}", causes)
    _check_group(spec, "spec", causes)
    if old is not None:
        _check_unchanged(spec, old.get("spec") or {}, "spec", causes)


def check_pod_group_status(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a PodGroup's status to `causes`."""
    names = {claim.get("name") for claim in (obj.get("spec") or {}).get("resourceClaims") or ()}
    for index, claim in enumerate((obj.get("status") or {}).get("resourceClaimStatuses") or ()):
        if claim.get("name") not in names:
            problem = "must match the name of an entry in `spec.resourceClaims`"
            causes.append(invalid(f"status.resourceClaimStatuses[{index}].name", claim.get("name"), problem))


def check_group_workload(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a Workload to `causes`; of the spec of `old` only `minCount` may change."""
    spec = obj.get("spec") or {}
    templates: list[Object] = spec.get("podGroupTemplates") or []
    if not templates:
        causes.append(required("spec.podGroupTemplates"))
    if len(templates) > _MAX_TEMPLATES:
        causes.append(too_many("spec.podGroupTemplates", len(templates), _MAX_TEMPLATES))
        return
    names: set[str] = set()
    for index, template in enumerate(templates):
        path, name = f"spec.podGroupTemplates[{index}]", template.get("name") or ""
        if not name:
            causes.append(required(f"{path}.name"))
        elif name in names:
            causes.append(duplicate(path, name))
        else:
            causes.extend(invalid(f"{path}.name", name, problem) for problem in dns_label(name))
        names.add(name)
        _check_group(template, path, causes)
    if len({(template.get("priority"), template.get("priorityClassName")) for template in templates}) > 1:
        causes.append(invalid("spec.podGroupTemplates", sorted(names), _ONE_PRIORITY))
    if old is None:
        return
    before = old.get("spec") or {}
    causes.extend(immutable("spec.controllerRef", spec.get("controllerRef"), before.get("controllerRef")))
    known = {template["name"]: template for template in before.get("podGroupTemplates") or ()}
    if names != known.keys():
        causes.append(forbidden("spec.podGroupTemplates", "entries may not be added or removed"))
        return
    for index, template in enumerate(templates):
        _check_unchanged(template, known[template["name"]], f"spec.podGroupTemplates[{index}]", causes)


def check_job_scheduling(spec: Object, before: Object | None, path: str, causes: Causes) -> None:
    """Check `scheduling` of a Job's spec; against that in `before`, the stored spec, only `minCount` may change.

    Follows `validateJobScheduling` and the markers of `api/batch/v1/types.go`.
    """
    own, scheduling = f"{path}.scheduling", spec.get("scheduling")
    earlier = before.get("scheduling") if before is not None else None
    if before is not None and _is_set_or_cleared(scheduling, earlier, own, causes):
        return
    if scheduling is None:
        return
    policy, gang = scheduling.get("schedulingPolicy"), (scheduling.get("schedulingPolicy") or {}).get("gang")
    if earlier is not None:
        _is_set_or_cleared(policy, earlier.get("schedulingPolicy"), f"{own}.schedulingPolicy", causes)
        for field in ("schedulingConstraints", "disruptionMode", "resourceClaims"):
            causes.extend(immutable(f"{own}.{field}", scheduling.get(field), earlier.get(field)))
    if policy is None:
        policy = {"basic": {}}
    elif gang is not None and gang.get("minCount") is None:
        policy = {**policy, "gang": {"minCount": 1}}  # the parallelism
    _check_group({**scheduling, "schedulingPolicy": policy}, own, causes)
    minimum, parallelism = (policy.get("gang") or {}).get("minCount", 0), spec.get("parallelism", 1)
    if gang is not None and gang.get("minCount") is not None and minimum > parallelism:
        problem = f"must not be greater than parallelism ({parallelism})"
        causes.append(invalid(f"{own}.schedulingPolicy.gang.minCount", minimum, problem))
    if policy.get("basic") is not None and (scheduling.get("disruptionMode") or {}).get("all") is not None:
        problem = "the disruptionMode `all` is not supported with the Basic scheduling policy"
        causes.append(invalid(f"{own}.disruptionMode", "", problem))


def check_same_policy(spec: Object, before: Object, causes: Causes) -> None:
    """A Job's policy stays basic or gang."""
    policy, earlier = ((each.get("scheduling") or {}).get("schedulingPolicy") for each in (spec, before))
    if policy is not None and earlier is not None and (policy.get("basic") is None) != (earlier.get("basic") is None):
        problem = "the basic/gang policy variant is immutable after creation"
        why = f"{problem}; only schedulingPolicy.gang.minCount may be updated"
        causes.append(invalid("spec.scheduling.schedulingPolicy", None, why))


def _is_set_or_cleared(new: Object | None, old: Object | None, path: str, causes: Causes) -> bool:
    """Whether an update sets or clears a field, which it may not."""
    if (new is None) == (old is None):
        return False
    problem = "field cannot be set once created" if old is None else "field cannot be cleared once set"
    causes.append(invalid(path, None, problem))
    return True


def check_scheduling_group(spec: Object, path: str, causes: Causes) -> None:
    """Check the `schedulingGroup` of a pod with this spec."""
    own, name = f"{path}.schedulingGroup", (spec["schedulingGroup"] or {}).get("podGroupName")
    if not name:
        causes.append(invalid(own, spec["schedulingGroup"], "must specify one of: `podGroupName`"))
    else:
        causes.extend(invalid(f"{own}.podGroupName", name, problem) for problem in subdomain(name))
    if spec.get("evictionResponders"):
        causes.append(forbidden(own, "may not be set when evictionResponders is set"))


def _check_name(name: str | None, path: str, causes: Causes) -> None:
    if not name:
        causes.append(required(path))
    else:
        causes.extend(invalid(path, name, problem) for problem in subdomain(name))


def _check_group(spec: Object, path: str, causes: Causes) -> None:
    """Check what PodGroups and their templates share."""
    policy: Object = spec.get("schedulingPolicy") or {}
    own = f"{path}.schedulingPolicy"
    chosen = [name for name in _POLICIES if policy.get(name) is not None]
    if len(chosen) != 1:
        problem = "must specify exactly one of" if chosen else "must specify one of"
        causes.append(invalid(own, policy, f"{problem}: `basic`, `gang`"))
    if policy.get("gang") is not None:
        minimum = policy["gang"].get("minCount")
        if minimum is None:
            causes.append(required(f"{own}.gang.minCount"))
        elif minimum < 1:
            causes.append(invalid(f"{own}.gang.minCount", minimum, "must be greater than or equal to 1"))
    topology: list[Object] = (spec.get("schedulingConstraints") or {}).get("topology") or []
    own = f"{path}.schedulingConstraints.topology"
    if len(topology) > 1:
        causes.append(too_many(own, len(topology), 1))
    for index, constraint in enumerate(topology):
        key = constraint.get("key") or ""
        causes.extend(invalid(f"{own}[{index}].key", key, problem) for problem in qualified(key))
    _check_claims(spec.get("resourceClaims") or [], f"{path}.resourceClaims", causes)
    mode: Object | None = spec.get("disruptionMode")
    if mode is not None and len(mode) != 1:
        problem = "must specify exactly one of" if mode else "must specify one of"
        causes.append(invalid(f"{path}.disruptionMode", mode, f"{problem}: `single`, `all`"))
    priority = spec.get("priority")
    if priority is not None and priority > _MAX_PRIORITY:
        problem = f"must be less than or equal to {_MAX_PRIORITY}"
        causes.append(invalid(f"{path}.priority", priority, problem))


def _check_claims(claims: list[Object], path: str, causes: Causes) -> None:
    """Check the claims that all members of a group share."""
    if len(claims) > _MAX_CLAIMS:
        causes.append(too_many(path, len(claims), _MAX_CLAIMS))
    names: set[str] = set()
    for index, claim in enumerate(claims):
        own, name = f"{path}[{index}]", claim.get("name") or ""
        if not name:
            causes.append(required(f"{own}.name"))
        elif name in names:
            causes.append(duplicate(own, name))
        else:
            causes.extend(invalid(f"{own}.name", name, problem) for problem in dns_label(name))
        names.add(name)
        sources = [field for field in _CLAIM_SOURCES if claim.get(field)]
        if len(sources) != 1:
            problem = "must specify exactly one of" if sources else "must specify one of"
            causes.append(invalid(own, claim, f"{problem}: `resourceClaimName`, `resourceClaimTemplateName`"))
        for field in sources:
            _check_name(claim[field], f"{own}.{field}", causes)


def _check_unchanged(spec: Object, before: Object, path: str, causes: Causes) -> None:
    """All fields but `minCount` are immutable; a policy can neither be set nor unset."""
    policy, earlier = spec.get("schedulingPolicy") or {}, before.get("schedulingPolicy") or {}
    for name in _POLICIES:
        if (policy.get(name) is None) != (earlier.get(name) is None):
            causes.append(forbidden(f"{path}.schedulingPolicy.{name}", "field is immutable"))
    fields: list[Any] = sorted((spec.keys() | before.keys()) - {"schedulingPolicy"})
    for field in fields:
        causes.extend(immutable(f"{path}.{field}", spec.get(field), before.get(field)))
