"""Writes what groups and the kernel are to have by class and annotation, every ten seconds, where a gate allows it."""

import logging
from collections.abc import Callable, Iterable

import msgspec

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import CpusetError
from seatrial.scheduler.api.quantity import MEMORY, QuantityError, units
from seatrial.scheduler.koordlet import blkio, memory_qos
from seatrial.scheduler.koordlet.cgroups import CPU_IDLE, PROCESSES, QUOTA, CgroupError
from seatrial.scheduler.koordlet.core_sched import POLICY, Cookies, CoreScheduling
from seatrial.scheduler.koordlet.executor import Executor, Update
from seatrial.scheduler.koordlet.hooks import NORMALIZATION, OOM_SCORE
from seatrial.scheduler.koordlet.machine import Machine, MachineError
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.oom_score import oom_score
from seatrial.scheduler.koordlet.pod_rules import normalized_quotas
from seatrial.scheduler.koordlet.strategies import Strategies
from seatrial.scheduler.koordlet.system_config import SystemConfig
from seatrial.scheduler.pods.qos import BEST_EFFORT, BURSTABLE
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

CGROUPS, SYSTEM, BLKIO, CORE_SCHED = "CgroupReconcile", "SystemConfig", "BlkIOReconcile", "CoreSched"
GATES = (CGROUPS, SYSTEM, NORMALIZATION, OOM_SCORE, BLKIO, CORE_SCHED)


class Reconciler:
    """Remembers which quotas it has normalized."""

    def __init__(self, executor: Executor, machine: Machine, cookies: Cookies, enabled: Callable[[str], bool]) -> None:
        """`enabled`: whether a feature is switched on."""
        self._executor, self._cgroups, self._machine, self._enabled = executor, executor.cgroups, machine, enabled
        self._system = SystemConfig(machine)
        self._blkio = blkio.Blkio(executor.cgroups, machine.sys)
        self._core = CoreScheduling(executor.cgroups, cookies)
        self._quotas: dict[str, dict[str, int]] = {}  # uid → quotas by group
        self._say = Once(log)

    def reconcile(self, pods: Iterable[LocalPod], strategies: Strategies, node: Node, ratio: float) -> None:
        """Write what differs; `ratio`: CPU normalization of the node."""
        pods = [pod for pod in pods if pod.active]
        try:
            if self._enabled(CGROUPS):
                self._memory(pods, strategies, node)
            if self._enabled(SYSTEM):
                self._system.reconcile(strategies.system)
        except (MachineError, QuantityError) as error:
            self._say("", f"reconcile: {error}")
        if self._enabled(NORMALIZATION):
            self._normalize(pods, ratio)
        if self._enabled(OOM_SCORE):
            self._scores(pods)
        if self._enabled(BLKIO) and not self._cgroups.v2:
            self._blkio.reconcile(pods, strategies.qos)
        if self._enabled(CORE_SCHED):
            self._core.reconcile(pods, strategies.qos)
            self._idle(strategies)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._quotas.pop(uid, None)

    def _memory(self, pods: list[LocalPod], strategies: Strategies, node: Node) -> None:
        offer = node.status.allocatable.get(MEMORY)
        allocatable = self._machine.memory().total if offer is None else units(offer)
        updates = memory_qos.updates(pods, strategies.qos, self._cgroups.layout, allocatable, self._say_of)
        self._executor.leveled(each for each in updates if self._cgroups.path(each.folder, each.file).exists())

    def _normalize(self, pods: list[LocalPod], ratio: float) -> None:
        """Write quotas when the ratio or the containers change: in between they are those of bursts."""
        for pod in pods:
            try:
                quotas = normalized_quotas(pod, ratio)
            except (QuantityError, CpusetError, msgspec.MsgspecError) as error:
                self._say_of(pod, error)
                continue
            if quotas != self._quotas.get(pod.uid, quotas if ratio <= 1 else None):
                self._executor.leveled(Update(folder, QUOTA, quota) for folder, quota in quotas.items())
            self._quotas[pod.uid] = quotas

    def _say_of(self, pod: LocalPod, error: Exception) -> None:
        self._say(pod.uid, f"pod {pod.pod.metadata.namespace}/{pod.pod.metadata.name}: {error}")

    def _idle(self, strategies: Strategies) -> None:
        """Classes whose tasks run only where a CPU would be idle."""
        qos = strategies.qos
        on = qos.policies.get("cpuPolicy") == POLICY
        for kind, own in ((BURSTABLE, qos.ls), (BEST_EFFORT, qos.be)):
            folder = self._cgroups.layout.qos(kind)
            if self._cgroups.path(folder, CPU_IDLE).exists():
                value = own.cpu.sched_idle or 0 if on and own.cpu.enable else 0
                self._executor.update(Update(folder, CPU_IDLE, value))

    def _scores(self, pods: list[LocalPod]) -> None:
        for pod in pods:
            for name, folder in pod.containers.items():
                score = oom_score(pod.pod.metadata.annotations, name)
                if score is not None:
                    self._score(folder, score)

    def _score(self, folder: str, score: int) -> None:
        """Write the score of a container's processes; those that have ended meanwhile are no error."""
        try:
            processes = self._cgroups.read(folder, PROCESSES).split()
        except CgroupError:
            return
        for process in filter(str.isdigit, processes):
            path = self._machine.proc / process / "oom_score_adj"
            try:
                if integer(path.read_text(encoding="ascii").strip()) != score:
                    path.write_text(str(score), encoding="ascii")
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError as error:
                self._say(folder, f"{path}: {error.strerror}")
