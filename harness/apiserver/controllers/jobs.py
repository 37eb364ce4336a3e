"""Jobs: pods until enough of them have succeeded, or too many have failed.

Follows `pkg/controller/job`. A pod holds a finalizer until it has been counted, so that no result is lost when somebody
deletes it.
"""

from dataclasses import dataclass, field

from harness.apiserver.controllers.control import GATHER, Control, is_new_spec, with_condition
from harness.apiserver.controllers.jobindexes import format_indexes, parse_indexes
from harness.apiserver.controllers.jobpods import (
    INDEX_FAILURES,
    TRACKING,
    give_index,
    index_of,
    is_failed,
    is_indexed,
    is_tracked,
    ruling,
)
from harness.apiserver.controllers.jobverdicts import Tally, Verdict, deadline_left, pause_after, verdict, wanted_active
from harness.apiserver.controllers.owners import controller_of
from harness.apiserver.controllers.podstate import (
    condition,
    deletion_order,
    is_active,
    is_finished,
    is_going,
    is_ready,
    phase,
    restarts,
)
from harness.apiserver.controllers.recording import NORMAL, WARNING
from harness.apiserver.controllers.work_queue import Turns
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from scheduler.api.clock import from_rfc3339

JOBS: CollectionKey = ("batch", "jobs")
COMPONENT = "job-controller"
BURST = 500  # pods made or deleted before anybody else gets a turn, upstream's value
OURS = "kubernetes.io/job-controller"
_WHOLE = -1  # the place of failures that belong to no index


@dataclass(slots=True)
class _Setbacks:
    """Failures in a row and the moment of the last one, for the Job or for one of its indexes."""

    by_place: dict[int, tuple[int, float]] = field(default_factory=dict)

    def failed(self, place: int, now: float) -> None:
        self.by_place[place] = (self.count(place) + 1, now)

    def succeeded(self, place: int) -> None:
        self.by_place.pop(place, None)

    def count(self, place: int) -> int:
        return self.by_place.get(place, (0, 0.0))[0]

    def wait(self, place: int, now: float) -> float:
        """Seconds until another pod may be made there."""
        count, last = self.by_place.get(place, (0, 0.0))
        return max(0.0, last + pause_after(count) - now)


