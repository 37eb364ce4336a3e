"""A Job's pods: how one is made for an index, when one counts as failed, and what a failure policy makes of it.

Follows `pkg/controller/job/{indexed_job_utils,pod_failure_policy}.go`.
"""

from dataclasses import dataclass
from typing import Any

from harness.apiserver.controllers.podstate import condition, is_going, phase
from harness.apiserver.storage.store import Item, Object

TRACKING = "batch.kubernetes.io/job-tracking"  # finalizer: this pod has not been counted yet
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_ENV = "JOB_COMPLETION_INDEX"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the first matching rule says of a failed pod."""

    action: str  # FailJob, FailIndex, Ignore or Count
    message: str = ""


COUNT = Ruling("Count")


def is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: Object) -> int | None:
    """The completion index in the pod's annotation."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else None


def is_tracked(pod: Object) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def is_failed(job: Object, pod: Object) -> bool:
    """Whether the pod will never succeed; one that is going counts at once unless only failed ones are replaced."""
    now = phase(pod)
    if now == "Failed":
        return True
    if not is_going(pod) or now == "Succeeded":
        return False
    nobody_runs_it = not pod["metadata"].get("deletionGracePeriodSeconds")
    return nobody_runs_it or job["spec"].get("podReplacementPolicy", "TerminatingOrFailed") == "TerminatingOrFailed"


def give_index(job: Item, pod: Object, index: int, failures: int | None) -> None:
    """Make a new pod the one of `index`: name, host name, label, annotation, environment.

    `failures` is how often this index has failed, where the Job limits that.
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
        if not any(one.get("name") == _ENV for one in env):
            reference = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
            container["env"] = [*env, {"name": _ENV, "valueFrom": reference}]


def ruling(job: Object, pod: Item) -> Ruling:
    """What `spec.podFailurePolicy` says of a failed pod; without a matching rule it counts."""
    for number, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        why = _exit_code(rule.get("onExitCodes"), pod) or _pod_condition(rule.get("onPodConditions"), pod)
        if why:
            return Ruling(rule["action"], f"{why} matching {rule['action']} rule at index {number}")
    return COUNT


def _exit_code(wanted: Object | None, pod: Item) -> str:
    if not wanted:
        return ""
    status = pod.obj.get("status") or {}
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        ended = (one.get("state") or {}).get("terminated")
        if not ended or not ended.get("exitCode"):
            continue
        if wanted.get("containerName") and wanted["containerName"] != one.get("name"):
            continue
        if (ended["exitCode"] in (wanted.get("values") or ())) is (wanted.get("operator") == "In"):
            return (
                f"Container {one['name']} for pod {pod.key[0]}/{pod.key[1]} failed with exit code {ended['exitCode']}"
            )
    return ""


def _pod_condition(patterns: list[Object] | None, pod: Item) -> str:
    for pattern in patterns or ():
        found = condition(pod.obj, pattern["type"])
        if found is not None and found.get("status") == pattern.get("status", "True"):
            return f"Pod {pod.key[0]}/{pod.key[1]} has condition {pattern['type']}"
    return ""
