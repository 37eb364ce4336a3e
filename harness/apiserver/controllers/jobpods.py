"""The pods of a Job: creation for an index, failure detection, and the pod failure policy.

Follows `pkg/controller/job/{indexed_job_utils,pod_failure_policy}.go`.
"""

from dataclasses import dataclass
from typing import Any

from seatrial.harness.apiserver.controllers.podstate import condition, is_terminating, phase
from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.scheduler.api.integers import integer

TRACKING = "batch.kubernetes.io/job-tracking"  # finalizer of pods not yet counted in the Job's status
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_ENV = "JOB_COMPLETION_INDEX"


@dataclass(frozen=True, slots=True)
class PolicyAction:
    """The action of the first pod failure policy rule that matches a failed pod."""

    action: str  # FailJob, FailIndex, Ignore or Count
    message: str = ""


COUNT = PolicyAction("Count")


def is_indexed(job: Object) -> bool:
    """Whether the Job's pods have completion indexes."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: Object) -> int | None:
    """The completion index in the pod's annotation."""
    index = integer((pod["metadata"].get("annotations") or {}).get(INDEX, ""))
    return index if index is not None and index >= 0 else None


def is_tracked(pod: Object) -> bool:
    """Whether the pod still has the finalizer that keeps it until its Job has counted it."""
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def is_failed(job: Object, pod: Object) -> bool:
    """Whether the pod failed. A terminating pod counts as failed, unless podReplacementPolicy is Failed."""
    now = phase(pod)
    if now == "Failed":
        return True
    if not is_terminating(pod) or now == "Succeeded":
        return False
    nobody_runs_it = not pod["metadata"].get("deletionGracePeriodSeconds")
    return nobody_runs_it or job["spec"].get("podReplacementPolicy", "TerminatingOrFailed") == "TerminatingOrFailed"


def set_index(job: Item, pod: Object, index: int, failures: int | None) -> None:
    """Set the completion index of a new pod: name, host name, label, annotation, environment.

    `failures`: number of failures of this index, or None if the Job has no limit per index.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    stem = f"{job.key[1]}-{index}"
    metadata["generateName"] = f"{stem}-"
    metadata["annotations"] = {**(metadata.get("annotations") or {}), INDEX: str(index)}
    if failures is not None:
        metadata["annotations"][INDEX_FAILURES] = str(failures)
    metadata["labels"] = {**(metadata.get("labels") or {}), INDEX: str(index)}
    spec["hostname"] = stem
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        env: list[Any] = container.get("env") or []
        if not any(variable.get("name") == _ENV for variable in env):
            reference = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
            container["env"] = [*env, {"name": _ENV, "valueFrom": reference}]


def policy_action(job: Object, pod: Item) -> PolicyAction:
    """The action of `spec.podFailurePolicy` for a failed pod; COUNT if no rule matches."""
    for number, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        why = _exit_code(rule.get("onExitCodes"), pod) or _pod_condition(rule.get("onPodConditions"), pod)
        if why:
            return PolicyAction(rule["action"], f"{why} matching {rule['action']} rule at index {number}")
    return COUNT


def _exit_code(amounts: Object | None, pod: Item) -> str:
    if not amounts:
        return ""
    status = pod.obj.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ended = (container.get("state") or {}).get("terminated")
        if not ended or not ended.get("exitCode"):
            continue
        if amounts.get("containerName") and amounts["containerName"] != container.get("name"):
            continue
        if (ended["exitCode"] in (amounts.get("values") or ())) is (amounts.get("operator") == "In"):
            name, code = container["name"], ended["exitCode"]
            return f"Container {name} for pod {pod.key[0]}/{pod.key[1]} failed with exit code {code}"
    return ""


def _pod_condition(patterns: list[Object] | None, pod: Item) -> str:
    for pattern in patterns or ():
        results = condition(pod.obj, pattern["type"])
        if results is not None and results.get("status") == pattern.get("status", "True"):
            return f"Pod {pod.key[0]}/{pod.key[1]} has condition {pattern['type']}"
    return ""
