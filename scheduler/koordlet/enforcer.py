"""Applies what a NodeSLO asks: suppression, burst, limits of best-effort pods, group identity."""

import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

import msgspec

from seatrial.scheduler.api.numa import LSE, LSR, RESOURCE_STATUS, CpusetError, cpuset_text, parse_cpuset
from seatrial.scheduler.api.quantity import CPU, QuantityError, milli
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.koordlet import burst, suppress
from seatrial.scheduler.koordlet.burst import BurstConfig, Limiter
from seatrial.scheduler.koordlet.cgroups import (
    CPU_BURST,
    CPUS,
    GROUP_IDENTITY,
    MEMORY_LIMIT,
    NO_LIMIT,
    PERIOD,
    QUOTA,
    SHARES,
    CgroupError,
)
from seatrial.scheduler.koordlet.collectors import FRESH, NODE_CPU, Collectors
from seatrial.scheduler.koordlet.cpu_pools import KubeletCpus, Pools, bound_cpus, pod_cpus, pools
from seatrial.scheduler.koordlet.executor import Executor, Update
from seatrial.scheduler.koordlet.machine import Cpu
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.pod_rules import Identities, batch_limits, identities, normalized_quotas, own_identity
from seatrial.scheduler.koordlet.strategies import CFS_QUOTA, CPUSET, HostApplication, Strategies
from seatrial.scheduler.koordlet.suppress import Usage
from seatrial.scheduler.pods.qos import BE, BEST_EFFORT, BURSTABLE, GUARANTEED, LS
from seatrial.scheduler.pods.requests import pod_requests
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

_ADJUSTED = "AdjustBEByNodeCPUUsage"


