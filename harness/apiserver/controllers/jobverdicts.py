"""Whether a Job is through, and with what result, from what has been counted so far. Pure functions.

Follows `pkg/controller/job/{job_controller,success_policy,backoff_utils}.go`.
"""

from dataclasses import dataclass, field

from harness.apiserver.controllers.jobindexes import parse_indexes
from harness.apiserver.controllers.jobpods import is_indexed
from harness.apiserver.storage.store import Object
from scheduler.api.clock import from_rfc3339

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0  # seconds between a failure and the next pod; doubles with each in a row
_UNLIMITED = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """`good` Jobs become Complete, the others Failed."""

    good: bool
    reason: str
    message: str


@dataclass(slots=True)
class Tally:
    """What a Job has to show."""

    succeeded: int = 0
    failed: int = 0
    active: int = 0
    ready: int = 0
    terminating: int = 0
    restarts: int = 0  # of containers in running pods, for pods that restart in place
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)


def verdict(job: Object, tally: Tally, now: float) -> Verdict | None:
    """None while the Job goes on. Failures come before success, as upstream looks for them first."""
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
    most = spec.get("maxFailedIndexes")
    if most is not None and len(tally.failed_indexes) > most:
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
    wanted, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if wanted is None:
        return count is not None and len(completed) >= count
    indexes = parse_indexes(wanted)
    have = len(indexes & completed)
    return have >= (count if count is not None else len(indexes))


def deadline_left(job: Object, now: float) -> float | None:
    """Seconds until `activeDeadlineSeconds` is over; None if there is none or the clock does not run."""
    spec, start = job["spec"], (job.get("status") or {}).get("startTime")
    if spec.get("activeDeadlineSeconds") is None or not start or spec.get("suspend"):
        return None
    return from_rfc3339(start) + spec["activeDeadlineSeconds"] - now


def wanted_active(job: Object, tally: Tally) -> int:
    """How many pods should run now."""
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    if completions is None:  # a work queue: once one has found it empty, no more are made
        return min(tally.active, parallelism) if tally.succeeded else parallelism
    done = len(tally.completed) + len(tally.failed_indexes) if is_indexed(job) else tally.succeeded
    return max(0, min(parallelism, completions - done))


def pause_after(failures: int) -> float:
    """Seconds after the last of `failures` in a row before another pod is made."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 30)) if failures else 0.0
