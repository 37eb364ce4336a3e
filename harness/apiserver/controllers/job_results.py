"""Decides whether a Job is finished, and with which result, from its counts. Pure functions.

Follows `pkg/controller/job/{job_controller,success_policy,backoff_utils}.go`.
"""

from dataclasses import dataclass, field

from seatrial.harness.apiserver.controllers.jobindexes import parse_indexes
from seatrial.harness.apiserver.controllers.jobpods import is_indexed
from seatrial.harness.apiserver.storage.store import Object
from seatrial.harness.apiserver.times import seconds_of

# seconds between a failure and the next pod; doubles each time
INITIAL_BACKOFF, MAX_BACKOFF = 10.0, 600.0
_UNLIMITED = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a Job: Complete if `good`, else Failed; reason and message are the condition's."""

    good: bool
    reason: str
    message: str


@dataclass(slots=True)
class Tally:
    """The counts of a Job's pods and indexes."""

    succeeded: int = 0
    failed: int = 0
    active: int = 0
    ready: int = 0
    terminating: int = 0
    restarts: int = 0  # container restarts in running pods with restartPolicy OnFailure
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)


def verdict(job: Object, tally: Tally, now: float) -> Verdict | None:
    """The Job's result at `now` (Unix seconds); None if it is unfinished. Failures take precedence, as upstream."""
    return _failure(job, tally, now) or _success(job, tally)


def _failure(job: Object, tally: Tally, now: float) -> Verdict | None:
    spec = job["spec"]
    limit = spec.get("backoffLimit", 6)
    in_place = spec["template"]["spec"].get("restartPolicy") == "OnFailure"
    if tally.failed > limit or (in_place and limit != _UNLIMITED and tally.restarts > 0 and tally.restarts >= limit):
        return Verdict(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = deadline_left(job, now)
    if left is not None and left <= 0:
        return Verdict(False, "DeadlineExceeded", "Job was active longer than specified deadline")
    limit = spec.get("maxFailedIndexes")
    if limit is not None and len(tally.failed_indexes) > limit:
        return Verdict(
            False, "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        )
    completions = spec.get("completions")
    if tally.failed_indexes and len(tally.completed) + len(tally.failed_indexes) >= (completions or 0):
        return Verdict(False, "FailedIndexes", "Job has failed indexes")
    return None


def _success(job: Object, tally: Tally) -> Verdict | None:
    spec = job["spec"]
    for number, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or ()):
        if _satisfied(rule, tally.completed):
            return Verdict(True, "SuccessPolicy", f"Matched rules at index {number}")
    completions = spec.get("completions")
    if completions is None:
        done = tally.succeeded > 0 and not tally.active
    elif is_indexed(job):
        done = len(tally.completed) >= completions
    else:
        done = tally.succeeded >= completions
    if done:
        return Verdict(True, "CompletionsReached", "Reached expected number of succeeded pods")
    return None


def _satisfied(rule: Object, completed: set[int]) -> bool:
    entry, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if entry is None:
        return count is not None and len(completed) >= count
    indexes = parse_indexes(entry)
    have = len(indexes & completed)
    return have >= (count if count is not None else len(indexes))


def deadline_left(job: Object, now: float) -> float | None:
    """Seconds until `activeDeadlineSeconds` expires; None if it is unset or the Job has not started."""
    spec, start = job["spec"], (job.get("status") or {}).get("startTime")
    if spec.get("activeDeadlineSeconds") is None or not start or spec.get("suspend"):
        return None
    return seconds_of(start) + spec["activeDeadlineSeconds"] - now


def wanted_active(job: Object, tally: Tally) -> int:
    """The number of pods that should be active."""
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    if completions is None:  # work queue Job: after the first success, no more pods are created
        return min(tally.active, parallelism) if tally.succeeded else parallelism
    done = len(tally.completed) + len(tally.failed_indexes) if is_indexed(job) else tally.succeeded
    return max(0, min(parallelism, completions - done))


def backoff_after(failures: int) -> float:
    """Seconds to wait after the last of `failures` consecutive failures before another pod is created."""
    return min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(failures - 1, 30)) if failures else 0.0
