"""Tables: the response to `Accept: application/json;as=Table;v=v1;g=meta.k8s.io`, which `kubectl get` sends.

Pure functions on decoded objects. The columns of each kind are in `seatrial.harness.apiserver.printers`.
Follows Kubernetes `pkg/printers` and, for custom resources, apiextensions' `tableconvertor`.
"""

from collections.abc import Sequence
from typing import Any, Literal

from seatrial.harness.apiserver.printers import core, network, pods, policies, scheduling, storage, workloads
from seatrial.harness.apiserver.printers.columns import NAME, Column, Object, Printer, name_of
from seatrial.harness.apiserver.printers.custom import custom_printer
from seatrial.harness.apiserver.printers.durations import created_at

IncludeObject = Literal["None", "Metadata", "Object"]

_API_VERSION = "meta.k8s.io/v1"
_LIST_META = ("selfLink", "resourceVersion", "continue", "remainingItemCount")

# Kinds without a printer upstream show the time of creation instead of the age.
_CREATED_AT = Printer(
    (NAME, Column("Created At", "When the object was created.", "date")),
    lambda o, _now: [name_of(o), created_at(o["metadata"].get("creationTimestamp"))],
)

_ADMISSION, _CERTIFICATES, _DISCOVERY = "admissionregistration.k8s.io", "certificates.k8s.io", "discovery.k8s.io"
_FLOW, _NETWORKING, _RBAC = "flowcontrol.apiserver.k8s.io", "networking.k8s.io", "rbac.authorization.k8s.io"
_RESOURCE, _STORAGE = "resource.k8s.io", "storage.k8s.io"

_PRINTERS: dict[tuple[str, str], Printer] = {
    ("", "componentstatuses"): core.COMPONENT_STATUSES,
    ("", "configmaps"): core.CONFIG_MAPS,
    ("", "endpoints"): network.ENDPOINTS,
    ("", "events"): core.EVENTS,
    ("", "limitranges"): _CREATED_AT,
    ("", "namespaces"): core.NAMESPACES,
    ("", "nodes"): core.NODES,
    ("", "persistentvolumeclaims"): storage.PERSISTENT_VOLUME_CLAIMS,
    ("", "persistentvolumes"): storage.PERSISTENT_VOLUMES,
    ("", "pods"): pods.PODS,
    ("", "podtemplates"): core.POD_TEMPLATES,
    ("", "replicationcontrollers"): workloads.REPLICATION_CONTROLLERS,
    ("", "resourcequotas"): core.RESOURCE_QUOTAS,
    ("", "secrets"): core.SECRETS,
    ("", "serviceaccounts"): core.SERVICE_ACCOUNTS,
    ("", "services"): network.SERVICES,
    (_ADMISSION, "mutatingadmissionpolicies"): policies.MUTATING_POLICIES,
    (_ADMISSION, "mutatingadmissionpolicybindings"): policies.POLICY_BINDINGS,
    (_ADMISSION, "mutatingwebhookconfigurations"): policies.WEBHOOK_CONFIGURATIONS,
    (_ADMISSION, "validatingadmissionpolicies"): policies.VALIDATING_POLICIES,
    (_ADMISSION, "validatingadmissionpolicybindings"): policies.POLICY_BINDINGS,
    (_ADMISSION, "validatingwebhookconfigurations"): policies.WEBHOOK_CONFIGURATIONS,
    ("apiextensions.k8s.io", "customresourcedefinitions"): policies.DEFINITIONS,
    ("apiregistration.k8s.io", "apiservices"): policies.API_SERVICES,
    ("apps", "controllerrevisions"): workloads.CONTROLLER_REVISIONS,
    ("apps", "daemonsets"): workloads.DAEMON_SETS,
    ("apps", "deployments"): workloads.DEPLOYMENTS,
    ("apps", "replicasets"): workloads.REPLICA_SETS,
    ("apps", "statefulsets"): workloads.STATEFUL_SETS,
    ("autoscaling", "horizontalpodautoscalers"): workloads.HORIZONTAL_POD_AUTOSCALERS,
    ("autoscaling", "scale"): workloads.SCALE,
    ("batch", "cronjobs"): workloads.CRON_JOBS,
    ("batch", "jobs"): workloads.JOBS,
    (_CERTIFICATES, "certificatesigningrequests"): policies.CERTIFICATE_SIGNING_REQUESTS,
    ("coordination.k8s.io", "leases"): scheduling.LEASES,
    (_DISCOVERY, "endpointslices"): network.ENDPOINT_SLICES,
    ("events.k8s.io", "events"): core.EVENTS,
    (_FLOW, "flowschemas"): policies.FLOW_SCHEMAS,
    (_FLOW, "prioritylevelconfigurations"): policies.PRIORITY_LEVELS,
    (_NETWORKING, "ingressclasses"): network.INGRESS_CLASSES,
    (_NETWORKING, "ingresses"): network.INGRESSES,
    (_NETWORKING, "ipaddresses"): network.IP_ADDRESSES,
    (_NETWORKING, "networkpolicies"): network.NETWORK_POLICIES,
    (_NETWORKING, "servicecidrs"): network.SERVICE_CIDRS,
    ("node.k8s.io", "runtimeclasses"): scheduling.RUNTIME_CLASSES,
    ("policy", "poddisruptionbudgets"): workloads.POD_DISRUPTION_BUDGETS,
    (_RBAC, "clusterrolebindings"): policies.ROLE_BINDINGS,
    (_RBAC, "clusterroles"): _CREATED_AT,
    (_RBAC, "rolebindings"): policies.ROLE_BINDINGS,
    (_RBAC, "roles"): _CREATED_AT,
    (_RESOURCE, "deviceclasses"): scheduling.NAME_AND_AGE,
    (_RESOURCE, "devicetaintrules"): scheduling.NAME_AND_AGE,
    (_RESOURCE, "resourceclaims"): scheduling.RESOURCE_CLAIMS,
    (_RESOURCE, "resourceclaimtemplates"): scheduling.NAME_AND_AGE,
    (_RESOURCE, "resourceslices"): scheduling.RESOURCE_SLICES,
    ("scheduling.k8s.io", "podgroups"): scheduling.POD_GROUPS,
    ("scheduling.k8s.io", "priorityclasses"): scheduling.PRIORITY_CLASSES,
    ("scheduling.k8s.io", "workloads"): scheduling.NAME_AND_AGE,
    (_STORAGE, "csidrivers"): storage.CSI_DRIVERS,
    (_STORAGE, "csinodes"): storage.CSI_NODES,
    (_STORAGE, "csistoragecapacities"): _CREATED_AT,
    (_STORAGE, "storageclasses"): storage.STORAGE_CLASSES,
    (_STORAGE, "volumeattachments"): storage.VOLUME_ATTACHMENTS,
    (_STORAGE, "volumeattributesclasses"): storage.VOLUME_ATTRIBUTES_CLASSES,
}


