"""Validation of objects by kind, with kube-apiserver's messages.

`validate` is called after defaulting and mutating admission, on every create and update. Metadata is checked for every
kind, including custom ones; specs by the tables below. Kinds without an entry are checked against their schema only.
"""

from collections.abc import Callable
from functools import partial

from seatrial.harness.apiserver.access.signing import check_conditions, check_signing_request
from seatrial.harness.apiserver.field_errors import Cause, Causes, message
from seatrial.harness.apiserver.names import (
    Object,
    Rule,
    check_metadata,
    check_metadata_update,
    dns_label,
    path_segment,
    subdomain,
)
from seatrial.harness.apiserver.validation.autoscalers import check_autoscaler
from seatrial.harness.apiserver.validation.claim_status import check_claim_status
from seatrial.harness.apiserver.validation.core import (
    check_config_map,
    check_node,
    check_node_status,
    check_secret,
    check_service,
)
from seatrial.harness.apiserver.validation.definitions import check_custom_resource
from seatrial.harness.apiserver.validation.devices import (
    check_device_class,
    check_resource_claim,
    check_resource_claim_template,
)
from seatrial.harness.apiserver.validation.endpoint_addresses import check_endpoint_slice, check_endpoints
from seatrial.harness.apiserver.validation.limits import check_limit_range, check_quota
from seatrial.harness.apiserver.validation.networking import check_ingress, check_ingress_class, check_network_policy
from seatrial.harness.apiserver.validation.pod_groups import check_group_workload, check_pod_group
from seatrial.harness.apiserver.validation.pod_updates import (
    check_ephemeral_containers,
    check_pod_resize,
    check_pod_status,
    check_pod_update,
)
from seatrial.harness.apiserver.validation.pods import check_pod
from seatrial.harness.apiserver.validation.policy import (
    check_disruption_budget,
    check_lease,
    check_priority_class,
    check_role,
    check_role_binding,
    check_storage_class,
    check_webhooks,
)
from seatrial.harness.apiserver.validation.registration import (
    check_api_service,
    check_controller_revision,
    check_event,
    check_namespace,
    check_runtime_class,
)
from seatrial.harness.apiserver.validation.service_ranges import address_name, check_address, check_service_range
from seatrial.harness.apiserver.validation.slices import check_slice, check_taint_rule
from seatrial.harness.apiserver.validation.statuses import STATUS_CHECKS
from seatrial.harness.apiserver.validation.volumes import (
    check_attributes_class,
    check_claim,
    check_csi_driver,
    check_csi_node,
    check_volume,
)
from seatrial.harness.apiserver.validation.workloads import check_cron_job, check_job, check_template, check_workload
from seatrial.harness.apiserver.webhooks.policies import check_binding, check_policy

__all__ = ["Cause", "message", "validate"]

_RBAC = "rbac.authorization.k8s.io"
_POD_SUBRESOURCES = {
    "status": check_pod_status,
    "resize": check_pod_resize,
    "ephemeralcontainers": check_ephemeral_containers,
}


def validate(group: str, kind: str, obj: Object, old: Object | None = None, *, subresource: str = "") -> list[Cause]:
    """The reasons why `obj` cannot be stored; empty if it is valid.

    Args:
        group: API group, "" for the core group.
        kind: the object's kind, singular CamelCase.
        obj: the whole object as it would be stored, with defaults.
        old: the stored object; None on create.
        subresource: the subresource through which the object is updated, such as `status`; "" for the object itself.
    """
    causes: Causes = []
    if group == "" and kind == "Pod" and old is None:
        check_pod(obj, causes)
        return causes
    metadata = obj.get("metadata") or {}
    if old is None:
        check_metadata(metadata, _NAMES.get((group, kind), subdomain), causes)
    else:
        check_metadata_update(metadata, old.get("metadata") or {}, causes)
        if group == "" and kind == "Pod":
            _POD_SUBRESOURCES.get(subresource, check_pod_update)(obj, old, causes)
            return causes
    if subresource:
        if (group, kind, subresource) == ("", "Node", "status"):
            check_node_status(obj, causes)
        elif subresource == "status" and (group, kind) in STATUS_CHECKS:
            STATUS_CHECKS[group, kind](obj, causes)
        elif kind == "ResourceClaim" and group == "resource.k8s.io" and old is not None:
            check_claim_status(obj, old, causes)
        elif kind == "CertificateSigningRequest" and old is not None:
            check_conditions(obj, old, causes)
        return causes
    check = _BY_KIND.get((group, kind))
    if check is not None:
        check(obj, old, causes)
    return causes


