"""Strategies that look at one pod at a time (RSV-R97; descheduler: pkg/framework/plugins)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import NO_SCHEDULE, PREFER_NO_SCHEDULE, Node, Taint
from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.descheduler.args import Args, ArgsError, Namespaces, check_selector
from seatrial.scheduler.descheduler.framework import Deschedule, Handle
from seatrial.scheduler.descheduler.node_fit import matches_node, misfits, term_matches
from seatrial.scheduler.descheduler.objects import ContainerStatus, Pod
from seatrial.scheduler.pods.selectors import selector_matches, tolerates

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)

RESTART_STATES = frozenset({"Running", "CrashLoopBackOff"})


class CommonArgs(Args, frozen=True):
    """Which pods a strategy considers."""

    namespaces: Namespaces = Namespaces()
    label_selector: LabelSelector | None = None

    def check(self) -> None:
        self.namespaces.check("namespaces")
        check_selector("labelSelector", self.label_selector)

    def selects(self, pod: Pod) -> bool:
        """Whether the strategy considers the pod."""
        selector = self.label_selector
        return self.namespaces.allows(pod.metadata.namespace) and (
            selector is None or selector_matches(selector, pod.metadata.labels)
        )

    def pods(self, handle: Handle, nodes: Sequence[Node], *, ended: bool = False) -> Iterator[Pod]:
        """The selected pods on `nodes` that may be evicted; `ended`: with those that have ended."""
        for node in nodes:
            for pod in list(handle.state.pods_on(node.name)) if ended else handle.pods_on(node.name):
                if self.selects(pod) and handle.may_evict(pod):
                    yield pod


class RemoveFailedPodsArgs(CommonArgs, frozen=True):
    """Arguments of RemoveFailedPods."""

    min_pod_lifetime_seconds: int = 3600
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    exclude_owner_kinds: tuple[str, ...] = ()
    including_init_containers: bool = False

    def check(self) -> None:
        super().check()
        if self.min_pod_lifetime_seconds < 0:
            raise ArgsError(f"minPodLifetimeSeconds: expected 0 or more, found {self.min_pod_lifetime_seconds}")


class RemoveFailedPods(Deschedule):
    """Evicts pods in phase Failed, for the listed reasons or exit codes if there are any."""

    name = "RemoveFailedPods"
    args = RemoveFailedPodsArgs

    def __init__(self, args: RemoveFailedPodsArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        for pod in list(args.pods(handle, nodes, ended=True)):
            with handle.clock.faults.guard(self.name, pod.key):
                owners = {owner.kind for owner in pod.metadata.owner_references}
                if pod.status.phase != "Failed" or owners & set(args.exclude_owner_kinds):
                    continue
                init = args.including_init_containers
                if age(handle, pod) < args.min_pod_lifetime_seconds:
                    continue
                if args.reasons and not set(args.reasons) & states(pod, init=init):
                    continue
                if args.exit_codes and not set(args.exit_codes) & exit_codes(pod, init=init):
                    continue
                handle.evict(pod, self.name, "pod has failed")


class TooManyRestartsArgs(CommonArgs, frozen=True):
    """Arguments of RemovePodsHavingTooManyRestarts."""

    pod_restart_threshold: int = 0
    including_init_containers: bool = False
    states: tuple[str, ...] = ()

    def check(self) -> None:
        super().check()
        if self.pod_restart_threshold < 1:
            raise ArgsError(f"podRestartThreshold: expected 1 or more, found {self.pod_restart_threshold}")
        check_states(self.states, RESTART_STATES)


class RemovePodsHavingTooManyRestarts(Deschedule):
    """Evicts pods whose containers were restarted too often, most restarts first."""

    name = "RemovePodsHavingTooManyRestarts"
    args = TooManyRestartsArgs

    def __init__(self, args: TooManyRestartsArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        results = []
        for pod in args.pods(handle, nodes):
            with handle.clock.faults.guard(self.name, pod.key):
                count = sum(
                    container.restart_count for container in containers(pod, init=args.including_init_containers)
                )
                listed = not args.states or set(args.states) & states(pod, init=args.including_init_containers)
                if count >= args.pod_restart_threshold and listed:
                    results.append((-count, pod.key, pod))
        for count, _, pod in sorted(results, key=lambda entry: entry[:2]):
            handle.evict(pod, self.name, f"containers were restarted {-count} times")


class NodeTaintsArgs(CommonArgs, frozen=True):
    """Arguments of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] = ()

    def check(self) -> None:
        super().check()
        if self.excluded_taints and self.included_taints:
            raise ArgsError("expected includedTaints or excludedTaints, found both")


