"""Evictions for migration jobs: which ones the object limiters hold back, and the requests that evict."""

from typing import Any

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.migration import EVICT_POLICY, EVICT_TRIGGER, SOFT_EVICTION, PodMigrationJob
from seatrial.scheduler.api.transport import JSON, Done, Request, Response
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.client.rest import Rest, pod_path
from seatrial.scheduler.descheduler.args import (
    DELETE,
    EVICTION,
    POLICIES,
    SOFT,
    MigrationControllerArgs,
    check_duration,
)
from seatrial.scheduler.descheduler.limits import ObjectLimiter, limit_of
from seatrial.scheduler.descheduler.migration.arbitration import is_forced
from seatrial.scheduler.descheduler.migration.steps import eviction_reason
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState


class ObjectLimits:
    """The object limiters of workloads and namespaces, and the jobs that they have counted."""

    def __init__(self, state: ClusterState, args: MigrationControllerArgs, clock: Clock) -> None:
        self._state, self._args, self._clock = state, args, clock
        limits = args.object_limiters
        self._limiters = {name: ObjectLimiter(check_duration(name, limit.duration)) for name, limit in limits.items()}
        self._reserved: dict[str, list[tuple[str, str]]] = {}  # job → limiters and keys of which it has a token
        self._counted: set[str] = set()  # jobs whose eviction is counted

    def forget(self, name: str) -> None:
        """The job of this name is deleted."""
        self.give_back(name)
        self._counted.discard(name)

    def holds(self, job: PodMigrationJob) -> str:
        """Which object limiter holds the job back (RSV-R56), in words; "" if none does.

        A job that is not held has its tokens from then on, before it makes a reservation: the next job of the object
        would else make one as well, and could not use it for minutes after the first eviction.
        """
        if job.name in self._counted or job.name in self._reserved:
            return ""
        pod = self._state.pod_named(job.pod_key)
        if pod is None or is_forced(job, pod):
            return ""
        now, limited = self._clock.monotonic(), self._limited(pod)
        for name, key, limit, _, of in limited:
            if not self._limiters[name].allows(key, now):
                duration = self._args.object_limiters[name].duration
                return f"Waiting for objectLimiters.{name}: {limit} evictions of {of} in {duration}"
        self._reserved[job.name] = [(name, key) for name, key, *_ in limited]
        self._take(limited)
        return ""

    def give_back(self, name: str) -> None:
        """The job of this name has ended: what it has taken and not used is free."""
        for limiter, key in self._reserved.pop(name, ()):
            self._limiters[limiter].returned(key, self._clock.monotonic())

    def _take(self, limited: list[tuple[str, str, int, int, str]]) -> None:
        for name, key, limit, burst, _ in limited:
            self._limiters[name].evicted(key, limit, burst, self._clock.monotonic())

    def _limited(self, pod: Pod) -> list[tuple[str, str, int, int, str]]:
        """Name, key, limit and burst of the object limiters that the pod falls under, and what they limit, in words."""
        results = []
        limits, workload = self._args.object_limiters, self._state.workload_of(pod)
        if "workload" in limits and workload is not None:
            percent = limits["workload"].max_migrating
            value = percent if percent is not None else self._args.max_migrating_per_workload
            limit = 0 if percent == 0 else limit_of(workload.replicas, value)
            of = f"{workload.kind} {workload.name}"
            results.append(("workload", workload.uid, limit, limits["workload"].burst, of))
        if "namespace" in limits:
            percent = limits["namespace"].max_migrating
            limit = percent if isinstance(percent, int) else 0
            namespace = pod.metadata.namespace
            results.append(("namespace", namespace, limit, limits["namespace"].burst, f"namespace {namespace}"))
        return results

    def count(self, job: PodMigrationJob, pod: Pod) -> None:
        """Take the tokens of an eviction, for those that the job has. Tokens come again from then on.

        If the first write is refused, it is repeated with the same tokens: other tokens may be minutes away.
        """
        if job.name not in self._counted and not is_forced(job, pod):
            self._counted.add(job.name)
            self.give_back(job.name)
            self._take(self._limited(pod))


def policy_of(pod: Pod, job: PodMigrationJob, default: str) -> str:
    """How the pod is evicted: as its label says, else the job's, else `default` (RSV-R63)."""
    labels = (pod.metadata.labels.get(EVICT_POLICY), job.metadata.labels.get(EVICT_POLICY))
    return next((label for label in labels if label in POLICIES), default) or EVICTION


def send_eviction(rest: Rest, pod: Pod, job: PodMigrationJob, policy: str, done: Done) -> None:
    """Evict the pod by its policy. Sent once: what is refused, as for a budget, is repeated by the job's next step."""
    options = {**(job.spec.delete_options or {}), "preconditions": {"uid": pod.metadata.uid}}
    transport = rest.transport
    if policy == SOFT:
        if SOFT_EVICTION in pod.metadata.annotations:
            rest.clock.call_soon(lambda: done(Response(200)))
            return
        messages = {
            "timestamp": rest.clock.timestamp(),
            "initiator": job.metadata.annotations.get(EVICT_TRIGGER, ""),
            "reason": eviction_reason(job),
            "deleteOptions": job.spec.delete_options,
        }
        patch = {"metadata": {"annotations": {SOFT_EVICTION: to_json(messages).decode()}}}
        rest.merge(pod_path(pod), patch, done, uid=pod.metadata.uid)
    elif policy == DELETE:
        body = to_json({"apiVersion": "v1", "kind": "DeleteOptions", **options})
        transport.send(Request("DELETE", pod_path(pod), body, JSON), done)
    else:
        evict(rest, pod, options, done)


def evict(rest: Rest, pod: Pod, options: dict[str, Any], done: Done) -> None:
    """Post an Eviction, once."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        "deleteOptions": options,
    }
    rest.transport.send(Request("POST", pod_path(pod, "eviction"), to_json(body)), done)
