"""The CronJob controller: creates a Job at each scheduled time, subject to the concurrency policy.

Follows `pkg/controller/cronjob`. Each CronJob has one timer, set to its next scheduled time.
"""

from datetime import tzinfo

from seatrial.harness.apiserver.controllers.control import Control, is_new_spec
from seatrial.harness.apiserver.controllers.event_recorder import NORMAL, WARNING
from seatrial.harness.apiserver.controllers.jobs import JOBS
from seatrial.harness.apiserver.controllers.owners import Dependents, reference_to
from seatrial.harness.apiserver.controllers.podstate import condition
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.cron import Schedule, parse_cron, time_zone
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.times import seconds_of
from seatrial.scheduler.api.clock import rfc3339

CRON_JOBS: CollectionKey = ("batch", "cronjobs")
COMPONENT = "cronjob-controller"
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MISSED_START_THRESHOLD = 100  # missed start times above which a warning is recorded; upstream's value


class CronJobs:
    """Reconciles CronJobs and the Jobs they own."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._resource = control.resource(CRON_JOBS)
        self._jobs = control.resource(JOBS)
        self._owned = Dependents(control.objects, JOBS)
        self._planned: dict[Key, float] = {}  # Unix seconds for which a timer is set
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        control.objects.collection(self._resource).listen(self._changed)
        self._owned.follow(self._resource, self._job_changed)

    def _changed(self, change: Change) -> None:
        if change.new is None:
            self._planned.pop(change.key, None)
        elif is_new_spec(change):
            self._queue.add(change.key)

    def _job_changed(self, key: Key, change: Change) -> None:
        old, new = change.old, change.new
        if old is None or new is None or _result(old.obj) != _result(new.obj):
            self._queue.add(key)

    # -- reconciliation ------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            return
        item = self._update_history(item)
        if item.obj["spec"].get("suspend") or "deletionTimestamp" in item.obj["metadata"]:
            return
        schedule = parse_cron(item.obj["spec"]["schedule"])
        zone = time_zone(item.obj["spec"].get("timeZone") or "UTC")
        if schedule.next_after(self._control.clock.now(), zone) is None:  # as for the 31st of February
            why = "time difference between two schedules is less than 1 second"
            self._record(item, WARNING, "InvalidSchedule", f"invalid schedule: {item.obj['spec']['schedule']} : {why}")
            return
        due = self._due(item, schedule, zone)
        if due is not None:
            self._start(item, due)
        self._plan(item, schedule, zone)

    def _plan(self, item: Item, schedule: Schedule, zone: tzinfo) -> None:
        now = self._control.clock.now()
        following = schedule.next_after(now, zone)
        if following is None or self._planned.get(item.key) == following:
            return
        self._planned[item.key] = following
        self._queue.add_later(following - now, item.key)

    def _due(self, item: Item, schedule: Schedule, zone: tzinfo) -> float | None:
        """The latest scheduled time (Unix seconds) that has passed without a Job; None if there is none."""
        now = self._control.clock.now()
        since = seconds_of(
            (item.obj.get("status") or {}).get("lastScheduleTime") or item.obj["metadata"]["creationTimestamp"]
        )
        limit = item.obj["spec"].get("startingDeadlineSeconds")
        since = max(since, now - limit if limit is not None else 0.0)
        moment = schedule.next_after(since, zone) if since < now else None
        following = schedule.next_after(moment, zone) if moment is not None else None
        if moment is None or moment > now:
            return None
        if following is None or following > now:
            return moment
        # Upstream's estimate (mostRecentScheduleTime): its cost does not grow with the number of missed start times.
        missed = int((now - moment) // (following - moment)) + 1
        latest: float | None = None
        started = schedule.next_after(moment + (missed - 2) * (following - moment), zone)
        while started is not None and started <= now:
            latest, started = started, schedule.next_after(started, zone)
        if missed > MISSED_START_THRESHOLD:
            self._record(
                item,
                WARNING,
                "TooManyMissedTimes",
                f"too many missed start times: {missed}. Set or decrease"
                " .spec.startingDeadlineSeconds or check clock skew",
            )
        return latest

    def _start(self, item: Item, due: float) -> None:
        control, spec = self._control, item.obj["spec"]
        active = self._active(item)
        if active and spec.get("concurrencyPolicy") == "Forbid":
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._record(item, NORMAL, "JobAlreadyActive", message)
            return
        if active and spec.get("concurrencyPolicy") == "Replace":
            for job in active:
                if control.delete(self._jobs, job):
                    self._record(item, NORMAL, "SuccessfulDelete", f"Deleted job {job.key[1]}")
        body = self._job(item, due)
        try:
            made = control.objects.create(self._jobs, item.key[0], body, Options(manager=CONTROLLER_MANAGER))
        except ApiStatusError as refused:
            if refused.reason not in {"AlreadyExists", "NotFound"}:
                self._record(item, WARNING, "FailedCreate", f"Error creating job: {refused.message}")
            return
        self._record(item, NORMAL, "SuccessfulCreate", f"Created job {made.key[1]}")
        current = control.get(self._resource, item.key) or item
        status = {**(current.obj.get("status") or {}), "lastScheduleTime": rfc3339(due)}
        status["active"] = [self._reference(job) for job in self._active(current)]
        control.put_status(self._resource, current, status)

    def _job(self, item: Item, due: float) -> Object:
        template = self._control.copied(item.obj["spec"]["jobTemplate"])
        own = template.get("metadata") or {}
        metadata: Object = {
            "name": f"{item.key[1]}-{int(due) // 60}",
            "annotations": {**(own.get("annotations") or {}), SCHEDULED: rfc3339(due)},
            "ownerReferences": [reference_to(self._resource, item.obj)],
        }
        if own.get("labels"):
            metadata["labels"] = own["labels"]
        return {"metadata": metadata, "spec": template.get("spec") or {}}

    # -- existing Jobs -------------------------------------------------------------------------------------------------

    def _active(self, item: Item) -> list[Item]:
        jobs = self._owned.of(item.obj["metadata"]["uid"])
        return [job for job in jobs if not _result(job.obj) and "deletionTimestamp" not in job.obj["metadata"]]

    def _reference(self, job: Item) -> Object:
        metadata = job.obj["metadata"]
        return {
            "kind": "Job",
            "namespace": job.key[0],
            "name": job.key[1],
            "uid": metadata["uid"],
            "apiVersion": self._jobs.api_version,
            "resourceVersion": metadata["resourceVersion"],
        }

    def _update_history(self, item: Item) -> Item:
        """Record finished Jobs in the status and delete Jobs beyond the history limits."""
        jobs = self._owned.of(item.obj["metadata"]["uid"])
        ended = sorted((job for job in jobs if _result(job.obj)), key=lambda job: (_started(job), job.key[1]))
        status = dict(item.obj.get("status") or {})
        running = {job.obj["metadata"]["uid"] for job in self._active(item)}
        for entry in status.get("active") or ():
            if entry["uid"] not in running:
                job = next((job for job in ended if job.obj["metadata"]["uid"] == entry["uid"]), None)
                if job is not None:
                    message = f"Saw completed job: {entry['name']}, condition: {_result(job.obj)}"
                    self._record(item, NORMAL, "SawCompletedJob", message)
        active = [entry for entry in status.get("active") or () if entry["uid"] in running]
        status.pop("active", None)
        if active:
            status["active"] = active
        finished = [time for job in ended if (time := (job.obj.get("status") or {}).get("completionTime"))]
        if finished:
            status["lastSuccessfulTime"] = max(finished)
        for result, field in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            limit = item.obj["spec"].get(field)
            kept = [job for job in ended if _result(job.obj) == result]
            if limit is not None:
                for job in kept[: max(0, len(kept) - limit)]:
                    self._control.delete(self._jobs, job)
        return self._control.put_status(self._resource, item, status)

    def _record(self, item: Item, kind: str, reason: str, message: str) -> None:
        self._control.recorder.record(COMPONENT, self._resource, item, kind, reason, message)


def _result(job: Object) -> str:
    """Complete, Failed, or "" for an unfinished Job."""
    for kind in ("Complete", "Failed"):
        job_condition = condition(job, kind)
        if job_condition is not None and job_condition.get("status") == "True":
            return kind
    return ""


def _started(job: Item) -> str:
    return str((job.obj.get("status") or {}).get("startTime") or job.obj["metadata"]["creationTimestamp"])
