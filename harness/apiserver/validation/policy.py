"""Validation of priorities, budgets, leases, roles, webhooks and storage classes."""

from typing import Any

from seatrial.harness.apiserver.field_errors import Causes, forbidden, immutable, invalid, required, unsupported
from seatrial.harness.apiserver.names import Object, subdomain
from seatrial.harness.apiserver.validation.placement import check_label_selector
from seatrial.harness.apiserver.validation.resources import NOT_NEGATIVE
from seatrial.harness.apiserver.validation.urls import check_https_url
from seatrial.harness.apiserver.validation.workloads import check_count_or_percent
from seatrial.harness.apiserver.webhooks.policies import check_expression

MAX_USER_PRIORITY = 1_000_000_000
_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PREEMPTION = ("Never", "PreemptLowerPriority")
_RBAC = "rbac.authorization.k8s.io"
_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_RECLAIM = ("Delete", "Retain")
_FAILURE = ("Fail", "Ignore")
_MATCH = ("Equivalent", "Exact")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REINVOCATION = ("IfNeeded", "Never")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_CONDITION_VARIABLES = dict.fromkeys(("object", "oldObject", "request"))  # of webhooks' matchConditions
_SCOPES = ("Cluster", "Namespaced")


def check_priority_class(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a PriorityClass to `causes`; the value of `old` may not change."""
    name, value = (obj.get("metadata") or {}).get("name") or "", obj.get("value") or 0
    if name.startswith("system-"):
        if _SYSTEM.get(name) != value:
            known = f"only known system priority classes may start with 'system-', found {name}"
            problem = "priority class names with 'system-' prefix are reserved for system use only. error: "
            causes.append(forbidden("metadata.name", problem + known))
    elif value > MAX_USER_PRIORITY:
        problem = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        causes.append(forbidden("value", problem))
    policy = obj.get("preemptionPolicy")
    if policy is not None and policy not in _PREEMPTION:
        causes.append(unsupported("preemptionPolicy", policy, _PREEMPTION))
    if old is not None:
        if value != (old.get("value") or 0):
            causes.append(forbidden("value", "may not be changed in an update."))
        causes.extend(immutable("preemptionPolicy", policy, old.get("preemptionPolicy")))


def check_disruption_budget(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a PodDisruptionBudget to `causes`."""
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        causes.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for field in ("minAvailable", "maxUnavailable"):
        check_count_or_percent(spec.get(field), f"spec.{field}", causes)
    if spec.get("selector"):
        check_label_selector(spec["selector"], "spec.selector", causes)
    policies = ("AlwaysAllow", "IfHealthyBudget")
    if spec.get("unhealthyPodEvictionPolicy") not in (None, *policies):
        causes.append(unsupported("spec.unhealthyPodEvictionPolicy", spec["unhealthyPodEvictionPolicy"], policies))


def check_lease(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a Lease to `causes`."""
    spec = obj.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid("spec.leaseTransitions", transitions, NOT_NEGATIVE))


def check_role(obj: Object, causes: Causes, *, namespaced: bool) -> None:
    """Append what is invalid in a Role, or in a ClusterRole if not `namespaced`, to `causes`."""
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            causes.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            if namespaced:
                problem = "namespaced rules cannot apply to non-resource URLs"
                causes.append(invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], problem))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                problem = "rules cannot apply to both regular resources and non-resource URLs"
                causes.append(invalid(f"{path}.nonResourceURLs", rule["nonResourceURLs"], problem))
            continue
        if not rule.get("apiGroups"):
            causes.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            causes.append(required(f"{path}.resources", "resource rules must supply at least one resource"))


def check_role_binding(obj: Object, old: Object | None, causes: Causes, *, namespaced: bool) -> None:
    """Append what is invalid in a RoleBinding or ClusterRoleBinding to `causes`; the role of `old` may not change."""
    role = obj.get("roleRef") or {}
    if role.get("apiGroup") not in {_RBAC, None}:
        causes.append(unsupported("roleRef.apiGroup", role.get("apiGroup") or "", (_RBAC,)))
    kinds = ("ClusterRole", "Role") if namespaced else ("ClusterRole",)
    if role.get("kind") not in kinds:
        causes.append(unsupported("roleRef.kind", role.get("kind") or "", kinds))
    if not role.get("name"):
        causes.append(required("roleRef.name"))
    for index, subject in enumerate(obj.get("subjects") or ()):
        path, kind = f"subjects[{index}]", subject.get("kind")
        if not subject.get("name"):
            causes.append(required(f"{path}.name"))
        if kind == "ServiceAccount":
            if not subject.get("namespace") and not namespaced:
                causes.append(required(f"{path}.namespace"))
        elif kind not in {"User", "Group"}:
            causes.append(unsupported(f"{path}.kind", kind or "", ("ServiceAccount", "User", "Group")))
    if old is not None and role != (old.get("roleRef") or {}):
        causes.append(invalid("roleRef", role, "cannot change roleRef"))


def check_webhooks(obj: Object, causes: Causes, *, mutating: bool) -> None:
    """Append what is invalid in a webhook configuration to `causes`."""
    names: set[str] = set()
    for index, webhook in enumerate(obj.get("webhooks") or ()):
        path, name = f"webhooks[{index}]", webhook.get("name") or ""
        if not name:
            causes.append(required(f"{path}.name"))
        elif name.count(".") < 2 or subdomain(name):
            causes.append(
                invalid(f"{path}.name", name, "should be a domain with at least three segments separated by dots")
            )
        if name in names:
            causes.append(invalid(f"{path}.name", name, "must be unique"))
        names.add(name)
        versions = webhook.get("admissionReviewVersions")
        if not versions:
            problem = "must specify one of v1, v1beta1"
            causes.append(required(f"{path}.admissionReviewVersions", problem))
        elif not {"v1", "v1beta1"} & set(versions):
            problem = "must include at least one of v1, v1beta1"
            causes.append(invalid(f"{path}.admissionReviewVersions", versions, problem))
        one_of(webhook.get("failurePolicy"), _FAILURE, f"{path}.failurePolicy", causes)
        one_of(webhook.get("matchPolicy"), _MATCH, f"{path}.matchPolicy", causes)
        if webhook.get("sideEffects") is None:
            causes.append(required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
        one_of(webhook.get("sideEffects"), _SIDE_EFFECTS, f"{path}.sideEffects", causes)
        if mutating:
            one_of(webhook.get("reinvocationPolicy"), _REINVOCATION, f"{path}.reinvocationPolicy", causes)
        seconds = webhook.get("timeoutSeconds")
        if seconds is not None and not 1 <= seconds <= 30:
            problem = "the timeout value must be between 1 and 30 seconds"
            causes.append(invalid(f"{path}.timeoutSeconds", seconds, problem))
        for selector in ("namespaceSelector", "objectSelector"):
            if webhook.get(selector):
                check_label_selector(webhook[selector], f"{path}.{selector}", causes)
        for at, rule in enumerate(webhook.get("rules") or ()):
            _check_webhook_rule(rule, f"{path}.rules[{at}]", causes)
        for at, condition in enumerate(webhook.get("matchConditions") or ()):
            if not condition.get("name"):
                causes.append(required(f"{path}.matchConditions[{at}].name"))
            check_expression(
                condition.get("expression"), f"{path}.matchConditions[{at}].expression", _CONDITION_VARIABLES, causes
            )
        client = webhook.get("clientConfig") or {}
        service = client.get("service")
        if (client.get("url") is None) == (service is None):
            problem = "exactly one of url or service is required"
            causes.append(required(f"{path}.clientConfig", problem))
        elif service is not None:
            for field in ("name", "namespace"):
                if not service.get(field):
                    causes.append(required(f"{path}.clientConfig.service.{field}", f"service {field} is required"))
        elif client.get("url"):
            check_https_url(str(client["url"]), f"{path}.clientConfig.url", causes)


def _check_webhook_rule(rule: Object, path: str, causes: Causes) -> None:
    for field in ("operations", "apiGroups", "apiVersions", "resources"):
        if not rule.get(field):
            causes.append(required(f"{path}.{field}"))
    for index, operation in enumerate(rule.get("operations") or ()):
        one_of(operation, _OPERATIONS, f"{path}.operations[{index}]", causes)
    one_of(rule.get("scope"), ("*", *_SCOPES), f"{path}.scope", causes)


def check_storage_class(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a StorageClass to `causes`; most fields of `old` may not change."""
    if not obj.get("provisioner"):
        causes.append(required("provisioner"))
    one_of(obj.get("reclaimPolicy"), _RECLAIM, "reclaimPolicy", causes)
    one_of(obj.get("volumeBindingMode"), _BINDING_MODES, "volumeBindingMode", causes)
    if old is not None:
        if (obj.get("parameters") or {}) != (old.get("parameters") or {}):
            causes.append(forbidden("parameters", "updates to parameters are forbidden."))
        if obj.get("provisioner") != old.get("provisioner"):
            causes.append(forbidden("provisioner", "updates to provisioner are forbidden."))
        if obj.get("reclaimPolicy") != old.get("reclaimPolicy"):
            causes.append(forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden."))
        causes.extend(immutable("volumeBindingMode", obj.get("volumeBindingMode"), old.get("volumeBindingMode")))


def one_of(value: Any, choices: tuple[str, ...], path: str, causes: Causes) -> None:
    """Check that the value is one of the choices, if it is set."""
    if value is not None and value not in choices:
        causes.append(unsupported(path, value, choices))
