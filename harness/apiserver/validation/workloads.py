"""Validation of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs."""

import re
from typing import Any

from seatrial.harness.apiserver.cron import CronError, parse_cron, time_zone
from seatrial.harness.apiserver.field_errors import Causes, forbidden, immutable, invalid, required, unsupported
from seatrial.harness.apiserver.names import Object, check_annotations, check_labels, dns_label
from seatrial.harness.apiserver.validation.job_policies import check_job_policies
from seatrial.harness.apiserver.validation.placement import check_label_selector
from seatrial.harness.apiserver.validation.pod_groups import check_job_scheduling, check_same_policy
from seatrial.harness.apiserver.validation.pods import check_pod_spec
from seatrial.harness.apiserver.validation.resources import NOT_NEGATIVE

_IMMUTABLE_SELECTOR = frozenset({"Deployment", "ReplicaSet", "DaemonSet"})
_STATEFUL_MAY_CHANGE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_STATEFUL_REFUSED = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy',"
    " 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_STRATEGIES = {  # kind → field of the strategy, its types in upstream's order
    "Deployment": ("strategy", ("Recreate", "RollingUpdate")),
    "DaemonSet": ("updateStrategy", ("RollingUpdate", "OnDelete")),
    "StatefulSet": ("updateStrategy", ("RollingUpdate", "OnDelete")),
}
_COUNTS = ("replicas", "minReadySeconds", "revisionHistoryLimit")
_JOB_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_JOB_FIXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_MAX_CRON_JOB_NAME = 52  # characters; names of its Jobs add 11
_CONCURRENCY = ("Allow", "Forbid", "Replace")
_is_percent = re.compile(r"[0-9]+%").fullmatch


