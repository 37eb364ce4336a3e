"""Printers of workloads: the groups apps, batch, autoscaling and policy."""

from typing import Any

from seatrial.harness.apiserver.printers.columns import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    SELECTOR,
    UNSET,
    Cells,
    Object,
    Printer,
    age_of,
    condition,
    containers_and_images,
    labels,
    name_of,
    number,
    part,
    selector,
    selector_text,
    text,
    truncated_list,
)
from seatrial.harness.apiserver.printers.durations import UNKNOWN, age, human_duration
from seatrial.harness.apiserver.times import seconds_of

_READY = text("Ready", "Ready pods / desired pods.")
_DESIRED = number("Desired", "The desired number of pods.")
_CURRENT = number("Current", "How many pods there are.")
_READY_COUNT = number("Ready", "How many pods are ready.")
_POD_COLUMNS = (CONTAINERS, IMAGES, SELECTOR)


def _deployment(obj: Object, now: float) -> Cells:
    spec, status = part(obj, "spec"), part(obj, "status")
    selector_cell = selector_text(spec.get("selector"))
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(obj, now),
        *containers_and_images(part(spec, "template")),
        "<invalid>" if selector_cell is None else selector_cell,
    ]


DEPLOYMENTS = Printer(
    (
        NAME,
        _READY,
        text("Up-to-date", "How many pods are of the newest template."),
        text("Available", "How many pods have been ready for long enough."),
        AGE,
        *_POD_COLUMNS,
    ),
    _deployment,
)


def _replicas(obj: Object, now: float, selector_cell: str) -> Cells:
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        name_of(obj),
        spec.get("replicas", 1),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age_of(obj, now),
        *containers_and_images(part(spec, "template")),
        selector_cell,
    ]


def _replica_set(obj: Object, now: float) -> Cells:
    return _replicas(obj, now, selector(part(obj, "spec").get("selector")))


def _replication_controller(obj: Object, now: float) -> Cells:
    return _replicas(obj, now, labels(part(obj, "spec").get("selector")))  # labels alone, no expressions


_REPLICAS = (NAME, _DESIRED, _CURRENT, _READY_COUNT, AGE, *_POD_COLUMNS)
REPLICA_SETS = Printer(_REPLICAS, _replica_set)
REPLICATION_CONTROLLERS = Printer(_REPLICAS, _replication_controller)


def _stateful_set(obj: Object, now: float) -> Cells:
    spec, status = part(obj, "spec"), part(obj, "status")
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"
    return [name_of(obj), ready, age_of(obj, now), *containers_and_images(part(spec, "template"))]


STATEFUL_SETS = Printer((NAME, _READY, AGE, CONTAINERS, IMAGES), _stateful_set)


def _daemon_set(obj: Object, now: float) -> Cells:
    spec, status = part(obj, "spec"), part(obj, "status")
    template = part(spec, "template")
    return [
        name_of(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels(part(template, "spec").get("nodeSelector")),
        age_of(obj, now),
        *containers_and_images(template),
        selector(spec.get("selector")),
    ]


DAEMON_SETS = Printer(
    (
        NAME,
        number("Desired", "How many nodes should run the pod."),
        number("Current", "How many nodes run the pod."),
        number("Ready", "How many nodes run a ready pod."),
        number("Up-to-date", "How many nodes run a pod of the newest template."),
        number("Available", "How many nodes run a pod that has been ready for long enough."),
        text("Node Selector", "The labels that choose the nodes."),
        AGE,
        *_POD_COLUMNS,
    ),
    _daemon_set,
)


def _controller_revision(obj: Object, now: float) -> Cells:
    owner = NONE
    for reference in part(obj, "metadata").get("ownerReferences") or ():
        if reference.get("controller"):
            group = reference.get("apiVersion", "").rpartition("/")[0]
            kind = reference.get("kind", "").lower()
            owner = f"{kind}.{group}/{reference.get('name', '')}" if group else f"{kind}/{reference.get('name', '')}"
    return [name_of(obj), owner, obj.get("revision", 0), age_of(obj, now)]


CONTROLLER_REVISIONS = Printer(
    (NAME, text("Controller", "The owner of the revision."), text("Revision", "The revision's number."), AGE),
    _controller_revision,
)


def _is_true(obj: Object, kind: str) -> bool:
    kind_condition = condition(obj, kind)
    return kind_condition is not None and kind_condition.get("status") == "True"


def _job_status(job: Object) -> str:
    if _is_true(job, "Complete"):
        return "Complete"
    if _is_true(job, "Failed"):
        return "Failed"
    if part(job, "metadata").get("deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget"):
        if _is_true(job, kind):
            return kind
    return "Running"


def _job(job: Object, now: float) -> Cells:
    spec, status = part(job, "spec"), part(job, "status")
    succeeded, entry, parallelism = status.get("succeeded", 0), spec.get("completions"), spec.get("parallelism") or 0
    completions = f"{succeeded}/{1 if entry is None else entry}"
    if entry is None and parallelism > 1:
        completions += f" of {parallelism}"
    started, ended = status.get("startTime"), status.get("completionTime")
    duration = ""
    if started:
        duration = human_duration((seconds_of(ended) if ended else now) - seconds_of(started))
    return [
        name_of(job),
        _job_status(job),
        completions,
        duration,
        age_of(job, now),
        *containers_and_images(part(spec, "template")),
        selector(spec.get("selector")),
    ]


JOBS = Printer(
    (
        NAME,
        text("Status", "The state of the job, in one word."),
        text("Completions", "Succeeded pods / wanted pods."),
        text("Duration", "How long the job took, or has taken so far."),
        AGE,
        *_POD_COLUMNS,
    ),
    _job,
)


def _cron_job(obj: Object, now: float) -> Cells:
    spec, status = part(obj, "spec"), part(obj, "status")
    suspend, last = spec.get("suspend"), status.get("lastScheduleTime")
    job = part(spec, "jobTemplate", "spec")
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        UNSET if suspend is None else str(bool(suspend)),
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        age_of(obj, now),
        *containers_and_images(part(job, "template")),
        selector(job.get("selector")),
    ]


