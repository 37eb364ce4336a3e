"""PodLifeTime: pods of some age, in some state, with some condition or exit code (RSV-R97).

Follows descheduler: pkg/framework/plugins/podlifetime.
"""

from collections.abc import Sequence

import msgspec

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.wire import Condition
from seatrial.scheduler.descheduler.args import ArgsError
from seatrial.scheduler.descheduler.framework import Deschedule, Handle
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.pod_strategies import CommonArgs, age, check_states, exit_codes, states

POD_STATES = frozenset(
    {
        "Running",
        "Pending",
        "Succeeded",
        "Failed",
        "Unknown",  # phases
        "NodeAffinity",
        "NodeLost",
        "Shutdown",
        "UnexpectedAdmissionError",  # reasons of pods
        "PodInitializing",
        "ContainerCreating",
        "ImagePullBackOff",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "ErrImagePull",
        "CreateContainerError",
        "InvalidImageName",  # reasons of containers that wait
        "OOMKilled",
        "Error",
        "Completed",
        "DeadlineExceeded",
        "Evicted",
        "ContainerCannotRun",
        "StartError",  # that ended
    }
)


class ConditionFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A condition of a pod; empty fields match anything."""

    type: str = ""
    status: str = ""
    reason: str = ""
    min_time_since_last_transition_seconds: int | None = None

    def matches(self, condition: Condition, now: float) -> bool:
        if self.type not in {"", condition.type} or self.status not in {"", condition.status}:
            return False
        if self.reason not in {"", condition.reason}:
            return False
        wait, since = self.min_time_since_last_transition_seconds, read_time(condition.last_transition_time)
        return wait is None or (since is not None and now - since >= wait)


class OwnerKinds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kinds of owners whose pods are considered, or are not."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def allows(self, pod: Pod) -> bool:
        kinds = {owner.kind for owner in pod.metadata.owner_references}
        return bool(kinds & set(self.include)) if self.include else not kinds & set(self.exclude)


class PodLifeTimeArgs(CommonArgs, frozen=True):
    """Arguments of PodLifeTime."""

    max_pod_life_time_seconds: int | None = None
    states: tuple[str, ...] = ()
    conditions: tuple[ConditionFilter, ...] = ()
    exit_codes: tuple[int, ...] = ()
    owner_kinds: OwnerKinds = OwnerKinds()
    including_init_containers: bool = False
    including_ephemeral_containers: bool = False

    def check(self) -> None:
        super().check()
        if self.max_pod_life_time_seconds is None and not (self.states or self.conditions or self.exit_codes):
            raise ArgsError("expected maxPodLifeTimeSeconds, states, conditions or exitCodes, found none of them")
        if self.max_pod_life_time_seconds is not None and self.max_pod_life_time_seconds < 0:
            raise ArgsError(f"maxPodLifeTimeSeconds: expected 0 or more, found {self.max_pod_life_time_seconds}")
        check_states(self.states, POD_STATES)
        if self.owner_kinds.include and self.owner_kinds.exclude:
            raise ArgsError("ownerKinds: expected include or exclude, found both")
        for index, condition in enumerate(self.conditions):
            where, wait = f"conditions[{index}]", condition.min_time_since_last_transition_seconds
            if condition == ConditionFilter():
                raise ArgsError(f"{where}: expected type, status, reason or minTimeSinceLastTransitionSeconds")
            if wait is not None and wait < 0:
                raise ArgsError(f"{where}.minTimeSinceLastTransitionSeconds: expected 0 or more, found {wait}")


class PodLifeTime(Deschedule):
    """Evicts pods for which every given criterion holds; the oldest first."""

    name = "PodLifeTime"
    args = PodLifeTimeArgs

    def __init__(self, args: PodLifeTimeArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        results = []
        for pod in args.pods(handle, nodes, ended=True):
            with handle.clock.faults.guard(self.name, pod.key):
                if args.owner_kinds.allows(pod) and self._matches(handle, pod):
                    results.append((-age(handle, pod), pod.key, pod))
        limited = args.max_pod_life_time_seconds is not None
        reason = "pod has been running for too long" if limited else "pod is in a listed state"
        for _, _, pod in sorted(results, key=lambda entry: entry[:2]):
            handle.evict(pod, self.name, reason)

    def _matches(self, handle: Handle, pod: Pod) -> bool:
        args = self._args
        init, ephemeral = args.including_init_containers, args.including_ephemeral_containers
        if args.max_pod_life_time_seconds is not None and age(handle, pod) <= args.max_pod_life_time_seconds:
            return False
        if args.states and not set(args.states) & states(pod, init=init, ephemeral=ephemeral):
            return False
        if args.exit_codes and not set(args.exit_codes) & exit_codes(pod, init=init):
            return False
        now = handle.clock.now()
        return not args.conditions or any(
            target.matches(condition, now) for target in args.conditions for condition in pod.status.conditions
        )