class Enforcer:
    """Writes control groups by samples, pods and strategies."""

    def __init__(self, executor: Executor, collectors: Collectors, cpus: list[Cpu], dice: Random) -> None:
        self._executor, self._cgroups = executor, executor.cgroups
        self._samples, self._cpus, self._dice = collectors.samples, cpus, dice
        # The policy in force; "": none. None: not known, because an agent before this one may have suppressed.
        self._suppressing: str | None = None
        self._wide: frozenset[int] | None = None  # the CPUs of best-effort pods; None: suppressed, or not known
        self._limiters: dict[tuple[str, str], tuple[Limiter, float]] = {}
        self._say = Once(log)

    # -- suppression --------------------------------------------------------------------------------------------------

    def suppress(
        self,
        now: float,
        pods: Iterable[LocalPod],
        strategies: Strategies,
        reserved: frozenset[int] = frozenset(),
        system: frozenset[int] = frozenset(),
    ) -> None:
        """Give best-effort pods what the others leave (CS-1); everything again when it is disabled (CS-8).

        `reserved`: CPUs that no pod gets; `system`: those that pods of class SYSTEM have alone.
        """
        threshold = strategies.threshold
        if not strategies.known:
            return
        pods = list(pods)
        if not threshold.enable:
            self.recover(pods, reserved | system)
            return
        node = self._samples.last(NODE_CPU, now - FRESH)
        if node is None:
            return
        used = [
            Usage(cores, pod.best_effort)
            for pod in pods
            if (cores := self._samples.last(("cpu", "pod", pod.uid), now - FRESH)) is not None
        ]
        programs = [
            Usage(cores, each.best_effort)
            for each in strategies.applications
            if (cores := self._samples.last(("cpu", "application", each.name), now - FRESH)) is not None
        ]
        cores = suppress.allowed_cores(
            len(self._cpus),
            threshold.cpu_suppress_threshold_percent,
            threshold.cpu_suppress_min_percent,
            node,
            used,
            programs,
            len(reserved),
        )
        folder = self._cgroups.layout.qos(BEST_EFFORT)
        by_quota = threshold.cpu_suppress_policy == CFS_QUOTA
        if by_quota:
            self._widen(pods, reserved | system)
            before = self._cgroups.number(folder, QUOTA)
            after = suppress.next_quota(cores, before, len(self._cpus))
            if after != before:
                self._executor.update(Update(folder, QUOTA, after))
                self._executor.audit.record(1, _ADJUSTED, f"update BE group to cfs_quota: {after}", type="node")
        else:
            if self._suppressing != CPUSET:
                self._executor.update(Update(folder, QUOTA, NO_LIMIT))
            self._suppress_cpus(cores, pods, reserved | system)
        self._suppressing = CFS_QUOTA if by_quota else CPUSET

    def _suppress_cpus(self, cores: float, pods: Iterable[LocalPod], reserved: frozenset[int]) -> None:
        self._wide, folder = None, self._cgroups.layout.qos(BEST_EFFORT)
        before = parse_cpuset(self._cgroups.read(folder, CPUS))
        bound = self._bound(pods)
        count = suppress.wanted_cpus(cores, len(before), len(self._cpus))
        choice = suppress.chosen(
            self._cpus,
            count,
            exclusive=bound.get(LSE, frozenset()),
            shared_with=bound.get(LSR, frozenset()),
            reserved=reserved,
        )
        if choice and choice != before:
            self._set_cpus(choice)
            self._executor.audit.record(3, _ADJUSTED, f"update BE group to cpuset: {cpuset_text(choice)}", type="node")

    def _bound(self, pods: Iterable[LocalPod]) -> dict[str, frozenset[int]]:
        """The CPUs that are bound to pods, by Koordinator's class."""
        results: dict[str, frozenset[int]] = {}
        for pod in pods:
            if pod.active:
                try:
                    results[pod.raw_qos] = results.get(pod.raw_qos, frozenset()) | bound_cpus(pod)
                except (msgspec.MsgspecError, CpusetError) as error:
                    name = pod.pod.metadata.name
                    self._say((pod.uid, RESOURCE_STATUS), f"pod {name}: annotation {RESOURCE_STATUS}: {error}")
        return results

    def _set_cpus(self, cpus: Iterable[int]) -> None:
        """The CPUs of all best-effort groups: wider from above first, then narrower from below (CS-6)."""
        folder, text = self._cgroups.layout.qos(BEST_EFFORT), cpuset_text(cpus)
        self._executor.leveled(Update(each, CPUS, text) for each in (folder, *self._cgroups.children(folder)))

    def recover(self, pods: Iterable[LocalPod], reserved: frozenset[int]) -> None:
        """Take back what this agent, or one before it, suppresses."""
        if self._suppressing != "":
            self._suppressing = ""
            self._executor.update(Update(self._cgroups.layout.qos(BEST_EFFORT), QUOTA, NO_LIMIT))
        self._widen(pods, reserved)

    def _widen(self, pods: Iterable[LocalPod], reserved: frozenset[int]) -> None:
        """Best-effort pods get all CPUs but those of LSE pods and those that no pod gets (CS-8)."""
        cpus = frozenset(cpu.id for cpu in self._cpus) - reserved - self._bound(pods).get(LSE, frozenset())
        if cpus and cpus != self._wide:
            self._set_cpus(cpus)
            self._wide = cpus

    def forget(self, pod: LocalPod) -> None:
        """The pod is gone."""
        for key in [key for key in self._limiters if key[0] == pod.uid]:
            del self._limiters[key]

    # -- burst --------------------------------------------------------------------------------------------------------

    def burst(self, now: float, pods: Iterable[LocalPod], strategies: Strategies, ratio: float = 1.0) -> None:
        """Raise the quotas of throttled containers while the node has CPU to spare (CB-1 to CB-7).

        `ratio`: CPU normalization of the node, by which limits count for less.
        """
        pods = [pod for pod in pods if pod.active]
        request = 0
        for pod in pods:
            if pod.raw_qos in {LSE, LSR}:
                with contextlib.suppress(QuantityError):  # the API server refuses such pods
                    request += pod_requests(pod.pod.spec).get(CPU, 0)
        apart = [
            self._samples.last(("cpu", "pod", pod.uid), now - FRESH) for pod in pods if pod.raw_qos in {LSE, LSR, BE}
        ]
        state = burst.pool_state(
            strategies.burst.share_pool_threshold_percent,
            len(self._cpus),
            request / 1000,
            self._samples.last(NODE_CPU, now - FRESH),
            sum(used or 0.0 for used in apart),
        )
        for pod in pods:
            if pod.raw_qos not in {LSE, LSR, BE}:
                self._guarded(pod, partial(self._burst_pod, now, pod, strategies.burst, state, ratio))

    def _config(self, pod: LocalPod, config: BurstConfig) -> BurstConfig:
        """The node's settings with those of the pod's annotation on top."""
        text = pod.pod.metadata.annotations.get("koordinator.sh/cpuBurst", "")
        if not text:
            return config
        own = decode_as(text, dict[str, object])
        return msgspec.convert(msgspec.to_builtins(config) | own, BurstConfig)

    def _burst_pod(self, now: float, pod: LocalPod, node_config: BurstConfig, state: str, ratio: float) -> None:
        config, total = self._config(pod, node_config), 0
        bases = normalized_quotas(pod, ratio)
        for container in pod.pod.spec.containers:
            folder = pod.containers.get(container.name)
            limit = milli(container.resources.limits.get(CPU, 0)) / 1000
            if folder is None or not self._cgroups.exists(folder):
                continue
            saved = burst.burst_of(config, limit)
            total += saved
            if self._cgroups.path(folder, CPU_BURST).exists():
                self._executor.update(Update(folder, CPU_BURST, saved))
            quota = self._cgroups.number(folder, QUOTA)
            if limit <= 0 or quota <= 0:
                continue
            throttled = self._samples.last(("throttled", pod.uid, container.name), now - FRESH)
            allowed = self._allowed(now, pod, container.name, config, limit)
            base = bases.get(folder, limit * PERIOD) / PERIOD
            after = burst.next_quota(config, state, limit_cores=base, quota=quota, throttled=throttled, allowed=allowed)
            self._move(pod, folder, quota, after)
        if self._cgroups.path(pod.folder, CPU_BURST).exists():
            self._executor.update(Update(pod.folder, CPU_BURST, total))

    def _move(self, pod: LocalPod, folder: str, before: int, after: int) -> None:
        """Change a container's quota and its pod's by the same amount: the larger one first (CB-6)."""
        if after == before:
            return
        whole = self._cgroups.number(pod.folder, QUOTA)
        updates = [Update(folder, QUOTA, after)]
        if whole > 0:
            updates.append(Update(pod.folder, QUOTA, whole + after - before))
        self._executor.update(*(reversed(updates) if after > before else updates))

    def _allowed(self, now: float, pod: LocalPod, name: str, config: BurstConfig, limit: float) -> bool:
        period, percent = config.cfs_quota_burst_period_seconds, config.cfs_quota_burst_percent
        if period < 0:
            return True
        if percent < 100:
            return False
        key = (pod.uid, name)
        limiter, since = self._limiters.get(key, (None, now))
        if limiter is None or limiter.capacity != period * (percent - 100):
            limiter = Limiter(period, percent, self._dice.random() / 2)
        self._limiters[key] = (limiter, now)
        used = self._samples.last(("cpu", "pod", pod.uid), now - FRESH)
        usage = 100 if used is None else int(used * 100 / limit)
        return limiter.allow(usage, int(now - since))

    # -- pods ---------------------------------------------------------------------------------------------------------

    def pools(
        self, pods: Iterable[LocalPod], kubelet: KubeletCpus | None, reserved: frozenset[int] = frozenset()
    ) -> Pools:
        """The CPUs that pods without bound ones share; `reserved`: those that no pod gets."""
        return pools(self._cpus, reserved.union(*self._bound(pods).values()), kubelet)

    def cpus(self, pods: Iterable[LocalPod], applications: Iterable[HostApplication], shared: Pools) -> None:
        """The CPUs of containers and of programs outside of pods; pods with bound CPUs have no quota (HK-5, HK-6)."""
        for pod in pods:
            if pod.active:
                self._guarded(pod, partial(self._pod_cpus, pod, shared))
        for application in applications:
            if application.qos != LS:
                self._say((application.name, CPUS), f"only LS is supported for host application {application.name}")
            elif shared.all:
                self._executor.update(Update(application.folder(self._cgroups.layout), CPUS, cpuset_text(shared.all)))

    def lift_quota(self, pod: LocalPod) -> None:
        """A pod with bound CPUs has no quota: it would be throttled on CPUs that nobody else gets."""
        self._guarded(pod, partial(self._lift_quota, pod))

    def _lift_quota(self, pod: LocalPod) -> None:
        if bound_cpus(pod):
            self._executor.update(*(Update(each, QUOTA, NO_LIMIT) for each in (pod.folder, *pod.containers.values())))

    def _pod_cpus(self, pod: LocalPod, shared: Pools) -> None:
        cpus = pod_cpus(pod, shared)
        self._lift_quota(pod)
        if cpus:
            self._executor.update(*(Update(each, CPUS, cpuset_text(cpus)) for each in pod.containers.values()))

    def pods(self, pods: Iterable[LocalPod], strategies: Strategies, ratio: float) -> None:
        """Limits of best-effort pods, and group identities (HK-1 to HK-4, HK-7)."""
        classes = self._classes(strategies)
        for pod in pods:
            if pod.active:
                self._pod(pod, strategies, ratio, classes)
        if classes is not None:
            self._identities(strategies, classes)

    def pod(self, pod: LocalPod, strategies: Strategies, ratio: float) -> None:
        """The limits and the identity of one pod."""
        self._pod(pod, strategies, ratio, self._classes(strategies))

    def _pod(self, pod: LocalPod, strategies: Strategies, ratio: float, classes: Identities | None) -> None:
        if pod.raw_qos == BE:
            self._guarded(pod, partial(self._limits, pod, strategies.own_quotas, ratio))
        if classes is not None:
            self._identity(pod, strategies, classes)

    def _classes(self, strategies: Strategies) -> Identities | None:
        """None: the kernel has no group identity."""
        return identities(strategies.qos) if self._cgroups.path("", GROUP_IDENTITY).exists() else None

    def _limits(self, pod: LocalPod, quotas: bool, ratio: float) -> None:
        limits = batch_limits(pod.pod.metadata.annotations, quotas=quotas, ratio=ratio)
        folders = {"": pod.folder, **pod.containers}
        self._executor.leveled(
            Update(folder, file, value)
            for name, folder in folders.items()
            if name in limits
            for file, value in (
                (SHARES, limits[name].shares),
                (QUOTA, limits[name].quota),
                (MEMORY_LIMIT, limits[name].memory),
            )
        )

    def _identity(self, pod: LocalPod, strategies: Strategies, classes: Identities) -> None:
        value = classes.by_class.get(pod.raw_qos, classes.by_kubernetes[pod.kubernetes])
        if strategies.qos.policies.get("cpuPolicy") == "groupIdentity":
            value = own_identity(pod.pod.metadata.annotations, pod.raw_qos, value)
        for folder in (pod.folder, *pod.containers.values()):
            self._executor.update(Update(folder, GROUP_IDENTITY, value))

    def _identities(self, strategies: Strategies, classes: Identities) -> None:
        for kind in (GUARANTEED, BURSTABLE, BEST_EFFORT):
            self._executor.update(Update(self._cgroups.layout.qos(kind), GROUP_IDENTITY, classes.folders[kind]))
        for application in strategies.applications:
            value = classes.by_class.get(application.qos, 0)
            self._executor.update(Update(application.folder(self._cgroups.layout), GROUP_IDENTITY, value))

    def _guarded(self, pod: LocalPod, action: Callable[[], None]) -> None:
        """Do something for one pod: what cannot be read of it costs the others nothing."""
        try:
            action()
        except (CgroupError, CpusetError, QuantityError, msgspec.MsgspecError) as error:
            if self._cgroups.exists(pod.folder):
                self._say(pod.uid, f"pod {pod.pod.metadata.namespace}/{pod.pod.metadata.name}: {error}")