def check_workload(kind: str, obj: Object, old: Object | None, causes: Causes) -> None:
    """Check a kind of group apps, or a ReplicationController."""
    spec = obj.get("spec") or {}
    for field in _COUNTS:
        _not_negative(spec, field, "spec", causes)
    selector = spec.get("selector")
    if kind != "ReplicationController":
        _check_selector(kind, selector, causes)
    template = spec.get("template") or {}
    if kind == "ReplicationController":
        if not selector:
            causes.append(required("spec.selector"))
        if spec.get("template") is None:
            causes.append(required("spec.template"))
            return
    elif selector or selector is None:
        labels = (template.get("metadata") or {}).get("labels") or {}
        if selector is None or not matches(selector, labels):  # no selector matches nothing
            problem = "`selector` does not match template `labels`"
            causes.append(invalid("spec.template.metadata.labels", labels, problem))
    check_template(template, "spec.template", causes)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy not in (None, "Always"):
        causes.append(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if kind in _STRATEGIES:
        _check_strategy(kind, spec, causes)
    if old is not None:
        before = old.get("spec") or {}
        if kind in _IMMUTABLE_SELECTOR:
            causes.extend(immutable("spec.selector", selector, before.get("selector")))
        elif kind == "StatefulSet" and _fixed_part(spec) != _fixed_part(before):
            causes.append(forbidden("spec", _STATEFUL_REFUSED))


def check_template(template: Object, path: str, causes: Causes) -> None:
    """Check the labels, annotations and spec of a pod template."""
    metadata = template.get("metadata") or {}
    if metadata.get("labels"):
        check_labels(metadata["labels"], f"{path}.metadata.labels", causes)
    if metadata.get("annotations"):
        check_annotations(metadata["annotations"], f"{path}.metadata.annotations", causes)
    check_pod_spec(template.get("spec") or {}, f"{path}.spec", causes)


def check_job(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a Job to `causes`; `old` is the stored object of an update."""
    spec = obj.get("spec") or {}
    before = (old.get("spec") or {}) if old is not None else None
    _check_job_spec(spec, before, "spec", causes)
    selector = spec.get("selector")
    if selector is None and (obj.get("metadata") or {}).get("uid"):
        causes.append(required("spec.selector"))
    elif selector:
        check_label_selector(selector, "spec.selector", causes)
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if not matches(selector, labels):
            problem = "`selector` does not match template `labels`"
            causes.append(invalid("spec.template.metadata.labels", labels, problem))
    if old is None or before is None:
        _check_index_names(obj, spec, causes)
        return
    check_same_policy(spec, before, causes)
    together = spec.get("completions") == spec.get("parallelism") and spec.get("completionMode") == "Indexed"
    if not together:  # an elastic indexed Job may be scaled
        causes.extend(immutable("spec.completions", spec.get("completions"), before.get("completions")))
    causes.extend(immutable("spec.selector", selector, before.get("selector")))
    template = spec.get("template") or {}
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        # job queues set the placement before they resume a Job
        template = _with_placement_of(template, before.get("template") or {})
    if template != (before.get("template") or {}):
        causes.append(invalid("spec.template", spec.get("template"), "field is immutable"))
    for field in _JOB_FIXED:
        causes.extend(immutable(f"spec.{field}", spec.get(field), before.get(field)))


def _check_index_names(obj: Object, spec: Object, causes: Causes) -> None:
    """The pod of the last index needs a valid host name."""
    name, count = str(obj["metadata"].get("name") or ""), spec.get("completions") or 0
    if spec.get("completionMode") == "Indexed" and count > 0 and dns_label(f"{name}-{count - 1}"):
        problem = f"will not able to create pod with invalid DNS label: {name}-{count - 1}"
        causes.append(invalid("metadata.name", name, problem))


def check_cron_job(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a CronJob to `causes`; `old` is the stored object of an update."""
    name = (obj.get("metadata") or {}).get("name") or ""
    if len(name) > _MAX_CRON_JOB_NAME:
        causes.append(invalid("metadata.name", name, f"must be no more than {_MAX_CRON_JOB_NAME} characters"))
    spec = obj.get("spec") or {}
    if not spec.get("schedule"):
        causes.append(required("spec.schedule"))
    else:
        _check_schedule(spec["schedule"], causes)
    if spec.get("timeZone") is not None:
        _check_time_zone(spec["timeZone"], causes)
    policy = spec.get("concurrencyPolicy")
    if policy not in _CONCURRENCY:
        field = "spec.concurrencyPolicy"
        causes.append(unsupported(field, policy, _CONCURRENCY) if policy else required(field))
    for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        _not_negative(spec, field, "spec", causes)
    before = _job_template(old) if old is not None else None
    _check_job_spec(_job_template(obj), before, "spec.jobTemplate.spec", causes)


def _job_template(cron_job: Object) -> Object:
    spec: Object = ((cron_job.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
    return spec


def matches(selector: Object, labels: Object) -> bool:
    """Whether a label selector matches; an unknown operator matches nothing."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_meets(expression, labels) for expression in selector.get("matchExpressions") or ())


def _meets(expression: Object, labels: Object) -> bool:
    key, values = expression.get("key"), expression.get("values") or ()
    return {
        "In": key in labels and labels[key] in values,
        "NotIn": key not in labels or labels[key] not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }.get(expression.get("operator") or "", False)


def _check_selector(kind: str, selector: Object | None, causes: Causes) -> None:
    if selector is None:
        if kind != "DaemonSet":  # upstream reports the labels of the template only
            causes.append(required("spec.selector"))
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        named = "deployment" if kind == "ReplicaSet" else kind.lower()  # upstream names the wrong kind here
        causes.append(invalid("spec.selector", selector, f"empty selector is invalid for {named}"))
    else:
        check_label_selector(selector, "spec.selector", causes)


def _check_strategy(kind: str, spec: Object, causes: Causes) -> None:
    field, types = _STRATEGIES[kind]
    strategy = spec.get(field) or {}
    path, kind_of_strategy = f"spec.{field}", strategy.get("type")
    if kind_of_strategy not in types:
        causes.append(
            unsupported(f"{path}.type", kind_of_strategy, types) if kind_of_strategy else required(f"{path}.type")
        )
        return
    rolling = strategy.get("rollingUpdate")
    if kind_of_strategy != "RollingUpdate":
        if rolling is not None and kind != "DaemonSet":
            problem = f"may not be specified when strategy `type` is '{kind_of_strategy}'"
            if kind == "StatefulSet":
                problem = "only allowed for updateStrategy 'RollingUpdate'"
            causes.append(forbidden(f"{path}.rollingUpdate", problem))
        return
    rolling = rolling or {}
    own = f"{path}.rollingUpdate"
    _not_negative(rolling, "partition", own, causes)
    for name in ("maxUnavailable", "maxSurge"):
        if name in rolling:
            unlimited = (kind, name) == ("Deployment", "maxSurge")
            check_count_or_percent(rolling[name], f"{own}.{name}", causes, unlimited=unlimited)
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    if kind == "Deployment" and _is_zero(unavailable) and _is_zero(surge):
        causes.append(invalid(f"{own}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    if kind == "DaemonSet" and _is_zero(unavailable) and _is_zero(surge):
        causes.append(required(f"{own}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    elif kind == "DaemonSet" and not _is_zero(unavailable) and not _is_zero(surge):
        causes.append(invalid(f"{own}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if kind == "Deployment" and deadline is not None:
        if deadline < 0:
            causes.append(invalid("spec.progressDeadlineSeconds", deadline, NOT_NEGATIVE))
        if deadline <= ready:
            causes.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))


def _check_schedule(schedule: str, causes: Causes) -> None:
    try:
        parse_cron(schedule)
    except CronError as error:
        causes.append(invalid("spec.schedule", schedule, str(error)))
    if "TZ" in schedule:
        problem = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes.append(invalid("spec.schedule", schedule, problem))


def _check_time_zone(name: str, causes: Causes) -> None:
    if not name:
        causes.append(invalid("spec.timeZone", name, "timeZone must be nil or non-empty string"))
        return
    if name.lower() == "local":
        problem = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        causes.append(invalid("spec.timeZone", name, problem))
        if name == "Local":
            return
    try:
        time_zone(name)
    except CronError as error:
        causes.append(invalid("spec.timeZone", name, str(error)))


def check_count_or_percent(value: Any, path: str, causes: Causes, *, unlimited: bool = False) -> None:
    """Check a number of pods, or a percentage up to 100% unless it is `unlimited`."""
    if isinstance(value, str):
        if not _is_percent(value):
            problem = (
                "a valid percent string must be a numeric string followed by an ending '%'"
                " (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            )
            causes.append(invalid(path, value, problem))
        elif not unlimited and (len(value.lstrip("0")) > len("100%") or int(value[:-1]) > 100):
            causes.append(invalid(path, value, "must not be greater than 100%"))
    elif value is not None and value < 0:
        causes.append(invalid(path, value, NOT_NEGATIVE))


def _check_job_spec(spec: Object, before: Object | None, path: str, causes: Causes) -> None:
    for field in _JOB_COUNTS:
        _not_negative(spec, field, path, causes)
    check_job_scheduling(spec, before, path, causes)
    check_job_policies(spec, path, causes)
    template = spec.get("template") or {}
    check_template(template, f"{path}.template", causes)
    policy, own = (template.get("spec") or {}).get("restartPolicy"), f"{path}.template.spec.restartPolicy"
    if policy not in {"OnFailure", "Never"}:
        causes.append(required(own, 'valid values: "OnFailure", "Never"'))
    elif policy == "OnFailure" and spec.get("podFailurePolicy") is not None:
        causes.append(invalid(own, policy, 'only "Never" is supported when podFailurePolicy is specified'))


def _with_placement_of(template: Object, before: Object) -> Object:
    """The template with placement fields, labels and annotations of `before`."""
    spec, spec_before = dict(template.get("spec") or {}), before.get("spec") or {}
    for field in ("nodeSelector", "affinity", "tolerations", "schedulingGates"):
        if field in spec_before:
            spec[field] = spec_before[field]
        else:
            spec.pop(field, None)
    return {**template, "metadata": before.get("metadata"), "spec": spec}


def _fixed_part(spec: Object) -> Object:
    return {field: value for field, value in spec.items() if field not in _STATEFUL_MAY_CHANGE and value is not None}


def _is_zero(value: Any) -> bool:
    return not (value.removesuffix("%").lstrip("0") if isinstance(value, str) else value)


def _not_negative(spec: Object, field: str, path: str, causes: Causes) -> None:
    value = spec.get(field)
    if value is not None and value < 0:
        causes.append(invalid(f"{path}.{field}", value, NOT_NEGATIVE))
