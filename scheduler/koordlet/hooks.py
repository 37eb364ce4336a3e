"""What a container gets before the runtime makes it: the functions of the ten-second rounds, for one container.

Rules HK-5, HK-7, HK-8 and HK-12; group identity and limits of the pod are written to its group by the enforcer. Core
scheduling needs processes, and stays with the rounds, as at Koordinator.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from seatrial.scheduler.api.numa import CpusetError, cpuset_text
from seatrial.scheduler.api.quantity import QuantityError
from seatrial.scheduler.koordlet.cgroups import NO_LIMIT
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.oom_score import oom_score
from seatrial.scheduler.koordlet.pod_rules import batch_limits, bound_cpus, normalized, shares_cpus
from seatrial.scheduler.pods.qos import BE

CPUSET, BATCH, NORMALIZATION, OOM_SCORE = "CPUSetAllocator", "BatchResource", "CPUNormalization", "OOMScoreAdj"
ERRORS = (CpusetError, QuantityError, msgspec.MsgspecError)  # of annotations


@dataclass(frozen=True, slots=True)
class Setting:
    """A container and its node.

    `quota`: that which kubelet has asked for, in microseconds; 0: none is known. `quotas`: False where suppression is
    by quota, and best-effort pods have none of their own. `ratio`: CPU normalization of the node.
    """

    pod: LocalPod
    container: str
    quota: int = 0
    quotas: bool = True
    ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from what kubelet has asked for; None: nothing does. Microseconds, bytes, a list of CPUs."""

    shares: int | None = None
    quota: int | None = None
    memory: int | None = None
    cpus: str | None = None
    oom_score: int | None = None


def _batch(setting: Setting, changes: Changes) -> Changes:
    if setting.pod.raw_qos != BE:
        return changes
    annotations = setting.pod.pod.metadata.annotations
    limits = batch_limits(annotations, quotas=setting.quotas, ratio=setting.ratio).get(setting.container)
    if limits is None:
        return changes
    return replace(changes, shares=limits.shares, quota=limits.quota, memory=limits.memory)


def _bound(setting: Setting, changes: Changes) -> Changes:
    cpus = bound_cpus(setting.pod)
    return replace(changes, cpus=cpuset_text(cpus), quota=NO_LIMIT) if cpus else changes


def _normalized(setting: Setting, changes: Changes) -> Changes:
    if setting.ratio <= 1 or setting.quota <= 0 or not shares_cpus(setting.pod):
        return changes
    return replace(changes, quota=normalized(setting.quota, setting.ratio))


def _score(setting: Setting, changes: Changes) -> Changes:
    return replace(changes, oom_score=oom_score(setting.pod.pod.metadata.annotations, setting.container))


HOOKS: dict[str, Callable[[Setting, Changes], Changes]] = {  # by gate, in Koordinator's order
    CPUSET: _bound,
    BATCH: _batch,
    NORMALIZATION: _normalized,
    OOM_SCORE: _score,
}


def changes_by_hook(setting: Setting, enabled: Callable[[str], bool]) -> Iterator[Changes | Exception]:
    """The changes so far after each hook that is enabled, or why it has none: it stops no other."""
    result = Changes()
    for gate, hook in HOOKS.items():
        if enabled(gate):
            try:
                result = hook(setting, result)
                yield result
            except ERRORS as error:
                yield error
