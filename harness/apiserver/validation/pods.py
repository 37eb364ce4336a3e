"""Validation of new pods and of pod templates.

Every created pod is checked here, so an absent field costs one dict lookup, and paths are built for errors only.
Follows the order of the checks in `pkg/apis/core/validation`, since messages list causes in that order.
"""

from functools import lru_cache
from typing import Any

from seatrial.harness.apiserver.field_errors import Causes, duplicate, forbidden, invalid, required, unsupported
from seatrial.harness.apiserver.names import (
    MAX_CHECKED,
    Object,
    check_labels,
    check_metadata,
    dns_label,
    qualified,
    subdomain,
)
from seatrial.harness.apiserver.validation.containers import check_containers, check_init_containers, check_volumes
from seatrial.harness.apiserver.validation.devices import check_pod_claims
from seatrial.harness.apiserver.validation.placement import check_affinity, check_spread, check_tolerations
from seatrial.harness.apiserver.validation.pod_groups import check_scheduling_group
from seatrial.harness.apiserver.validation.resources import NOT_NEGATIVE, check_list, check_requirements
from seatrial.harness.apiserver.validation.security_contexts import check_host, check_pod_security_context, check_system

MAX_SECONDS = (1 << 31) - 1
_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION = ("Never", "PreemptLowerPriority")
_MIRROR = "kubernetes.io/config.mirror"


def check_pod(pod: Object, causes: Causes) -> None:
    """Check a pod on create; its name is already generated."""
    check_metadata(pod.get("metadata") or {}, subdomain, causes)
    spec = pod.get("spec") or {}
    check_pod_spec(spec, "spec", causes)
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    if _MIRROR in annotations and not spec.get("nodeName"):
        problem = "must set spec.nodeName if mirror pod annotation is set"
        causes.append(invalid(f"metadata.annotations[{_MIRROR}]", annotations[_MIRROR], problem))
    if spec.get("ephemeralContainers"):
        causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        causes.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))


def check_pod_spec(spec: Object, path: str, causes: Causes) -> None:
    """Check the spec of a pod or pod template; `path` is the spec's field path."""
    volumes = check_volumes(spec["volumes"], f"{path}.volumes", causes) if spec.get("volumes") else frozenset[str]()
    if spec.get("resourceClaims"):
        check_pod_claims(spec["resourceClaims"], f"{path}.resourceClaims", causes)
    check_containers(spec, volumes, f"{path}.containers", causes)
    if spec.get("initContainers"):
        check_init_containers(spec, volumes, f"{path}.initContainers", causes)
    if spec.get("resources"):
        check_requirements(spec["resources"], f"{path}.resources", causes)
    _choice(spec.get("restartPolicy"), _RESTART, path, "restartPolicy", causes)
    _choice(spec.get("dnsPolicy"), _DNS, path, "dnsPolicy", causes)
    if spec.get("nodeSelector"):
        check_labels(spec["nodeSelector"], f"{path}.nodeSelector", causes)
    if spec.get("securityContext") or spec.get("shareProcessNamespace"):
        check_pod_security_context(spec, path, causes)
    if spec.get("affinity"):
        check_affinity(spec["affinity"], f"{path}.affinity", causes)
    if spec.get("dnsPolicy") == "None":
        _check_own_dns(spec.get("dnsConfig"), f"{path}.dnsConfig", causes)
    if spec.get("readinessGates"):
        for index, gate in enumerate(spec["readinessGates"]):
            _name(gate.get("conditionType"), qualified, f"{path}.readinessGates[{index}].conditionType", causes)
    if spec.get("schedulingGates"):
        _check_gates(spec["schedulingGates"], f"{path}.schedulingGates", causes)
    if spec.get("schedulingGroup") is not None:
        check_scheduling_group(spec, path, causes)
    if spec.get("topologySpreadConstraints"):
        check_spread(spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints", causes)
    check_host(spec, path, causes)
    for field, problems in _problems_of_names(
        spec.get("serviceAccountName"),
        spec.get("nodeName"),
        spec.get("hostname"),
        spec.get("subdomain"),
        spec.get("priorityClassName"),
        spec.get("runtimeClassName"),
    ):
        causes.extend(invalid(f"{path}.{field}", spec[field], problem) for problem in problems)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_SECONDS:
        problem = f"must be between 1 and {MAX_SECONDS}, inclusive"
        causes.append(invalid(f"{path}.activeDeadlineSeconds", deadline, problem))
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        causes.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, NOT_NEGATIVE))
    if spec.get("tolerations"):
        check_tolerations(spec["tolerations"], f"{path}.tolerations", causes)
    if spec.get("preemptionPolicy"):
        _choice(spec["preemptionPolicy"], _PREEMPTION, path, "preemptionPolicy", causes)
    if spec.get("overhead"):
        check_list(spec["overhead"], f"{path}.overhead", causes, of_container=True)
    if spec.get("os") is not None:
        check_system(spec, path, causes)


def _choice(value: Any, choices: tuple[str, ...], path: str, field: str, causes: Causes) -> None:
    if value in choices:
        return
    if not value:
        causes.append(required(f"{path}.{field}"))
    else:
        causes.append(unsupported(f"{path}.{field}", value, choices))


_NAME_FIELDS = (
    ("serviceAccountName", subdomain),
    ("nodeName", subdomain),
    ("hostname", dns_label),
    ("subdomain", dns_label),
    ("priorityClassName", subdomain),
    ("runtimeClassName", subdomain),
)


def _problems_of_names(*names: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return _name_problems(*[name[:MAX_CHECKED] if name else name for name in names])


@lru_cache(maxsize=4096)
def _name_problems(*names: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The problems of names of other objects in a spec, by field; cached, as most pods share the same few names."""
    problems = ((field, rule(name)) for (field, rule), name in zip(_NAME_FIELDS, names, strict=True) if name)
    return tuple((field, wrong) for field, wrong in problems if wrong)


def _name(name: Any, rule: Any, path: str, causes: Causes) -> None:
    causes.extend(invalid(path, name, problem) for problem in rule(name or ""))


def _check_gates(gates: list[Object], path: str, causes: Causes) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        _name(name, qualified, f"{path}[{index}]", causes)
        if name in seen:
            causes.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)


def _check_own_dns(config: Object | None, path: str, causes: Causes) -> None:
    if not config:
        causes.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
    elif not config.get("nameservers"):
        problem = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        causes.append(required(f"{path}.nameservers", problem))
