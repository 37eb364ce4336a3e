"""Arbitration: sorts pending migration jobs, and lets through those that the limits allow (RSV-R67 to RSV-R71)."""

from collections import Counter
from collections.abc import Iterable, Sequence

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.migration import EVICT_ANNOTATION, RESERVATION_FIRST, PodMigrationJob
from seatrial.scheduler.descheduler.args import MigrationControllerArgs, node_selector
from seatrial.scheduler.descheduler.evictability import forced, why_not
from seatrial.scheduler.descheduler.limits import limit_of
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.pod_order import eviction_order
from seatrial.scheduler.descheduler.state import ClusterState, controller_of
from seatrial.scheduler.pods.selectors import selector_matches

PASS, WAIT, FORBID = "pass", "wait", "forbid"  # results of the filters


def is_forced(job: PodMigrationJob, pod: Pod | None) -> bool:
    """Whether filters and limits do not apply."""
    return EVICT_ANNOTATION in job.metadata.annotations or (pod is not None and forced(pod))


def sort_jobs(state: ClusterState, jobs: Iterable[PodMigrationJob]) -> list[PodMigrationJob]:
    """The order in which jobs are considered: stable sorts, the last is the most significant (RSV-R68)."""
    pod_migration_jobs = sorted(jobs, key=_created, reverse=True)
    pods = {job.name: state.pod_named(job.pod_key) for job in pod_migration_jobs}
    by_pod = eviction_order()
    with_pod = iter(
        sorted(
            (job for job in pod_migration_jobs if pods[job.name] is not None), key=lambda job: by_pod(_of(pods, job))
        )
    )
    pod_migration_jobs = [next(with_pod) if pods[job.name] is not None else job for job in pod_migration_jobs]
    pod_migration_jobs = _grouped(pod_migration_jobs, pods)
    migrating = Counter(
        owner
        for job in state.jobs.values()
        if job.running or (job.pending and job.passed)
        if (owner := _job_owner(state.pod_named(job.pod_key)))
    )
    return sorted(pod_migration_jobs, key=lambda job: -migrating[_job_owner(pods[job.name])])


def _created(job: PodMigrationJob) -> float:
    return read_time(job.metadata.creation_timestamp) or 0.0


def _of(pods: dict[str, Pod | None], job: PodMigrationJob) -> Pod:
    pod = pods[job.name]
    assert pod is not None
    return pod


def _job_owner(pod: Pod | None) -> str:
    """The uid of the `Job` that controls the pod; "" if another kind or nothing does."""
    owner = controller_of(pod.metadata) if pod is not None else None
    return owner.uid if owner is not None and owner.kind == "Job" else ""


def _grouped(jobs: Sequence[PodMigrationJob], pods: dict[str, Pod | None]) -> list[PodMigrationJob]:
    """Move jobs of one `Job` owner behind the first of them."""
    groups: dict[str, list[PodMigrationJob]] = {}
    for job in jobs:
        groups.setdefault(_job_owner(pods[job.name]) or f"/{job.name}", []).append(job)
    return [job for group in groups.values() for job in group]


