"""kube-apiserver's defaults for workloads. Follows `pkg/apis/{apps,batch,autoscaling}`."""

from collections.abc import Callable

from seatrial.harness.apiserver.defaults.pods import Object, default_claim_spec, default_template, fill

_UNLIMITED_RETRIES = (1 << 31) - 1  # backoffLimit when backoffLimitPerIndex is set
_JOB_LABEL = "batch.kubernetes.io/"


def _deployment(obj: Object) -> None:
    spec = _with_template(obj)
    fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = _part(spec, "strategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill(_part(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")


def _replica_set(obj: Object) -> None:
    fill(_with_template(obj), replicas=1)


def _replication_controller(obj: Object) -> None:
    spec = _part(obj, "spec")
    fill(spec, replicas=1)
    if spec.get("template") is None:  # the only kind whose template upstream does not make up
        return
    labels = _with_template(obj)["template"]["metadata"].get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = _part(obj, "metadata")
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)


def _stateful_set(obj: Object) -> None:
    spec = _with_template(obj)
    fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    strategy = _part(spec, "updateStrategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill(_part(strategy, "rollingUpdate"), partition=0)
    fill(_part(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    for claim in spec.get("volumeClaimTemplates") or ():
        fill(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        default_claim_spec(_part(claim, "spec"))
        fill(_part(claim, "status"), phase="Pending")


def _daemon_set(obj: Object) -> None:
    spec = _with_template(obj)
    fill(spec, revisionHistoryLimit=10)
    strategy = _part(spec, "updateStrategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill(_part(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)


def _job(obj: Object) -> None:
    spec = _with_template(obj)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1  # with parallelism alone the Job is a work queue without a completion count
    by_index = spec.get("backoffLimitPerIndex") is not None
    fill(
        spec,
        parallelism=1,
        backoffLimit=_UNLIMITED_RETRIES if by_index else 6,
        completionMode="NonIndexed",
        manualSelector=False,
        suspend=False,
        podReplacementPolicy="Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed",
    )
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            fill(pattern, status="True")
    metadata = _part(obj, "metadata")
    if metadata.get("uid") and not spec.get("manualSelector"):
        _own_pods(spec, metadata["uid"], metadata.get("name") or "")
    labels = spec["template"]["metadata"].get("labels")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _own_pods(spec: Object, uid: str, name: str) -> None:
    """Set the selector by UID, so that successive Jobs of one name do not adopt each other's pods."""
    if spec.get("selector"):
        return
    labels = _part(spec["template"]["metadata"], "labels")
    labels |= {
        "controller-uid": uid,
        f"{_JOB_LABEL}controller-uid": uid,
        "job-name": name,
        f"{_JOB_LABEL}job-name": name,
    }
    spec["selector"] = {"matchLabels": {f"{_JOB_LABEL}controller-uid": uid}}


def _cron_job(obj: Object) -> None:
    spec = _part(obj, "spec")
    fill(spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    template = _part(spec, "jobTemplate")  # the Job's own defaults are set when it is created
    _part(template, "metadata")
    default_template(_part(_part(template, "spec"), "template"))


def _autoscaler(obj: Object) -> None:
    spec = _part(obj, "spec")
    fill(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _with_template(obj: Object) -> Object:
    """The object's spec, after setting the defaults of its pod template."""
    spec = _part(obj, "spec")
    default_template(_part(spec, "template"))
    _part(obj, "status")
    return spec


def _part(obj: Object, name: str) -> Object:
    part: Object | None = obj.get(name)
    if part is None:
        part = obj[name] = {}
    return part


WORKLOADS: dict[tuple[str, str], Callable[[Object], None]] = {
    ("", "ReplicationController"): _replication_controller,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("autoscaling", "HorizontalPodAutoscaler"): _autoscaler,
}
