"""Validation of APIServices, RuntimeClasses, ControllerRevisions, Namespaces and Events."""

from seatrial.harness.apiserver.field_errors import Causes, immutable, invalid, required
from seatrial.harness.apiserver.names import Object, check_labels, dns_1035, dns_label, qualified, subdomain
from seatrial.harness.apiserver.validation.pod_security import LEVELS, MODES, PREFIX, is_version
from seatrial.harness.apiserver.validation.resources import NOT_NEGATIVE, check_list

_MAX_GROUP_PRIORITY, _MAX_VERSION_PRIORITY = 20_000, 1_000
_EVENT_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}  # bytes
_CORE_EVENT_FIELDS = ("firstTimestamp", "lastTimestamp", "count", "source")  # not for `events.k8s.io/v1`
_LEAST_SERIES = 2


def check_api_service(obj: Object, causes: Causes) -> None:
    """Append what is invalid in an APIService to `causes`."""
    spec, name = obj.get("spec") or {}, (obj.get("metadata") or {}).get("name") or ""
    group, version = spec.get("group") or "", spec.get("version") or ""
    if name != f"{version}.{group}":
        problem = f'must be `spec.version+"."+spec.group`: {version}.{group}'
        causes.append(invalid("metadata.name", name, problem))
    if not group and version != "v1":
        causes.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    if group:
        causes.extend(invalid("spec.group", group, problem) for problem in subdomain(group))
    causes.extend(invalid("spec.version", version, problem) for problem in dns_1035(version))
    for field, limit in (("groupPriorityMinimum", _MAX_GROUP_PRIORITY), ("versionPriority", _MAX_VERSION_PRIORITY)):
        value = spec.get(field) or 0
        if not 0 < value <= limit:
            causes.append(invalid(f"spec.{field}", value, f"must be positive and less than {limit}"))
    service, insecure = spec.get("service"), spec.get("insecureSkipTLSVerify")
    if service is None:
        if spec.get("caBundle"):
            causes.append(invalid("spec.caBundle", "", "local APIServices may not have a caBundle"))
        if insecure:
            problem = "local APIServices may not have insecureSkipTLSVerify"
            causes.append(invalid("spec.insecureSkipTLSVerify", insecure, problem))
        return
    for field in ("namespace", "name"):
        if not service.get(field):
            causes.append(required(f"spec.service.{field}"))
    port = service.get("port")
    if port is not None and not 1 <= port <= 65535:
        causes.append(invalid("spec.service.port", port, "port is not valid: must be between 1 and 65535, inclusive"))
    if insecure and spec.get("caBundle"):
        problem = "may not be true if caBundle is present"
        causes.append(invalid("spec.insecureSkipTLSVerify", insecure, problem))


def check_runtime_class(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a RuntimeClass to `causes`; the handler of `old` may not change."""
    handler = obj.get("handler") or ""
    if handler:
        causes.extend(invalid("handler", handler, problem) for problem in dns_label(handler))
    else:
        causes.append(required("handler"))
    fixed = (obj.get("overhead") or {}).get("podFixed") or {}
    if fixed:
        check_list(fixed, "overhead.limits", causes)  # upstream reports this path
    selector = (obj.get("scheduling") or {}).get("nodeSelector")
    if selector:
        check_labels(selector, "scheduling.nodeSelector", causes)
    if old is not None:
        causes.extend(immutable("handler", handler, old.get("handler")))


def check_controller_revision(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a ControllerRevision to `causes`; the data of `old` may not change."""
    if obj.get("data") is None:
        causes.append(required("data", "data is mandatory"))
    if (obj.get("revision") or 0) < 0:
        causes.append(invalid("revision", obj["revision"], NOT_NEGATIVE))
    if old is not None:
        causes.extend(immutable("data", obj.get("data"), old.get("data")))


def check_namespace(obj: Object, causes: Causes) -> None:
    """Check finalizers of the spec, and labels that pod security admission reads."""
    for finalizer in (obj.get("spec") or {}).get("finalizers") or ():
        if "/" not in finalizer and finalizer != "kubernetes":
            causes.append(
                invalid(
                    "spec.finalizers", finalizer, "name is neither a standard finalizer name nor is it fully qualified"
                )
            )
        causes.extend(invalid("spec.finalizers", finalizer, problem) for problem in qualified(finalizer))
    for label, value in ((obj.get("metadata") or {}).get("labels") or {}).items():
        if not label.startswith(PREFIX):
            continue
        mode = label.removeprefix(PREFIX)
        if mode in MODES and value not in LEVELS:
            causes.append(invalid(f"metadata.labels[{label}]", value, f"must be one of {', '.join(LEVELS)}"))
        elif mode.removesuffix("-version") in MODES and mode.endswith("-version") and not is_version(value):
            causes.append(invalid(f"metadata.labels[{label}]", value, 'must be "latest" or "v1.x"'))


def check_event(obj: Object, causes: Causes) -> None:
    """Append what is invalid in an Event to `causes`: its namespace is that of the object that it is about."""
    namespace = (obj.get("metadata") or {}).get("namespace") or ""
    involved = (obj.get("involvedObject") or {}).get("namespace") or ""
    if namespace != involved and (
        involved or namespace not in {"default", "kube-system" if obj.get("eventTime") else ""}
    ):
        causes.append(invalid("involvedObject.namespace", involved, "does not match event.namespace"))
    if not obj.get("eventTime"):
        return
    reporter = obj.get("reportingComponent") or ""
    if not reporter:
        causes.append(required("reportingController"))
    causes.extend(invalid("reportingController", reporter, problem) for problem in qualified(reporter))
    for field, limit in _EVENT_LIMITS.items():
        text = obj.get(field) or ""
        if not text and field != "message":
            causes.append(required(field))
        if len(text.encode()) > limit:
            causes.append(invalid(field, "", f"can have at most {limit} characters"))


def check_new_event(obj: Object) -> Causes:
    """What `events.k8s.io/v1` asks of an event beyond what core events need."""
    causes: Causes = []
    if not obj.get("eventTime"):
        causes.append(required("eventTime"))
    if obj.get("type") not in {"Normal", "Warning"}:
        causes.append(invalid("type", "", "has invalid value: " + str(obj.get("type") or "")))
    causes.extend(invalid(field, "", "needs to be unset") for field in _CORE_EVENT_FIELDS if obj.get(field))
    series = obj.get("series")
    if series is not None:
        if (series.get("count") or 0) < _LEAST_SERIES:
            causes.append(invalid("series.count", "", f"should be at least {_LEAST_SERIES}"))
        if not series.get("lastObservedTime"):
            causes.append(required("series.lastObservedTime"))
    check_event(obj, causes)
    return causes
