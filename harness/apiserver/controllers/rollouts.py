"""The rollout state of a Deployment: revisions, annotations copied to ReplicaSets, totals and conditions.

Follows `pkg/controller/deployment/{progress,sync}.go` and `util/deployment_util.go`.
"""

from seatrial.harness.apiserver.controllers.control import Control, with_condition, without_condition
from seatrial.harness.apiserver.controllers.podstate import condition
from seatrial.harness.apiserver.controllers.rolling import bounds_of
from seatrial.harness.apiserver.storage.store import Object
from seatrial.harness.apiserver.times import seconds_of
from seatrial.scheduler.api.integers import integer

REVISION, HISTORY = "deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"
DESIRED, MAX_REPLICAS = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWN = frozenset({REVISION, HISTORY, DESIRED, MAX_REPLICAS, LAST_APPLIED, "deprecated.deployment.rollback.to"})
_NO_DEADLINE = (1 << 31) - 1


def revision(replica_set: Object) -> int:
    """The number in the revision annotation; 0 if there is none."""
    text = (replica_set["metadata"].get("annotations") or {}).get(REVISION, "")
    return max(integer(text) or 0, 0)


def inherited(annotations: dict[str, str]) -> dict[str, str]:
    """The Deployment's annotations that are copied to its ReplicaSets, such as `kubernetes.io/change-cause`."""
    return {name: value for name, value in annotations.items() if name not in _OWN}


def annotated(deployment: Object, replica_set: Object, number: int) -> dict[str, str | None]:
    """The annotations of the newest set; earlier revision numbers of a reused set are kept as history."""
    have = replica_set["metadata"].get("annotations") or {}
    annotations: dict[str, str | None] = dict(inherited(deployment["metadata"].get("annotations") or {}))
    before = revision(replica_set)
    if number > before:
        annotations[REVISION] = str(number)
        if before:
            annotations[HISTORY] = ",".join([*filter(None, have.get(HISTORY, "").split(",")), str(before)])
    return annotations


def totals(deployment: Object, sets: list[Object], new: Object | None) -> Object:
    """The counts of the status; zero counts are omitted, as upstream does."""

    def total(name: str, of: list[Object]) -> int:
        return sum((replica_set.get("status") or {}).get(name, 0) for replica_set in of)

    replicas, available = total("replicas", sets), total("availableReplicas", sets)
    status: Object = {"observedGeneration": deployment["metadata"].get("generation", 0)}
    amount = sum(replica_set["spec"].get("replicas", 1) for replica_set in sets)
    for name, count in (
        ("replicas", replicas),
        ("updatedReplicas", total("replicas", [new] if new is not None else [])),
        ("readyReplicas", total("readyReplicas", sets)),
        ("availableReplicas", available),
        ("unavailableReplicas", max(0, amount - available)),
    ):
        if count:
            status[name] = count
    return status


def is_complete(deployment: Object, status: Object | None = None) -> bool:
    """Whether all pods are of the newest template and available."""
    status = status if status is not None else deployment.get("status") or {}
    replicas = deployment["spec"].get("replicas", 1)
    counts = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return all(count == replicas for count in counts) and status.get("observedGeneration", 0) >= deployment[
        "metadata"
    ].get("generation", 0)


def conditions_of(
    deployment: Object, status: Object, old: list[Object], new: Object | None, control: Control
) -> list[Object]:
    """The conditions Available, Progressing and, if a set cannot create pods, ReplicaFailure."""
    conditions: list[Object] = list((deployment.get("status") or {}).get("conditions") or ())
    conditions = _renewed(conditions, _available(deployment, status), control)
    progressing = _progressing(deployment, status, conditions, new, control)
    if progressing is not None:
        conditions = _renewed(conditions, progressing, control, moved=_progressed(deployment, status))
    failure = next(
        (
            results
            for replica_set in [*([new] if new else []), *old]
            if (results := condition(replica_set, "ReplicaFailure"))
        ),
        None,
    )
    if failure is not None:
        return _renewed(
            conditions, (failure["type"], failure["status"], failure["reason"], failure["message"]), control
        )
    return without_condition(conditions, "ReplicaFailure")


_Row = tuple[str, str, str, str]  # type, status, reason, message