_Check = Callable[[Object, Object | None, Causes], None]


def _content(check: Callable[[Object, Causes], None]) -> _Check:
    """Adapt a check that does not use the stored object."""
    return lambda obj, _old, causes: check(obj, causes)


def _pod_template(obj: Object, causes: Causes) -> None:
    check_template(obj.get("template") or {}, "template", causes)


def _any_name(_name: str) -> tuple[str, ...]:
    """Upstream does not check the names of these kinds."""
    return ()


_NAMES: dict[tuple[str, str], Rule] = {  # rule for names; other kinds: a DNS subdomain
    ("", "Namespace"): dns_label,
    ("", "Service"): dns_label,
    ("apps", "StatefulSet"): dns_label,
    (_RBAC, "Role"): path_segment,
    (_RBAC, "ClusterRole"): path_segment,
    (_RBAC, "RoleBinding"): path_segment,
    (_RBAC, "ClusterRoleBinding"): path_segment,
    ("apiregistration.k8s.io", "APIService"): path_segment,
    ("networking.k8s.io", "IPAddress"): address_name,
    ("policy", "PodDisruptionBudget"): _any_name,
}
_BY_KIND: dict[tuple[str, str], _Check] = {
    ("", "Node"): check_node,
    ("", "Service"): check_service,
    ("", "ConfigMap"): check_config_map,
    ("", "Secret"): check_secret,
    ("", "ResourceQuota"): _content(check_quota),
    ("", "LimitRange"): _content(check_limit_range),
    ("", "PersistentVolumeClaim"): check_claim,
    ("", "PersistentVolume"): check_volume,
    ("", "Namespace"): _content(check_namespace),
    ("", "Endpoints"): _content(check_endpoints),
    ("", "Event"): _content(check_event),
    ("discovery.k8s.io", "EndpointSlice"): check_endpoint_slice,
    ("networking.k8s.io", "Ingress"): _content(check_ingress),
    ("networking.k8s.io", "IngressClass"): check_ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): _content(check_network_policy),
    ("networking.k8s.io", "IPAddress"): check_address,
    ("networking.k8s.io", "ServiceCIDR"): check_service_range,
    ("autoscaling", "HorizontalPodAutoscaler"): _content(check_autoscaler),
    ("resource.k8s.io", "ResourceClaim"): check_resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): check_resource_claim_template,
    ("resource.k8s.io", "DeviceClass"): check_device_class,
    ("resource.k8s.io", "ResourceSlice"): check_slice,
    ("resource.k8s.io", "DeviceTaintRule"): _content(check_taint_rule),
    ("apiregistration.k8s.io", "APIService"): _content(check_api_service),
    ("node.k8s.io", "RuntimeClass"): check_runtime_class,
    ("apps", "ControllerRevision"): check_controller_revision,
    ("storage.k8s.io", "CSIDriver"): check_csi_driver,
    ("storage.k8s.io", "CSINode"): _content(check_csi_node),
    ("", "PodTemplate"): _content(_pod_template),
    ("", "ReplicationController"): partial(check_workload, "ReplicationController"),
    ("apps", "Deployment"): partial(check_workload, "Deployment"),
    ("apps", "ReplicaSet"): partial(check_workload, "ReplicaSet"),
    ("apps", "StatefulSet"): partial(check_workload, "StatefulSet"),
    ("apps", "DaemonSet"): partial(check_workload, "DaemonSet"),
    ("batch", "Job"): check_job,
    ("batch", "CronJob"): check_cron_job,
    ("scheduling.k8s.io", "PodGroup"): check_pod_group,
    ("scheduling.k8s.io", "PriorityClass"): check_priority_class,
    ("scheduling.k8s.io", "Workload"): check_group_workload,
    ("policy", "PodDisruptionBudget"): _content(check_disruption_budget),
    ("coordination.k8s.io", "Lease"): _content(check_lease),
    (_RBAC, "Role"): _content(partial(check_role, namespaced=True)),
    (_RBAC, "ClusterRole"): _content(partial(check_role, namespaced=False)),
    (_RBAC, "RoleBinding"): partial(check_role_binding, namespaced=True),
    (_RBAC, "ClusterRoleBinding"): partial(check_role_binding, namespaced=False),
    ("storage.k8s.io", "StorageClass"): check_storage_class,
    ("storage.k8s.io", "VolumeAttributesClass"): check_attributes_class,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _content(partial(check_webhooks, mutating=True)),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _content(
        partial(check_webhooks, mutating=False)
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): check_signing_request,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): _content(check_policy),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): _content(check_binding),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): check_custom_resource,
}
