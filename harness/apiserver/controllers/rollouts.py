"""What a Deployment says of its rollout: revisions, annotations handed on to ReplicaSets, totals and conditions.

Follows `pkg/controller/deployment/{progress,sync}.go` and `util/deployment_util.go`.
"""

from harness.apiserver.controllers.control import Control, with_condition, without_condition
from harness.apiserver.controllers.podstate import condition
from harness.apiserver.controllers.rolling import bounds_of
from harness.apiserver.storage.store import Object
from scheduler.api.clock import from_rfc3339

REVISION, HISTORY = "deployment.kubernetes.io/revision", "deployment.kubernetes.io/revision-history"
DESIRED, MOST = "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWN = frozenset({REVISION, HISTORY, DESIRED, MOST, LAST_APPLIED, "deprecated.deployment.rollback.to"})
_NO_DEADLINE = (1 << 31) - 1


def revision(replica_set: Object) -> int:
    """The number in its annotation; 0 if there is none."""
    text = (replica_set["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdigit() else 0


def inherited(annotations: dict[str, str]) -> dict[str, str]:
    """The Deployment's annotations that its ReplicaSets get too (`kubernetes.io/change-cause` among them)."""
    return {name: value for name, value in annotations.items() if name not in _OWN}


def annotated(deployment: Object, replica_set: Object, number: int) -> dict[str, str | None]:
    """What the newest set is annotated with; a set that comes back keeps its former numbers as history."""
    have = replica_set["metadata"].get("annotations") or {}
    marks: dict[str, str | None] = dict(inherited(deployment["metadata"].get("annotations") or {}))
    before = revision(replica_set)
    if number > before:
        marks[REVISION] = str(number)
        if before:
            marks[HISTORY] = ",".join([*filter(None, have.get(HISTORY, "").split(",")), str(before)])
    return marks


def totals(deployment: Object, sets: list[Object], new: Object | None) -> Object:
    """The numbers of the status; those that are nought are left out, as upstream does."""

    def total(name: str, of: list[Object]) -> int:
        return sum((one.get("status") or {}).get(name, 0) for one in of)

    replicas, available = total("replicas", sets), total("availableReplicas", sets)
    status: Object = {"observedGeneration": deployment["metadata"].get("generation", 0)}
    wanted = sum(one["spec"].get("replicas", 1) for one in sets)
    for name, count in (
        ("replicas", replicas),
        ("updatedReplicas", total("replicas", [new] if new is not None else [])),
        ("readyReplicas", total("readyReplicas", sets)),
        ("availableReplicas", available),
        ("unavailableReplicas", max(0, wanted - available)),
    ):
        if count:
            status[name] = count
    return status


def is_complete(deployment: Object, status: Object | None = None) -> bool:
    """Whether every pod is of the newest template and available."""
    status = status if status is not None else deployment.get("status") or {}
    replicas = deployment["spec"].get("replicas", 1)
    counts = (status.get(name, 0) for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return all(count == replicas for count in counts) and status.get("observedGeneration", 0) >= deployment[
        "metadata"
    ].get("generation", 0)


def conditions_of(
    deployment: Object, status: Object, old: list[Object], new: Object | None, control: Control
) -> list[Object]:
    """Available, Progressing and, where a set cannot make its pods, ReplicaFailure."""
    conditions: list[Object] = list((deployment.get("status") or {}).get("conditions") or ())
    conditions = _renewed(conditions, _available(deployment, status), control)
    progressing = _progressing(deployment, status, conditions, new, control)
    if progressing is not None:
        conditions = _renewed(conditions, progressing, control, moved=_progressed(deployment, status))
    failure = next(
        (found for one in [*([new] if new else []), *old] if (found := condition(one, "ReplicaFailure"))), None
    )
    if failure is not None:
        return _renewed(
            conditions, (failure["type"], failure["status"], failure["reason"], failure["message"]), control
        )
    return without_condition(conditions, "ReplicaFailure")


_Row = tuple[str, str, str, str]  # type, status, reason, message


def _renewed(conditions: list[Object], row: _Row, control: Control, *, moved: bool = False) -> list[Object]:
    """With the condition of `row`; `moved` sets its lastUpdateTime even where nothing else of it changed."""
    kind, truth, reason, message = row
    old = next((one for one in conditions if one["type"] == kind), None)
    if old is not None and not moved and (old["status"], old["reason"]) == (truth, reason):
        return conditions
    fresh = control.condition(kind, truth, reason, message)
    fresh["lastUpdateTime"] = control.clock.timestamp()
    if old is None:
        return with_condition(conditions, fresh)
    if old["status"] == truth:
        fresh["lastTransitionTime"] = old["lastTransitionTime"]
    return [fresh if one is old else one for one in conditions]


def _available(deployment: Object, status: Object) -> _Row:
    spec = deployment["spec"]
    strategy = spec.get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    bounds = bounds_of(
        spec.get("replicas", 1), rolling.get("maxSurge"), rolling.get("maxUnavailable"),
        rolling=strategy.get("type") == "RollingUpdate",
    )  # fmt: skip
    if status.get("availableReplicas", 0) >= bounds.fewest_available:
        return "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    return "Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."


def _progressing(
    deployment: Object, status: Object, conditions: list[Object], new: Object | None, control: Control
) -> _Row | None:
    spec, name = deployment["spec"], deployment["metadata"]["name"]
    if not _has_deadline(deployment):
        return None
    old = next((one for one in conditions if one["type"] == "Progressing"), None)
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
        return None  # pods that come and go later are no rollout
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
    """Whether more pods are new, fewer are old, or more are of use than at the last look."""
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
    since = from_rfc3339(progressing.get("lastUpdateTime") or progressing["lastTransitionTime"])
    return now >= since + deployment["spec"]["progressDeadlineSeconds"]


def progress_left(deployment: Object, now: float) -> float | None:
    """Seconds until the rollout counts as stuck; None if it is through, paused, stuck already or has no deadline."""
    progressing = condition(deployment, "Progressing")
    if progressing is None or not _has_deadline(deployment) or deployment["spec"].get("paused"):
        return None
    if is_complete(deployment) or progressing["reason"] in {"NewReplicaSetAvailable", "ProgressDeadlineExceeded"}:
        return None
    since = from_rfc3339(progressing.get("lastUpdateTime") or progressing["lastTransitionTime"])
    return max(0.0, since + deployment["spec"]["progressDeadlineSeconds"] - now) + 1.0