class RemovePodsViolatingNodeTaints(Deschedule):
    """Evicts pods that do not tolerate a NoSchedule taint of their node."""

    name = "RemovePodsViolatingNodeTaints"
    args = NodeTaintsArgs

    def __init__(self, args: NodeTaintsArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        by_name = {node.name: node for node in nodes}
        for pod in list(self._args.pods(handle, nodes)):
            with handle.clock.faults.guard(self.name, pod.key):
                for taint in by_name[pod.spec.node_name].spec.taints:
                    if self._counts(taint) and not any(
                        tolerates(toleration, taint) for toleration in pod.spec.tolerations
                    ):
                        handle.evict(
                            pod, self.name, f"pod does not tolerate taint {taint.key}={taint.value}:{taint.effect}"
                        )
                        break

    def _counts(self, taint: Taint) -> bool:
        args = self._args
        effects = {NO_SCHEDULE, PREFER_NO_SCHEDULE} if args.include_prefer_no_schedule else {NO_SCHEDULE}
        names = {taint.key, f"{taint.key}={taint.value}"}
        if taint.effect not in effects or names & set(args.excluded_taints):
            return False
        return not args.included_taints or bool(names & set(args.included_taints))


class NodeAffinityArgs(CommonArgs, frozen=True):
    """Arguments of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: tuple[str, ...] = ()

    def check(self) -> None:
        super().check()
        if not self.node_affinity_type:
            raise ArgsError(f"nodeAffinityType: expected {REQUIRED} or {PREFERRED}, found none")
        for item in self.node_affinity_type:
            if item not in {REQUIRED, PREFERRED}:
                raise ArgsError(f"nodeAffinityType: expected {REQUIRED} or {PREFERRED}, found {item!r}")


class RemovePodsViolatingNodeAffinity(Deschedule):
    """Evicts pods whose node no longer matches, or matches worse than another node that has room."""

    name = "RemovePodsViolatingNodeAffinity"
    args = NodeAffinityArgs

    def __init__(self, args: NodeAffinityArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        by_name = {node.name: node for node in nodes}
        checks: dict[str, Callable[[Pod, Node, Node], bool]] = {
            REQUIRED: lambda pod, own, _: not matches_node(pod, own),
            PREFERRED: lambda pod, own, other: preference(pod, other) > preference(pod, own),
        }
        for pod in list(self._args.pods(handle, nodes)):
            with handle.clock.faults.guard(self.name, pod.key):
                own = by_name[pod.spec.node_name]
                for kind in self._args.node_affinity_type:
                    if any(
                        node.name != own.name and checks[kind](pod, own, node) and not misfits(handle.state, pod, node)
                        for node in nodes
                    ):
                        handle.evict(pod, self.name, f"node violates {kind}")
                        break


def preference(pod: Pod, node: Node) -> int:
    """The sum of weights of the preferred terms that match."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.preferred if affinity else ()
    return sum(term.weight for term in terms if term_matches(term.preference, node))


def age(handle: Handle, pod: Pod) -> float:
    """Seconds since the pod was created."""
    created = read_time(pod.metadata.creation_timestamp)
    return 0.0 if created is None else handle.clock.now() - created


def containers(pod: Pod, *, init: bool, ephemeral: bool = False) -> tuple[ContainerStatus, ...]:
    """The statuses of a pod's containers, on request with those of init and ephemeral containers."""
    status = pod.status
    inits, ephemerals = status.init_container_statuses, status.ephemeral_container_statuses
    return (*status.container_statuses, *(inits if init else ()), *(ephemerals if ephemeral else ()))


def check_states(values: Iterable[str], known: AbstractSet[str]) -> None:
    """
    Raises:
        ArgsError: one of `states` is not known.
    """
    for state in values:
        if state not in known:
            raise ArgsError(f"states: expected of {', '.join(sorted(known))}, found {state!r}")


def exit_codes(pod: Pod, *, init: bool) -> set[int]:
    """The exit codes of containers that have ended, never of ephemeral ones."""
    results = (container.state.terminated for container in containers(pod, init=init))
    return {terminated.exit_code for terminated in results if terminated is not None}


def states(pod: Pod, *, init: bool, ephemeral: bool = False) -> set[str]:
    """Phase, reason of the pod, and reasons for which containers wait or have ended."""
    phases = {pod.status.phase, pod.status.reason}
    for container in containers(pod, init=init, ephemeral=ephemeral):
        if container.state.waiting is not None:
            phases.add(container.state.waiting.reason)
        if container.state.terminated is not None:
            phases.add(container.state.terminated.reason)
    return phases - {""}
