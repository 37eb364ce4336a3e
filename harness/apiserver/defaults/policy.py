"""kube-apiserver's defaults for priorities, storage, webhooks, policies, roles, networks, devices and flow control."""

from collections.abc import Callable

from seatrial.harness.apiserver.defaults.pods import Object, fill

_RBAC = "rbac.authorization.k8s.io"
_HTTPS = 443


def _priority_class(obj: Object) -> None:
    fill(obj, preemptionPolicy="PreemptLowerPriority")


def _storage_class(obj: Object) -> None:
    fill(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _csi_driver(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    fill(
        spec,
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
        seLinuxMount=False,
    )
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


def _webhooks(obj: Object) -> None:
    for webhook in obj.get("webhooks") or ():
        fill(webhook, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10)
        _match_everything(webhook)
        _port(webhook.get("clientConfig"))


def _mutating_webhooks(obj: Object) -> None:
    _webhooks(obj)
    for webhook in obj.get("webhooks") or ():
        fill(webhook, reinvocationPolicy="Never")


def _admission_policy(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    fill(spec, failurePolicy="Fail")
    if (constraints := spec.get("matchConstraints")) is not None:
        _constraints(constraints)


def _admission_binding(obj: Object) -> None:
    if (constraints := obj.setdefault("spec", {}).get("matchResources")) is not None:
        _constraints(constraints)


def _constraints(constraints: Object) -> None:
    fill(constraints, matchPolicy="Equivalent")
    _match_everything(constraints, "resourceRules", "excludeResourceRules")


def _match_everything(target: Object, *rule_lists: str) -> None:
    for name in ("namespaceSelector", "objectSelector"):
        if target.get(name) is None:
            target[name] = {}
    for rules in rule_lists or ("rules",):
        for rule in target.get(rules) or ():
            fill(rule, scope="*")


def _port(client_config: Object | None) -> None:
    if client_config and (service := client_config.get("service")):
        fill(service, port=_HTTPS)


def _custom_resource(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if kind := names.get("kind"):
        fill(names, singular=kind.lower(), listKind=f"{kind}List")
    conversion = spec.get("conversion") or {}
    spec["conversion"] = conversion
    fill(conversion, strategy="None")
    _port((conversion.get("webhook") or {}).get("clientConfig"))


def _api_service(obj: Object) -> None:
    if service := obj.setdefault("spec", {}).get("service"):
        fill(service, port=_HTTPS)


def _role_binding(obj: Object) -> None:
    if (role := obj.get("roleRef")) is not None:
        fill(role, apiGroup=_RBAC)
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in {"User", "Group"}:
            fill(subject, apiGroup=_RBAC)


def _network_policy(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                fill(port, protocol="TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _ingress_class(obj: Object) -> None:
    if (parameters := obj.setdefault("spec", {}).get("parameters")) is not None:
        fill(parameters, scope="Cluster")


def _endpoint_slice(obj: Object) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        fill(port, protocol="TCP")


def _claim(obj: Object) -> None:
    _device_requests(obj.setdefault("spec", {}))


def _claim_template(obj: Object) -> None:
    _device_requests(obj.setdefault("spec", {}).setdefault("spec", {}))


def _device_requests(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for ask in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if ask is None:
                continue
            fill(ask, allocationMode="ExactCount")
            if ask["allocationMode"] == "ExactCount" and not ask.get("count"):
                ask["count"] = 1
            for toleration in ask.get("tolerations") or ():
                fill(toleration, operator="Equal")


def _pod_group(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    for field in (*_GATED_FIELDS, "parentCompositePodGroupName"):
        spec.pop(field, None)
    if spec.get("disruptionMode") is None:
        spec["disruptionMode"] = {"single": {}}


def _group_workload(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    spec.pop("compositePodGroupTemplates", None)
    for template in spec.get("podGroupTemplates") or ():
        for field in _GATED_FIELDS:
            template.pop(field, None)


def _priority_level(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if (limited := spec.get("limited")) is not None:
        fill(limited, nominalConcurrencyShares=30, lendablePercent=0)
        queuing = (limited.get("limitResponse") or {}).get("queuing")
        if queuing is not None:
            fill(queuing, queues=64, handSize=8, queueLengthLimit=50)
    if (exempt := spec.get("exempt")) is not None:
        fill(exempt, nominalConcurrencyShares=0, lendablePercent=0)


def _flow_schema(obj: Object) -> None:
    fill(obj.setdefault("spec", {}), matchingPrecedence=1000)


# of PodGroups and their templates: fields of feature gates that are off by default, dropped as upstream does
_GATED_FIELDS = ("preemptionPolicy",)

POLICY: dict[tuple[str, str], Callable[[Object], None]] = {
    ("scheduling.k8s.io", "PodGroup"): _pod_group,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("scheduling.k8s.io", "Workload"): _group_workload,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _webhooks,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _mutating_webhooks,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _admission_policy,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _admission_binding,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _custom_resource,
    ("apiregistration.k8s.io", "APIService"): _api_service,
    (_RBAC, "RoleBinding"): _role_binding,
    (_RBAC, "ClusterRoleBinding"): _role_binding,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("resource.k8s.io", "ResourceClaim"): _claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): _claim_template,
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): _priority_level,
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): _flow_schema,
}