def printer(group: str, plural: str, printer_columns: Sequence[dict[str, Any]] | None = None) -> Printer:
    """How the objects of `plural` in `group` ("" is the core group) are printed.

    `printer_columns` are a CRD version's `additionalPrinterColumns`; ignored for built-in kinds.
    Unknown kinds get Name and Age. A watch calls this once and passes the printer to each `frame`.
    """
    return _PRINTERS.get((group, plural)) or custom_printer(printer_columns)


def row(how: Printer, obj: Object, *, now: float, include_object: IncludeObject = "Metadata") -> dict[str, Any]:
    """One TableRow; `now` is in seconds since 1970. The metadata is the object's own, not a copy."""
    made: dict[str, Any] = {"cells": how.cells(obj, now)}
    if how.conditions is not None and (conditions := how.conditions(obj)):
        made["conditions"] = conditions
    if include_object == "Metadata":
        made["object"] = {"kind": "PartialObjectMetadata", "apiVersion": _API_VERSION, "metadata": obj["metadata"]}
    else:
        made["object"] = obj if include_object == "Object" else None
    return made


def columns(how: Printer) -> list[dict[str, Any]]:
    """The TableColumnDefinitions of a printer."""
    return [column.definition() for column in how.columns]


def frame(
    how: Printer, obj: Object, *, now: float, include_object: IncludeObject = "Metadata", headers: bool = True
) -> dict[str, Any]:
    """A Table of one object, for a get or a watch event; a watch sends the headers in its first event only."""
    version = obj["metadata"].get("resourceVersion")
    meta = {"resourceVersion": version} if version else {}
    return _assemble(how, [row(how, obj, now=now, include_object=include_object)], meta, headers=headers)


def table(
    group: str,
    plural: str,
    objects: Sequence[Object],
    *,
    now: float,
    list_meta: Object | None,
    printer_columns: Sequence[dict[str, Any]] | None = None,
    include_object: IncludeObject = "Metadata",
    headers: bool = True,
) -> dict[str, Any]:
    """A Table of a list, or of one object where `list_meta` is None.

    Args:
        group: the API group; "" is the core group.
        plural: the resource's name, as in its URL.
        objects: the objects as they are on the wire.
        now: seconds since 1970, for all ages.
        list_meta: the list's metadata: resourceVersion, continue, remainingItemCount.
        printer_columns: a CRD version's `additionalPrinterColumns`.
        include_object: what each row carries beside its cells, by the request's `includeObject`.
        headers: False leaves the column definitions null.
    """
    how = printer(group, plural, printer_columns)
    if list_meta is None and len(objects) == 1:
        return frame(how, objects[0], now=now, include_object=include_object, headers=headers)
    meta = {key: list_meta[key] for key in _LIST_META if list_meta.get(key)} if list_meta else {}
    rows = [row(how, obj, now=now, include_object=include_object) for obj in objects]
    return _assemble(how, rows, meta, headers=headers)


def _assemble(how: Printer, rows: list[dict[str, Any]], meta: dict[str, Any], *, headers: bool) -> dict[str, Any]:
    return {
        "kind": "Table",
        "apiVersion": _API_VERSION,
        "metadata": meta,
        "columnDefinitions": columns(how) if headers else None,
        "rows": rows,
    }
