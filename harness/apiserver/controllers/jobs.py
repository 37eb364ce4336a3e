"""The Job controller: runs pods until enough have succeeded or too many have failed.

Follows `pkg/controller/job`. A pod keeps a finalizer until it is counted in the status, so that the result of a deleted
pod is not lost.
"""

from dataclasses import dataclass, field

from seatrial.harness.apiserver.controllers.control import BATCH_PERIOD, Control, is_new_spec, with_condition
from seatrial.harness.apiserver.controllers.event_recorder import NORMAL, WARNING
from seatrial.harness.apiserver.controllers.job_gangs import JobGangs
from seatrial.harness.apiserver.controllers.job_results import (
    Tally,
    Verdict,
    backoff_after,
    deadline_left,
    verdict,
    wanted_active,
)
from seatrial.harness.apiserver.controllers.jobindexes import format_indexes, parse_indexes
from seatrial.harness.apiserver.controllers.jobpods import (
    INDEX_FAILURES,
    TRACKING,
    index_of,
    is_failed,
    is_indexed,
    is_tracked,
    policy_action,
    set_index,
)
from seatrial.harness.apiserver.controllers.owners import controller_of
from seatrial.harness.apiserver.controllers.pacing import Pacing
from seatrial.harness.apiserver.controllers.podstate import (
    condition,
    deletion_order,
    is_active,
    is_finished,
    is_ready,
    is_terminating,
    phase,
    restarts,
)
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.times import seconds_of
from seatrial.scheduler.api.integers import integer

JOBS: CollectionKey = ("batch", "jobs")
COMPONENT = "job-controller"
BURST = 500  # maximum pods created or deleted in one reconciliation; upstream's value
MANAGED_BY = "kubernetes.io/job-controller"
_WHOLE_JOB = -1  # key of failures that belong to no index


@dataclass(slots=True)
class _Backoff:
    """Consecutive failures and the time of the last one, for the whole Job or per completion index."""

    by_index: dict[int, tuple[int, float]] = field(default_factory=dict)

    def failed(self, index: int, now: float) -> None:
        self.by_index[index] = (self.count(index) + 1, now)

    def succeeded(self, index: int) -> None:
        self.by_index.pop(index, None)

    def count(self, index: int) -> int:
        return self.by_index.get(index, (0, 0.0))[0]

    def wait(self, index: int, now: float) -> float:
        """Seconds until another pod may be created for `index`."""
        count, last = self.by_index.get(index, (0, 0.0))
        return max(0.0, last + backoff_after(count) - now)