class Filters:
    """The limits on migrating pods, for one controller."""

    def __init__(self, state: ClusterState, args: MigrationControllerArgs) -> None:
        self._state, self._args = state, args
        self._targets = node_selector("nodeSelector", args.node_selector)

    def check(self, job: PodMigrationJob, pod: Pod) -> tuple[str, str]:
        """PASS, WAIT or FORBID, and the reason. FORBID is final."""
        problem = self.forbidden(pod, job.spec.mode or self._args.default_job_mode, own=job.name)
        if problem:
            return FORBID, problem
        reason = self.limited(pod)
        return (WAIT, reason) if reason else (PASS, "")

    def forbidden(self, pod: Pod, mode: str, *, own: str = "") -> str:
        """Why the pod is not migrated at all; "" if it may be. `own`: the job that is asked about."""
        state, args = self._state, self._args
        for name in state.jobs_for(pod.key):
            other = state.jobs[name]
            same_pod = other.spec.pod_ref.uid in {"", pod.metadata.uid}
            if name != own and other.open and same_pod and (other.running or other.passed or not own):
                return f"there is another migration job for the pod: {name}"
        if mode == RESERVATION_FIRST and pod.spec.scheduler_name not in args.scheduler_names:
            return f"pod's scheduler {pod.spec.scheduler_name} does not support reservations"
        targets = self._targets  # of nodeFit alone
        nodes = [
            node for node in state.nodes.values() if args.node_fit and selector_matches(targets, node.metadata.labels)
        ]
        reasons = why_not(state, args, pod, nodes)
        if reasons:
            return "; ".join(reasons)
        return self._unexpected_replicas(pod)

    def _unexpected_replicas(self, pod: Pod) -> str:
        args = self._args
        workload = self._state.workload_of(pod)
        if workload is None or args.skip_check_expected_replicas or "ExpectedReplicas" in args.skip_eviction_gates:
            return ""
        replicas = workload.replicas
        migrating = limit_of(replicas, args.max_migrating_per_workload)
        unavailable = limit_of(replicas, args.max_unavailable_per_workload)
        if replicas == 1 or replicas in {migrating, unavailable}:
            return f"{workload.kind} {workload.name} has {replicas} replicas, as many as may be migrated at once"
        return ""

    def limited(self, pod: Pod) -> str:
        """The limit that the pod waits for; "" if it may migrate now."""
        state, args, skipped = self._state, self._args, self._args.skip_eviction_gates
        others = self._migrating(pod)
        per_node = args.max_migrating_per_node or 0
        if per_node > 0 and pod.spec.node_name and "MaxMigratingPerNode" not in skipped:
            count = sum(moved.spec.node_name == pod.spec.node_name for _, moved in others if moved is not None)
            if count >= per_node:
                return f"maxMigratingPerNode allows {per_node} migrating pods of node {pod.spec.node_name}"
        per_namespace = args.max_migrating_per_namespace or 0
        if per_namespace > 0 and "MaxMigratingPerNamespace" not in skipped:
            count = sum(job.spec.pod_ref.namespace == pod.metadata.namespace for job, _ in others)
            if count >= per_namespace:
                namespace = pod.metadata.namespace
                return f"maxMigratingPerNamespace allows {per_namespace} migrating pods of namespace {namespace}"
        in_all = args.max_migrating_globally or 0
        if in_all > 0 and "MaxMigratingGlobally" not in skipped and len(others) >= in_all:
            return f"maxMigratingGlobally allows {in_all} migrating pods"
        workload = state.workload_of(pod)
        if workload is None:
            return ""
        siblings = {sibling.metadata.uid: sibling for sibling in state.pods_of(workload)}
        moving = {moved.metadata.uid for _, moved in others if moved is not None and moved.metadata.uid in siblings}
        if "MaxMigratingPerWorkload" not in skipped and moving:
            limit = limit_of(workload.replicas, args.max_migrating_per_workload)
            if len(moving) >= limit:
                return f"maxMigratingPerWorkload allows {limit} migrating pods of {workload.kind} {workload.name}"
        if "MaxUnavailablePerWorkload" not in skipped:
            limit = limit_of(workload.replicas, args.max_unavailable_per_workload)
            down = {uid for uid, sibling in siblings.items() if not sibling.ready} | moving
            missing = max(0, workload.replicas - len(siblings))  # replicas whose pod does not exist are unavailable too
            if len(down) + missing >= limit:
                return f"maxUnavailablePerWorkload allows {limit} unavailable pods of {workload.kind} {workload.name}"
        return ""

    def _migrating(self, pod: Pod) -> list[tuple[PodMigrationJob, Pod | None]]:
        """All jobs that run or were let through, with their pods, but for jobs of `pod` itself (RSV-R69)."""
        state = self._state
        jobs = []
        for job in state.open_jobs():
            if job.running or job.passed:
                other = state.pod_named(job.pod_key)
                if other is None or other.metadata.uid != pod.metadata.uid:
                    jobs.append((job, other))
        return jobs