def _renewed(conditions: list[Object], row: _Row, control: Control, *, moved: bool = False) -> list[Object]:
    """`conditions` with the one of `row`; `moved` sets its lastUpdateTime even if nothing else changed."""
    kind, truth, reason, message = row
    old = next((entry for entry in conditions if entry["type"] == kind), None)
    if old is not None and not moved and (old["status"], old["reason"]) == (truth, reason):
        return conditions
    fresh = control.condition(kind, truth, reason, message)
    fresh["lastUpdateTime"] = control.clock.timestamp()
    if old is None:
        return with_condition(conditions, fresh)
    if old["status"] == truth:
        fresh["lastTransitionTime"] = old["lastTransitionTime"]
    return [fresh if entry is old else entry for entry in conditions]


def _available(deployment: Object, status: Object) -> _Row:
    spec = deployment["spec"]
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    bounds = bounds_of(
        spec.get("replicas", 1),
        rolling.get("maxSurge"),
        rolling.get("maxUnavailable"),
        rolling=strategy.get("type") == "RollingUpdate",
    )
    if status.get("availableReplicas", 0) >= bounds.min_available:
        return "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    return "Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."


def _progressing(
    deployment: Object, status: Object, conditions: list[Object], new: Object | None, control: Control
) -> _Row | None:
    spec, name = deployment["spec"], deployment["metadata"]["name"]
    if not _has_deadline(deployment):
        return None
    old = next((entry for entry in conditions if entry["type"] == "Progressing"), None)
    if spec.get("paused"):
        return "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused"
    if old is not None and old["reason"] == "DeploymentPaused":
        return "Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed"
    what = f'ReplicaSet "{new["metadata"]["name"]}"' if new is not None else f'Deployment "{name}"'
    finished = (
        status.get("replicas", 0) == status.get("updatedReplicas", 0)
        and old is not None
        and old["reason"] == "NewReplicaSetAvailable"
    )
    if finished:
        return None  # the rollout was complete: later pod changes do not start a new one
    if is_complete(deployment, status):
        return "Progressing", "True", "NewReplicaSetAvailable", f"{what} has successfully progressed."
    if _progressed(deployment, status):
        return "Progressing", "True", "ReplicaSetUpdated", f"{what} is progressing."
    if old is None:
        if new is not None:
            return "Progressing", "True", "NewReplicaSetCreated", f'Created new replica set "{new["metadata"]["name"]}"'
        return None
    if _overdue(deployment, old, control.clock.now()):
        return "Progressing", "False", "ProgressDeadlineExceeded", f"{what} has timed out progressing."
    return None


def _progressed(deployment: Object, status: Object) -> bool:
    """Whether updated, ready or available pods increased or old pods decreased since the stored status."""
    before = deployment.get("status") or {}

    def count(of: Object, name: str) -> int:
        return int(of.get(name, 0))

    def old_ones(of: Object) -> int:
        return count(of, "replicas") - count(of, "updatedReplicas")

    return (
        count(status, "updatedReplicas") > count(before, "updatedReplicas")
        or old_ones(status) < old_ones(before)
        or count(status, "readyReplicas") > count(before, "readyReplicas")
        or count(status, "availableReplicas") > count(before, "availableReplicas")
    )


def _has_deadline(deployment: Object) -> bool:
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    return deadline is not None and deadline != _NO_DEADLINE


def _overdue(deployment: Object, progressing: Object, now: float) -> bool:
    if progressing["reason"] == "NewReplicaSetAvailable":
        return False
    if progressing["reason"] == "ProgressDeadlineExceeded":
        return True
    since = seconds_of(progressing.get("lastUpdateTime") or progressing["lastTransitionTime"])
    return now >= since + deployment["spec"]["progressDeadlineSeconds"]


def progress_left(deployment: Object, now: float) -> float | None:
    """Seconds until progressDeadlineSeconds expires; None if complete, paused, expired or without a deadline."""
    progressing = condition(deployment, "Progressing")
    if progressing is None or not _has_deadline(deployment) or deployment["spec"].get("paused"):
        return None
    if is_complete(deployment) or progressing["reason"] in {"NewReplicaSetAvailable", "ProgressDeadlineExceeded"}:
        return None
    since = seconds_of(progressing.get("lastUpdateTime") or progressing["lastTransitionTime"])
    return max(0.0, since + deployment["spec"]["progressDeadlineSeconds"] - now) + 1.0
