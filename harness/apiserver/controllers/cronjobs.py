"""CronJobs: a Job at every moment of a schedule, unless one is still running and must not be doubled.

Follows `pkg/controller/cronjob`. One timer for each CronJob, set to its next moment; nothing happens in between.
"""

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from harness.apiserver.controllers.control import Control, is_new_spec
from harness.apiserver.controllers.cron import CronError, Schedule, parse_cron
from harness.apiserver.controllers.jobs import JOBS
from harness.apiserver.controllers.owners import Dependents, reference_to
from harness.apiserver.controllers.podstate import condition
from harness.apiserver.controllers.recording import NORMAL, WARNING
from harness.apiserver.controllers.work_queue import Turns
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.options import Options
from harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from scheduler.api.clock import from_rfc3339, rfc3339

CRON_JOBS: CollectionKey = ("batch", "cronjobs")
COMPONENT = "cronjob-controller"
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANY = 100  # missed moments that are worth a warning, upstream's value


class CronJobs:
    """Follows CronJobs and the Jobs that they made."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._resource = control.resource(CRON_JOBS)
        self._jobs = control.resource(JOBS)
        self._owned = Dependents(control.objects, JOBS)
        self._planned: dict[Key, float] = {}  # the moment for which a timer is set
        self._turns: Turns[Key] = Turns(control.clock, self._sync)
        control.objects.collection(self._resource).listen(self._changed)
        self._owned.follow(self._resource, self._job_changed)

    def _changed(self, change: Change) -> None:
        if change.new is None:
            self._planned.pop(change.key, None)
        elif is_new_spec(change):
            self._turns.add(change.key)

    def _job_changed(self, key: Key, change: Change) -> None:
        old, new = change.old, change.new
        if old is None or new is None or _result(old.obj) != _result(new.obj):
            self._turns.add(key)

    # -- one turn -----------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        item = self._control.get(self._resource, key)
        if item is None:
            return
        item = self._account(item)
        if item.obj["spec"].get("suspend") or "deletionTimestamp" in item.obj["metadata"]:
            return
        try:
            schedule, zone = _schedule_of(item.obj)
        except CronError as error:
            said = f"unparseable schedule: {item.obj['spec']['schedule']!r}: {error}"
            self._say(item, WARNING, "UnparseableSchedule", said)
            return
        except (KeyError, ValueError, OSError):
            self._say(item, WARNING, "UnknownTimeZone", f"invalid timeZone: {item.obj['spec'].get('timeZone')!r}")
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
        self._turns.later(following - now, item.key)

    def _due(self, item: Item, schedule: Schedule, zone: tzinfo) -> float | None:
        """The latest moment that has come and has not been served."""
        now = self._control.clock.now()
        since = from_rfc3339(
            (item.obj.get("status") or {}).get("lastScheduleTime") or item.obj["metadata"]["creationTimestamp"]
        )
        limit = item.obj["spec"].get("startingDeadlineSeconds")
        if limit is not None:
            since = max(since, now - limit)
        latest, missed = None, 0
        moment = schedule.next_after(since, zone)
        while moment is not None and moment <= now:
            latest, missed = moment, missed + 1
            moment = schedule.next_after(moment, zone)
        if missed > MANY:
            self._say(item, WARNING, "TooManyMissedTimes", f"too many missed start times: {missed}. Set or decrease"
                      " .spec.startingDeadlineSeconds or check clock skew")  # fmt: skip
        return latest

    def _start(self, item: Item, due: float) -> None:
        control, spec = self._control, item.obj["spec"]
        active = self._active(item)
        if active and spec.get("concurrencyPolicy") == "Forbid":
            said = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._say(item, NORMAL, "JobAlreadyActive", said)
            return
        if active and spec.get("concurrencyPolicy") == "Replace":
            for job in active:
                if control.delete(self._jobs, job):
                    self._say(item, NORMAL, "SuccessfulDelete", f"Deleted job {job.key[1]}")
        body = self._job(item, due)
        try:
            made = control.objects.create(self._jobs, item.key[0], body, Options())
        except ApiStatusError as refused:
            if refused.reason not in {"AlreadyExists", "NotFound"}:
                self._say(item, WARNING, "FailedCreate", f"Error creating job: {refused.message}")
            return
        self._say(item, NORMAL, "SuccessfulCreate", f"Created job {made.key[1]}")
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

    # -- Jobs that there are ------------------------------------------------------------------------------------------

    def _active(self, item: Item) -> list[Item]:
        jobs = self._owned.of(item.obj["metadata"]["uid"])
        return [job for job in jobs if not _result(job.obj) and "deletionTimestamp" not in job.obj["metadata"]]

    def _reference(self, job: Item) -> Object:
        metadata = job.obj["metadata"]
        return {
            "kind": "Job", "namespace": job.key[0], "name": job.key[1], "uid": metadata["uid"],
            "apiVersion": self._jobs.api_version, "resourceVersion": metadata["resourceVersion"],
        }  # fmt: skip

    def _account(self, item: Item) -> Item:
        """Note what has ended, and delete what is beyond the limits of the history."""
        jobs = self._owned.of(item.obj["metadata"]["uid"])
        ended = sorted((job for job in jobs if _result(job.obj)), key=lambda job: (_started(job), job.key[1]))
        status = dict(item.obj.get("status") or {})
        running = {job.obj["metadata"]["uid"] for job in self._active(item)}
        for one in status.get("active") or ():
            if one["uid"] not in running:
                job = next((job for job in ended if job.obj["metadata"]["uid"] == one["uid"]), None)
                if job is not None:
                    said = f"Saw completed job: {one['name']}, condition: {_result(job.obj)}"
                    self._say(item, NORMAL, "SawCompletedJob", said)
        active = [one for one in status.get("active") or () if one["uid"] in running]
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

    def _say(self, item: Item, kind: str, reason: str, message: str) -> None:
        self._control.recorder.record(COMPONENT, self._resource, item, kind, reason, message)


def _schedule_of(cron_job: Object) -> tuple[Schedule, tzinfo]:
    """
    Raises:
        CronError: the schedule cannot be read.
        KeyError, ValueError, OSError: no such time zone.
    """
    spec = cron_job["spec"]
    name = spec.get("timeZone") or "UTC"
    zone: tzinfo = UTC if name in {"UTC", "Etc/UTC"} else ZoneInfo(name)
    return parse_cron(spec["schedule"]), zone


def _result(job: Object) -> str:
    """Complete, Failed, or "" for a Job that goes on."""
    for kind in ("Complete", "Failed"):
        found = condition(job, kind)
        if found is not None and found.get("status") == "True":
            return kind
    return ""


def _started(job: Item) -> str:
    return str((job.obj.get("status") or {}).get("startTime") or job.obj["metadata"]["creationTimestamp"])