class Jobs:
    """Follows Jobs and their pods."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._resource = control.resource(JOBS)
        self._turns: Turns[Key] = Turns(control.clock, self._sync)
        self._stray: Turns[Key] = Turns(control.clock, self._release_stray)
        self._expired: Turns[tuple[Key, str]] = Turns(control.clock, self._remove)
        self._setbacks: dict[str, _Setbacks] = {}  # by uid
        control.objects.collection(self._resource).listen(self._changed)
        control.owned_pods.follow(self._resource, self._pod_changed)

    def _changed(self, change: Change) -> None:
        if change.new is None:
            assert change.old is not None  # noqa: S101
            self._setbacks.pop(change.old.obj["metadata"]["uid"], None)
        elif is_new_spec(change):
            self._turns.add(change.key)

    def _pod_changed(self, key: Key, change: Change) -> None:
        pod = change.new
        if pod is not None and is_tracked(pod.obj):
            owner = controller_of(pod.obj)
            job = self._control.get(self._resource, key)
            if owner is None or job is None or job.obj["metadata"]["uid"] != owner["uid"]:
                self._stray.add(change.key)
                return
        if pod is None:
            self._turns.add(key)
        else:
            self._turns.gather(GATHER, key)

    def _release_stray(self, key: Key) -> None:
        """Nobody will ever count this pod: its Job has gone without it."""
        pod = self._control.get(self._control.pods, key)
        if pod is None or not is_tracked(pod.obj):
            return
        owner = controller_of(pod.obj)
        job = self._control.get(self._resource, (key[0], owner["name"])) if owner is not None else None
        if job is None or owner is None or job.obj["metadata"]["uid"] != owner["uid"]:
            self._control.drop_finalizer(self._control.pods, pod, TRACKING)

    # -- one turn -----------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None or item.obj["spec"].get("managedBy", OURS) != OURS:
            return
        pods = self._control.owned_pods.claim(self._resource, item)
        if _ended(item.obj) is not None:
            self._let_go(item, pods)
            return
        now = self._control.clock.now()
        status: Object = {**(item.obj.get("status") or {})}
        suspended = bool(item.obj["spec"].get("suspend"))
        if "startTime" not in status and not suspended:
            status["startTime"] = self._control.clock.timestamp()
        if self._setbacks.get(item.obj["metadata"]["uid"]) is None:
            self._setbacks[item.obj["metadata"]["uid"]] = _Setbacks()
        tally, by_policy, counted = self._count(item, status, pods)
        viewed: Object = {**item.obj, "status": status}
        target = _pending_failure(item.obj) or by_policy or verdict(viewed, tally, now)
        problem: ApiStatusError | None = None
        if target is not None:
            self._stop(item, tally)
        elif "deletionTimestamp" not in item.obj["metadata"]:
            problem = self._scale(item, viewed, tally)
        self._write(item, status, tally, target)
        for pod in counted:  # only now that the count is stored
            current = self._control.get(self._control.pods, pod.key)
            if current is not None and is_tracked(current.obj):
                self._control.drop_finalizer(self._control.pods, current, TRACKING)
        if problem is not None and problem.code != 404:
            self._turns.failed(key)
        else:
            self._turns.succeeded(key)
        left = deadline_left(viewed, now)
        if left is not None and left > 0 and target is None:
            self._turns.gather(left, key)

    def _pods(self, item: Item) -> list[Item]:
        return self._control.owned_pods.of(item.obj["metadata"]["uid"])

    # -- counting -----------------------------------------------------------------------------------------------------

    def _count(self, item: Item, status: Object, pods: list[Item]) -> tuple[Tally, Verdict | None, list[Item]]:
        """Add what has ended since to what the status has; the pods that may be let go are the third value."""
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
        tally.terminating = sum(is_going(pod.obj) and not is_finished(pod.obj) for pod in pods)

    def _count_success(self, job: Object, pod: Item, tally: Tally) -> None:
        setbacks = self._setbacks[job["metadata"]["uid"]]
        index = index_of(pod.obj)
        setbacks.succeeded(_WHOLE)
        if not is_indexed(job):
            tally.succeeded += 1
        elif index is not None and index < (job["spec"].get("completions") or 0):
            tally.completed.add(index)
            tally.failed_indexes.discard(index)
            setbacks.succeeded(index)

    def _count_failure(self, job: Object, pod: Item, tally: Tally) -> Verdict | None:
        found = ruling(job, pod)
        if found.action == "Ignore":
            return None
        setbacks, now = self._setbacks[job["metadata"]["uid"]], self._control.clock.now()
        tally.failed += 1
        per_index = job["spec"].get("backoffLimitPerIndex")
        index = index_of(pod.obj)
        if per_index is not None and index is not None and index not in tally.completed:
            setbacks.failed(index, now)
            before = (pod.obj["metadata"].get("annotations") or {}).get(INDEX_FAILURES, "0")
            if found.action == "FailIndex" or (int(before) if before.isdigit() else 0) >= per_index:
                tally.failed_indexes.add(index)
        else:
            setbacks.failed(_WHOLE, now)
        return Verdict(False, "PodFailurePolicy", found.message) if found.action == "FailJob" else None

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _scale(self, item: Item, job: Object, tally: Tally) -> ApiStatusError | None:
        """Make or delete pods, and correct the tally accordingly."""
        active = [pod for pod in self._pods(item) if is_active(pod.obj)]
        if job["spec"].get("suspend"):
            self._drop(item, active)
            self._count_present(item, tally)
            return None
        wanted = wanted_active(job, tally)
        problem = None
        gone = self._needless(job, active, tally)
        self._drop(item, gone)
        active = [pod for pod in active if pod not in gone]
        if len(active) > wanted:
            self._drop(item, deletion_order(active, active)[: len(active) - wanted][:BURST])
        elif len(active) < wanted:
            replaced_late = job["spec"].get("podReplacementPolicy") == "Failed"
            short = wanted - len(active) - (tally.terminating if replaced_late else 0)
            problem = self._make(item, job, tally, active, min(max(short, 0), BURST))
            if short > BURST:
                self._turns.add(item.key)
        self._count_present(item, tally)
        return problem

    def _needless(self, job: Object, active: list[Item], tally: Tally) -> list[Item]:
        """Pods of an index that is beyond the end, done, given up or taken twice."""
        if not is_indexed(job):
            return []
        seen: set[int] = set()
        found = []
        for pod in active:
            index = index_of(pod.obj)
            done = index in tally.completed or index in tally.failed_indexes
            if index is None or index >= (job["spec"].get("completions") or 0) or done or index in seen:
                found.append(pod)
            else:
                seen.add(index)
        return found

    def _make(self, item: Item, job: Object, tally: Tally, active: list[Item], count: int) -> ApiStatusError | None:
        now = self._control.clock.now()
        setbacks = self._setbacks[item.obj["metadata"]["uid"]]
        wait = setbacks.wait(_WHOLE, now)
        if not count:
            return None
        if wait > 0:
            self._turns.later(wait, item.key)
            return None
        per_index = job["spec"].get("backoffLimitPerIndex") is not None
        indexes: list[int | None] = [None] * count
        if is_indexed(job):
            indexes = list(self._open_indexes(item, job, tally, active, setbacks, count))
        for index in indexes:
            pod = self._control.pod_from(self._resource, item, job["spec"]["template"])
            pod["metadata"]["generateName"] = f"{item.key[1]}-"
            pod["metadata"]["finalizers"] = [*(pod["metadata"].get("finalizers") or ()), TRACKING]
            if index is not None:
                give_index(item, pod, index, setbacks.count(index) if per_index else None)
            try:
                self._control.create_pod(COMPONENT, self._resource, item, pod)
            except ApiStatusError as refused:
                return refused
        return None

    def _open_indexes(  # noqa: PLR0917
        self, item: Item, job: Object, tally: Tally, active: list[Item], setbacks: _Setbacks, count: int
    ) -> list[int]:
        taken = {index_of(pod.obj) for pod in active}
        if job["spec"].get("podReplacementPolicy") == "Failed":
            taken |= {index_of(pod.obj) for pod in self._pods(item) if is_going(pod.obj) and not is_finished(pod.obj)}
        found: list[int] = []
        now = self._control.clock.now()
        for index in range(job["spec"].get("completions") or 0):
            if len(found) == count:
                break
            if index in taken or index in tally.completed or index in tally.failed_indexes:
                continue
            wait = setbacks.wait(index, now)
            if wait > 0:
                self._turns.later(wait, item.key)
                continue
            found.append(index)
        return found

    def _drop(self, item: Item, pods: list[Item]) -> None:
        """Delete pods whose end is not to count."""
        for pod in pods:
            current = self._control.get(self._control.pods, pod.key)
            if current is None:
                continue
            if is_tracked(current.obj):
                current = self._control.drop_finalizer(self._control.pods, current, TRACKING)
            self._control.delete_pod(COMPONENT, self._resource, item, current)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _stop(self, item: Item, tally: Tally) -> None:
        """What still runs serves nobody any more."""
        self._drop(item, [pod for pod in self._pods(item) if is_active(pod.obj)])
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
            self._let_go(written, self._pods(written))

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
        old = next((one for one in conditions if one["type"] == "Suspended"), None)
        if item.obj["spec"].get("suspend"):
            if old is not None and old["status"] == "True":
                return conditions
            new = self._control.condition("Suspended", "True", "JobSuspended", "Job suspended")
            reason, message = "Suspended", "Job suspended"
        elif old is not None and old["status"] == "True":
            new = self._control.condition("Suspended", "False", "JobResumed", "Job resumed")
            status["startTime"] = now  # the deadline counts from here
            reason, message = "Resumed", "Job resumed"
            self._turns.add(item.key)
        else:
            return conditions
        self._control.recorder.record(COMPONENT, self._resource, item, NORMAL, reason, message)
        return with_condition(conditions, {**new, "lastProbeTime": now})

    def _let_go(self, item: Item, pods: list[Item]) -> None:
        """An ended Job keeps its pods for their logs, but holds none of them; itself it stays for its TTL."""
        for pod in pods:
            current = self._control.get(self._control.pods, pod.key)
            if current is not None and is_tracked(current.obj):
                self._control.drop_finalizer(self._control.pods, current, TRACKING)
        ttl = item.obj["spec"].get("ttlSecondsAfterFinished")
        since = _ended(item.obj)
        if ttl is not None and since is not None and "deletionTimestamp" not in item.obj["metadata"]:
            left = from_rfc3339(since) + ttl - self._control.clock.now()
            self._expired.gather(max(0.0, left), (item.key, item.obj["metadata"]["uid"]))

    def _remove(self, expired: tuple[Key, str]) -> None:
        key, uid = expired
        item = self._control.get(self._resource, key)
        if item is None or item.obj["metadata"]["uid"] != uid:
            return
        ttl, since = item.obj["spec"].get("ttlSecondsAfterFinished"), _ended(item.obj)
        if ttl is None or since is None:
            return
        left = from_rfc3339(since) + ttl - self._control.clock.now()
        if left > 0:
            self._expired.gather(left, expired)  # it was prolonged meanwhile
        else:
            self._control.delete(self._resource, item, propagation="Foreground")


def _ended(job: Object) -> str | None:
    """When the Job became Complete or Failed; None if it has not."""
    for kind in ("Complete", "Failed"):
        found = condition(job, kind)
        if found is not None and found["status"] == "True":
            return str(found["lastTransitionTime"])
    return None


def _pending_failure(job: Object) -> Verdict | None:
    """What has been decided while pods were still going."""
    for kind, good in (("FailureTarget", False), ("SuccessCriteriaMet", True)):
        found = condition(job, kind)
        if found is not None and found["status"] == "True":
            return Verdict(good, found["reason"], found["message"])
    return None