CRON_JOBS = Printer(
    (
        NAME,
        text("Schedule", "When jobs are started, as a cron line."),
        text("Timezone", "The time zone of the schedule."),
        text("Suspend", "Whether new jobs are suspended.")._replace(type="boolean"),
        number("Active", "How many of its jobs are running."),
        text("Last Schedule", "The time since a job was last started."),
        AGE,
        *_POD_COLUMNS,
    ),
    _cron_job,
)


def _disruption_budget(obj: Object, now: float) -> Cells:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        part(obj, "status").get("disruptionsAllowed", 0),
        age_of(obj, now),
    ]


POD_DISRUPTION_BUDGETS = Printer(
    (
        NAME,
        text("Min Available", "How many pods must stay."),
        text("Max Unavailable", "How many pods may be unavailable."),
        number("Allowed Disruptions", "How many pods may be evicted now."),
        AGE,
    ),
    _disruption_budget,
)


def _metric(spec: Object, status: Object) -> str:
    """One metric as current/target; `status` is the same metric's entry under status.currentMetrics."""
    kind = spec.get("type", "")
    field = kind[:1].lower() + kind[1:]
    spec_part, seen = part(spec, field), part(status, field)
    target, current = part(spec_part, "target"), part(seen, "current")
    average = target.get("averageValue")
    if kind == "Pods":
        return f"{current.get('averageValue', UNKNOWN)}/{average}"
    if kind in {"External", "Object"}:
        if average is not None:
            return f"{current.get('averageValue', UNKNOWN)}/{average} (avg)"
        return f"{current.get('value', UNKNOWN)}/{target.get('value')}"
    if kind in {"Resource", "ContainerResource"}:
        if average is not None:
            return f"{spec_part.get('name')}: {current.get('averageValue', UNKNOWN)}/{average}"
        now_used, goal = current.get("averageUtilization"), target.get("averageUtilization")
        shown = UNKNOWN if now_used is None else f"{now_used}%"
        return f"{spec_part.get('name')}: {shown}/{'<auto>' if goal is None else f'{goal}%'}"
    return "<unknown type>"


def _metrics(spec: Object, status: Object) -> str:
    metrics = list(spec.get("metrics") or ())
    seen = list(status.get("currentMetrics") or ())
    if not metrics and spec.get("targetCPUUtilizationPercentage") is not None:  # autoscaling/v1
        metrics = [_cpu("target", spec["targetCPUUtilizationPercentage"])]
        seen = [_cpu("current", status.get("currentCPUUtilizationPercentage"))]
    lines = [_metric(metric, seen[i] if i < len(seen) else {}) for i, metric in enumerate(metrics)]
    return truncated_list(lines, 2, empty=NONE, separator=", ")


def _cpu(side: str, percentage: int | None) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", side: {"averageUtilization": percentage}}}


def _autoscaler(obj: Object, now: float) -> Cells:
    spec, status = part(obj, "spec"), part(obj, "status")
    scaled, least = part(spec, "scaleTargetRef"), spec.get("minReplicas")
    return [
        name_of(obj),
        f"{scaled.get('kind', '')}/{scaled.get('name', '')}",
        _metrics(spec, status),
        UNSET if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age_of(obj, now),
    ]


HORIZONTAL_POD_AUTOSCALERS = Printer(
    (
        NAME,
        text("Reference", "What is scaled."),
        text("Targets", "Each metric as current/target."),
        text("MinPods", "The minimum number of pods."),
        text("MaxPods", "The maximum number of pods."),
        text("Replicas", "How many pods there are."),
        AGE,
    ),
    _autoscaler,
)


def _scale(obj: Object, now: float) -> Cells:
    return [
        name_of(obj),
        part(obj, "spec").get("replicas", 0),
        part(obj, "status").get("replicas", 0),
        age_of(obj, now),
    ]


SCALE = Printer((NAME._replace(format=""), _DESIRED, number("Available", "How many pods there are."), AGE), _scale)
