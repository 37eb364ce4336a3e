"""Printers of core kinds other than pods, services and volumes: nodes, events, namespaces, quotas and so on."""

from seatrial.harness.apiserver.printers.columns import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    Cells,
    Object,
    Printer,
    age_of,
    condition,
    containers_and_images,
    labels,
    name_of,
    part,
    text,
    wide,
)
from seatrial.harness.apiserver.printers.durations import UNKNOWN, age

_ROLE_PREFIX = "node-role.kubernetes.io/"


def _roles(node: Object) -> str:
    roles = set()
    for key, value in part(node, "metadata", "labels").items():
        if key.startswith(_ROLE_PREFIX):
            roles.add(key.removeprefix(_ROLE_PREFIX))
        elif key == "kubernetes.io/role":
            roles.add(value)
    return ",".join(sorted(roles - {""})) or NONE


def _address(node: Object, kind: str) -> str:
    for address in part(node, "status").get("addresses") or ():
        if address.get("type") == kind:
            return address.get("address", "")
    return NONE


def _node(node: Object, now: float) -> Cells:
    ready, info = condition(node, "Ready"), part(node, "status", "nodeInfo")
    status = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    if part(node, "spec").get("unschedulable"):
        status += ",SchedulingDisabled"
    return [
        name_of(node),
        status,
        _roles(node),
        age_of(node, now),
        info.get("kubeletVersion", ""),
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


NODES = Printer(
    (
        NAME,
        text("Status", "Whether the node is ready and takes pods."),
        text("Roles", "The node's roles, from its labels."),
        AGE,
        text("Version", "The version that the node's agent reports."),
        wide("Internal-IP", "The node's address inside the cluster."),
        wide("External-IP", "The node's address outside the cluster."),
        wide("OS-Image", "The operating system that the node reports."),
        wide("Kernel-Version", "The kernel that the node reports."),
        wide("Container-Runtime", "The container runtime that the node reports."),
    ),
    _node,
)


def _event(event: Object, now: float) -> Cells:
    # One kind in two groups: events.k8s.io renames the fields that the core group has.
    target = event.get("involvedObject") or event.get("regarding") or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    observed = event.get("eventTime")
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or observed
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or first
    count, series = event.get("count") or event.get("deprecatedCount") or 1, event.get("series")
    if series:
        last, count = series.get("lastObservedTime"), series.get("count", 0)
    kind, name = target.get("kind", "").lower(), target.get("name")
    component = source.get("component") or event.get("reportingComponent") or event.get("reportingController") or ""
    host = source.get("host") or event.get("reportingInstance")
    return [
        age(last, now),
        event.get("type", ""),
        event.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        target.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        (event.get("message") or event.get("note") or "").strip(),
        age(first, now),
        count,
        name_of(event),
    ]


EVENTS = Printer(
    (
        text("Last Seen", "The time since the event was last observed."),
        text("Type", "Normal or Warning."),
        text("Reason", "The reason, in one word."),
        text("Object", "The kind and name of the object that it happened to."),
        wide("Subobject", "The part of the object that it happened to."),
        wide("Source", "Who reported it."),
        text("Message", "The message."),
        wide("First Seen", "The time since the event was first observed."),
        wide("Count", "The number of observations."),
        NAME._replace(priority=1),
    ),
    _event,
)

NAMESPACES = Printer(
    (NAME, text("Status", "Whether the namespace is active or terminating."), AGE),
    lambda o, now: [name_of(o), part(o, "status").get("phase", ""), age_of(o, now)],
)

CONFIG_MAPS = Printer(
    (NAME, text("Data", "How many keys there are."), AGE),
    lambda o, now: [name_of(o), len(part(o, "data")) + len(part(o, "binaryData")), age_of(o, now)],
)

SECRETS = Printer(
    (NAME, text("Type", "What the secret is for."), text("Data", "How many keys there are."), AGE),
    lambda o, now: [name_of(o), o.get("type", "Opaque"), len(part(o, "data")), age_of(o, now)],
)

SERVICE_ACCOUNTS = Printer(
    (NAME, text("Secrets", "How many secrets the account may use."), AGE),
    lambda o, now: [name_of(o), len(o.get("secrets") or ()), age_of(o, now)],
)


def _quota(quota: Object, now: float) -> Cells:
    hard, used = part(quota, "status", "hard"), part(quota, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for resource in sorted(hard):
        column = limits if resource.startswith("limits.") else requests
        column.append(f"{resource}: {used.get(resource, '0')}/{hard[resource]}")
    return [name_of(quota), ", ".join(requests), ", ".join(limits), age_of(quota, now)]


RESOURCE_QUOTAS = Printer(
    (
        NAME,
        text("Request", "Used and allowed, for each resource that is not a limit."),
        text("Limit", "Used and allowed, for each limit."),
        AGE,
    ),
    _quota,
)


def _template(obj: Object, _now: float) -> Cells:
    template = part(obj, "template")
    return [name_of(obj), *containers_and_images(template), labels(part(template, "metadata").get("labels"))]


POD_TEMPLATES = Printer(
    (
        NAME,
        CONTAINERS._replace(priority=0),
        IMAGES._replace(priority=0),
        text("Pod Labels", "The labels that the template gives to pods."),
    ),
    _template,
)


def _component(obj: Object, _now: float) -> Cells:
    for entry in obj.get("conditions") or ():
        if entry.get("type") == "Healthy":
            status = "Healthy" if entry.get("status") == "True" else "Unhealthy"
            return [name_of(obj), status, entry.get("message", ""), entry.get("error", "")]
    return [name_of(obj), "Unknown", "", ""]


COMPONENT_STATUSES = Printer(
    (
        NAME,
        text("Status", "Whether the component is healthy."),
        text("Message", "The component's own message."),
        text("Error", "The error of the health check."),
    ),
    _component,
)