class Jobs:
    """Reconciles Jobs and their pods."""

    def __init__(self, control: Control, *, gangs: bool = False) -> None:
        """`gangs`: Jobs get PodGroups."""
        self._control = control
        self._resource = control.resource(JOBS)
        self._gangs = JobGangs(control, self._resource) if gangs else None
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        self._stray: WorkQueue[Key] = WorkQueue(control.clock, self._release_stray)
        self._expired: WorkQueue[tuple[Key, str]] = WorkQueue(control.clock, self._remove)
        self._pacing = Pacing()
        self._backoffs: dict[str, _Backoff] = {}  # by uid
        control.objects.collection(self._resource).listen(self._changed)
        control.owned_pods.follow(self._resource, self._pod_changed)

    def _changed(self, change: Change) -> None:
        if change.new is None:
            assert change.old is not None
            self._backoffs.pop(change.old.obj["metadata"]["uid"], None)
        elif is_new_spec(change):
            self._queue.add(change.key)

    def _pod_changed(self, key: Key, change: Change) -> None:
        pod = change.new
        if pod is not None and is_tracked(pod.obj):
            owner = controller_of(pod.obj)
            job = self._control.get(self._resource, key)
            if owner is None or job is None or job.obj["metadata"]["uid"] != owner["uid"]:
                self._stray.add(change.key)
                return
        if pod is None:
            self._queue.add(key)
        else:
            self._queue.add_after(BATCH_PERIOD, key)

    def _release_stray(self, key: Key) -> None:
        """Remove the finalizer of a pod whose Job no longer exists, as the pod will never be counted."""
        pod = self._control.get(self._control.pods, key)
        if pod is None or not is_tracked(pod.obj):
            return
        owner = controller_of(pod.obj)
        job = self._control.get(self._resource, (key[0], owner["name"])) if owner is not None else None
        if job is None or owner is None or job.obj["metadata"]["uid"] != owner["uid"]:
            self._control.drop_finalizer(self._control.pods, pod, TRACKING)

    # -- one turn ------------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None or item.obj["spec"].get("managedBy", MANAGED_BY) != MANAGED_BY:
            return
        pods = self._control.owned_pods.claim(self._resource, item)
        if _ended(item.obj) is not None:
            self._release_pods(item, pods)
            return
        try:
            group = self._gangs.group_of(item, pods) if self._gangs is not None else None
        except ApiStatusError:
            self._queue.add_rate_limited(key)
            return
        now = self._control.clock.now()
        status: Object = {**(item.obj.get("status") or {})}
        suspended = bool(item.obj["spec"].get("suspend"))
        if "startTime" not in status and not suspended:
            status["startTime"] = self._control.clock.timestamp()
        if self._backoffs.get(item.obj["metadata"]["uid"]) is None:
            self._backoffs[item.obj["metadata"]["uid"]] = _Backoff()
        tally, by_policy, counted = self._count(item, status, pods)
        viewed: Object = {**item.obj, "status": status}
        target = _pending_failure(item.obj) or by_policy or verdict(viewed, tally, now)
        problem: ApiStatusError | None = None
        if target is not None:
            self._stop_active(item, tally)
        elif "deletionTimestamp" not in item.obj["metadata"]:
            problem = self._scale(item, viewed, tally, group)
        self._write(item, status, tally, target)
        for pod in counted:  # after the count is stored
            current = self._control.get(self._control.pods, pod.key)
            if current is not None and is_tracked(current.obj):
                self._control.drop_finalizer(self._control.pods, current, TRACKING)
        if problem is not None and problem.code != 404:
            self._queue.add_rate_limited(key)
        else:
            self._queue.forget(key)
        left = deadline_left(viewed, now)
        if left is not None and left > 0 and target is None:
            self._queue.add_after(left, key)

    def _pods(self, item: Item) -> list[Item]:
        return self._control.owned_pods.of(item.obj["metadata"]["uid"])

    # -- counting ------------------------------------------------------------------------------------------------------

    def _count(self, item: Item, status: Object, pods: list[Item]) -> tuple[Tally, Verdict | None, list[Item]]:
        """Add newly finished pods to the counts of the status.

        Returns the tally, the pending result (None: none), and the pods whose finalizers may be removed.
        """
        job = item.obj
        tally = Tally(
            int(status.get("succeeded", 0)),
            int(status.get("failed", 0)),
            completed=parse_indexes(status.get("completedIndexes")),
            failed_indexes=parse_indexes(status.get("failedIndexes")),
        )
        by_policy: Verdict | None = None
        counted: list[Item] = []
        for pod in pods:
            if is_active(pod.obj):
                tally.restarts += restarts(pod.obj)
            if not is_tracked(pod.obj):
                continue
            if phase(pod.obj) == "Succeeded":
                counted.append(pod)
                self._count_success(job, pod, tally)
            elif is_failed(job, pod.obj):
                counted.append(pod)
                by_policy = self._count_failure(job, pod, tally) or by_policy
        if is_indexed(job):
            tally.succeeded = len(tally.completed)
        self._count_present(item, tally)
        return tally, by_policy, counted

    def _count_present(self, item: Item, tally: Tally) -> None:
        pods = self._pods(item)
        tally.active = sum(is_active(pod.obj) for pod in pods)
        tally.ready = sum(is_active(pod.obj) and is_ready(pod.obj) for pod in pods)
        tally.terminating = sum(is_terminating(pod.obj) and not is_finished(pod.obj) for pod in pods)

    def _count_success(self, job: Object, pod: Item, tally: Tally) -> None:
        backoff = self._backoffs[job["metadata"]["uid"]]
        index = index_of(pod.obj)
        backoff.succeeded(_WHOLE_JOB)
        if not is_indexed(job):
            tally.succeeded += 1
        elif index is not None and index < (job["spec"].get("completions") or 0):
            tally.completed.add(index)
            tally.failed_indexes.discard(index)
            backoff.succeeded(index)

    def _count_failure(self, job: Object, pod: Item, tally: Tally) -> Verdict | None:
        action = policy_action(job, pod)
        if action.action == "Ignore":
            return None
        backoff, now = self._backoffs[job["metadata"]["uid"]], self._control.clock.now()
        tally.failed += 1
        per_index = job["spec"].get("backoffLimitPerIndex")
        index = index_of(pod.obj)
        if per_index is not None and index is not None and index not in tally.completed:
            backoff.failed(index, now)
            before = (pod.obj["metadata"].get("annotations") or {}).get(INDEX_FAILURES, "0")
            if action.action == "FailIndex" or (integer(before) or 0) >= per_index:
                tally.failed_indexes.add(index)
        else:
            backoff.failed(_WHOLE_JOB, now)
        return Verdict(False, "PodFailurePolicy", action.message) if action.action == "FailJob" else None

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _scale(self, item: Item, job: Object, tally: Tally, group: Item | None) -> ApiStatusError | None:
        """Create or delete pods and update the tally; new pods are members of `group`."""
        active = [pod for pod in self._pods(item) if is_active(pod.obj)]
        if job["spec"].get("suspend"):
            self._delete_uncounted(item, active)
            self._count_present(item, tally)
            return None
        job_active = wanted_active(job, tally)
        problem = None
        gone = self._surplus(job, active, tally)
        self._delete_uncounted(item, gone)
        active = [pod for pod in active if pod not in gone]
        if len(active) > job_active:
            self._delete_uncounted(item, deletion_order(active, active)[: len(active) - job_active][:BURST])
        elif len(active) < job_active:
            replaced_late = job["spec"].get("podReplacementPolicy") == "Failed"
            short = job_active - len(active) - (tally.terminating if replaced_late else 0)
            now = self._control.clock.monotonic()
            pause = self._pacing.wait(item.key, now)
            if pause > 0:
                self._queue.add_after(pause, item.key)
                short = 0
            burst = self._pacing.burst(len(active))
            problem = self._create_pods(item, job, tally, active, min(max(short, 0), burst), group)
            if short > burst:
                self._queue.end_iteration()
                self._queue.add_after(self._pacing.after_burst(item.key, now, len(active)), item.key)
        self._count_present(item, tally)
        return problem

    def _surplus(self, job: Object, active: list[Item], tally: Tally) -> list[Item]:
        """Pods whose index is out of range, succeeded, failed, or already used by another pod."""
        if not is_indexed(job):
            return []
        seen: set[int] = set()
        pods = []
        for pod in active:
            index = index_of(pod.obj)
            done = index in tally.completed or index in tally.failed_indexes
            if index is None or index >= (job["spec"].get("completions") or 0) or done or index in seen:
                pods.append(pod)
            else:
                seen.add(index)
        return pods

    def _create_pods(  # noqa: PLR0917
        self, item: Item, job: Object, tally: Tally, active: list[Item], count: int, group: Item | None
    ) -> ApiStatusError | None:
        now = self._control.clock.now()
        backoff = self._backoffs[item.obj["metadata"]["uid"]]
        wait = backoff.wait(_WHOLE_JOB, now)
        if not count:
            return None
        if wait > 0:
            self._queue.add_later(wait, item.key)
            return None
        per_index = job["spec"].get("backoffLimitPerIndex") is not None
        indexes: list[int | None] = [None] * count
        if is_indexed(job):
            indexes = list(self._open_indexes(item, job, tally, active, backoff, count))
        for index in indexes:
            pod = self._control.pod_from(self._resource, item, job["spec"]["template"])
            pod["metadata"]["generateName"] = f"{item.key[1]}-"
            pod["metadata"]["finalizers"] = [*(pod["metadata"].get("finalizers") or ()), TRACKING]
            if group is not None:
                pod["spec"]["schedulingGroup"] = {"podGroupName": group.key[1]}
            if index is not None:
                set_index(item, pod, index, backoff.count(index) if per_index else None)
            try:
                self._control.create_pod(COMPONENT, self._resource, item, pod)
            except ApiStatusError as refused:
                return refused
        return None

    def _open_indexes(  # noqa: PLR0917
        self, item: Item, job: Object, tally: Tally, active: list[Item], backoff: _Backoff, count: int
    ) -> list[int]:
        taken = {index_of(pod.obj) for pod in active}
        if job["spec"].get("podReplacementPolicy") == "Failed":
            taken |= {
                index_of(pod.obj) for pod in self._pods(item) if is_terminating(pod.obj) and not is_finished(pod.obj)
            }
        indexes: list[int] = []
        now = self._control.clock.now()
        for index in range(job["spec"].get("completions") or 0):
            if len(indexes) == count:
                break
            if index in taken or index in tally.completed or index in tally.failed_indexes:
                continue
            wait = backoff.wait(index, now)
            if wait > 0:
                self._queue.add_later(wait, item.key)
                continue
            indexes.append(index)
        return indexes

    def _delete_uncounted(self, item: Item, pods: list[Item]) -> None:
        """Delete pods and remove their finalizers, so that they are not counted."""
        for pod in pods:
            current = self._control.get(self._control.pods, pod.key)
            if current is None:
                continue
            if is_tracked(current.obj):
                current = self._control.drop_finalizer(self._control.pods, current, TRACKING)
            self._control.delete_pod(COMPONENT, self._resource, item, current)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _stop_active(self, item: Item, tally: Tally) -> None:
        """Delete the pods still running when the Job has a result."""
        self._delete_uncounted(item, [pod for pod in self._pods(item) if is_active(pod.obj)])
        self._count_present(item, tally)

    def _write(self, item: Item, status: Object, tally: Tally, target: Verdict | None) -> None:
        control = self._control
        conditions: list[Object] = list(status.get("conditions") or ())
        for name, count in (("active", tally.active), ("succeeded", tally.succeeded), ("failed", tally.failed)):
            status.pop(name, None)
            if count:
                status[name] = count
        status |= {"ready": tally.ready, "terminating": tally.terminating, "uncountedTerminatedPods": {}}
        if is_indexed(item.obj):
            self._write_indexes(item, status, tally)
        if target is not None:
            early = "SuccessCriteriaMet" if target.good else "FailureTarget"
            conditions = with_condition(conditions, self._condition(early, target))
            if not tally.active and not tally.terminating:
                conditions = with_condition(
                    conditions, self._condition("Complete" if target.good else "Failed", target)
                )
                if target.good:
                    status["completionTime"] = control.clock.timestamp()
        else:
            conditions = self._suspension(item, status, conditions)
        status.pop("conditions", None)
        if conditions:
            status["conditions"] = conditions
        current = control.get(self._resource, item.key)
        if current is None:
            return
        written = control.put_status(self._resource, current, status)
        if target is not None and _ended(written.obj) is not None:
            kind, reason, message = NORMAL, "Completed", "Job completed"
            if not target.good:
                kind, reason, message = WARNING, target.reason, target.message
            control.recorder.record(COMPONENT, self._resource, written, kind, reason, message)
            self._release_pods(written, self._pods(written))

    def _write_indexes(self, item: Item, status: Object, tally: Tally) -> None:
        for name, indexes, shown in (
            ("completedIndexes", tally.completed, bool(tally.completed)),
            ("failedIndexes", tally.failed_indexes, item.obj["spec"].get("backoffLimitPerIndex") is not None),
        ):
            status.pop(name, None)
            if shown:
                status[name] = format_indexes(indexes)

    def _condition(self, kind: str, target: Verdict) -> Object:
        now = self._control.clock.timestamp()
        return {**self._control.condition(kind, "True", target.reason, target.message), "lastProbeTime": now}

    def _suspension(self, item: Item, status: Object, conditions: list[Object]) -> list[Object]:
        now = self._control.clock.timestamp()
        old = next((existing for existing in conditions if existing["type"] == "Suspended"), None)
        if item.obj["spec"].get("suspend"):
            if old is not None and old["status"] == "True":
                return conditions
            new = self._control.condition("Suspended", "True", "JobSuspended", "Job suspended")
            reason, message = "Suspended", "Job suspended"
        elif old is not None and old["status"] == "True":
            new = self._control.condition("Suspended", "False", "JobResumed", "Job resumed")
            status["startTime"] = now  # activeDeadlineSeconds counts from here
            reason, message = "Resumed", "Job resumed"
            self._queue.add(item.key)
        else:
            return conditions
        self._control.recorder.record(COMPONENT, self._resource, item, NORMAL, reason, message)
        return with_condition(conditions, {**new, "lastProbeTime": now})

    def _release_pods(self, item: Item, pods: list[Item]) -> None:
        """Remove finalizers from the pods of a finished Job, and schedule the Job's deletion after its TTL."""
        for pod in pods:
            current = self._control.get(self._control.pods, pod.key)
            if current is not None and is_tracked(current.obj):
                self._control.drop_finalizer(self._control.pods, current, TRACKING)
        ttl = item.obj["spec"].get("ttlSecondsAfterFinished")
        since = _ended(item.obj)
        if ttl is not None and since is not None and "deletionTimestamp" not in item.obj["metadata"]:
            left = seconds_of(since) + ttl - self._control.clock.now()
            self._expired.add_after(max(0.0, left), (item.key, item.obj["metadata"]["uid"]))

    def _remove(self, expired: tuple[Key, str]) -> None:
        key, uid = expired
        item = self._control.get(self._resource, key)
        if item is None or item.obj["metadata"]["uid"] != uid:
            return
        ttl, since = item.obj["spec"].get("ttlSecondsAfterFinished"), _ended(item.obj)
        if ttl is None or since is None:
            return
        left = seconds_of(since) + ttl - self._control.clock.now()
        if left > 0:
            self._expired.add_after(left, expired)  # the TTL was extended meanwhile
        else:
            self._control.delete(self._resource, item, propagation="Foreground")


def _ended(job: Object) -> str | None:
    """RFC 3339 time at which the Job became Complete or Failed; None if unfinished."""
    for kind in ("Complete", "Failed"):
        job_condition = condition(job, kind)
        if job_condition is not None and job_condition["status"] == "True":
            return str(job_condition["lastTransitionTime"])
    return None


def _pending_failure(job: Object) -> Verdict | None:
    """The result recorded in FailureTarget or SuccessCriteriaMet while pods were still terminating."""
    for kind, good in (("FailureTarget", False), ("SuccessCriteriaMet", True)):
        job_condition = condition(job, kind)
        if job_condition is not None and job_condition["status"] == "True":
            return Verdict(good, job_condition["reason"], job_condition["message"])
    return None
