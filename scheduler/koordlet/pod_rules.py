"""What the groups of pods and containers get by class and annotation: shares, quotas, limits, identity.

Rules HK-1 to HK-4, HK-7 and HK-8 of Koordinator's pkg/koordlet/runtimehooks/hooks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from seatrial.scheduler.api.colocation import EXTENDED_RESOURCE_SPEC
from seatrial.scheduler.api.numa import LSE, LSR
from seatrial.scheduler.api.quantity import CPU, Quantity, amount, milli
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.koordlet.cgroups import GROUP_IDENTITY, NO_LIMIT, PERIOD
from seatrial.scheduler.koordlet.cpu_pools import bound_cpus
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.strategies import CpuQos, QosClass, QosStrategy
from seatrial.scheduler.pods.qos import BE, BEST_EFFORT, BURSTABLE, GUARANTEED, LS

LEAST_SHARES, MOST_SHARES, LEAST_QUOTA = 2, 262144, 1000
CPU_QOS = "koordinator.sh/cpuQOS"  # annotation of pods


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group gets: shares, quota in microseconds, bytes of memory; -1: no limit."""

    shares: int
    quota: int
    memory: int


def batch_limits(annotations: Mapping[str, str], *, quotas: bool = True, ratio: float = 1.0) -> dict[str, Limits]:
    """The limits of a best-effort pod under "", and of its containers by name (HK-7); empty without the annotation.

    Args:
        annotations: of the pod.
        quotas: False where suppression is by quota: then the pods' own are unlimited.
        ratio: CPU normalization of the node.

    Raises:
        QuantityError: an amount is not a quantity.
        msgspec.MsgspecError: the annotation is not of its form.
    """
    text = annotations.get(EXTENDED_RESOURCE_SPEC, "")
    if not text:
        return {}
    spec = decode_as(text, dict[str, dict[str, dict[str, dict[str, Quantity]]]])
    containers = spec.get("containers") or {}
    requests = {name: _amounts(container.get("requests") or {}) for name, container in containers.items()}
    limits = {name: _amounts(container.get("limits") or {}) for name, container in containers.items()}
    by_name = {name: _limits([requests[name]], [limits[name]], quotas=quotas, ratio=ratio) for name in containers}
    if containers:
        by_name[""] = _limits(list(requests.values()), list(limits.values()), quotas=quotas, ratio=ratio)
    return by_name


def _amounts(resources: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount(name, resources[name]) for name in (BATCH_CPU, BATCH_MEMORY) if name in resources}


def _limits(
    requests: Sequence[Mapping[str, int]], limits: Sequence[Mapping[str, int]], *, quotas: bool, ratio: float
) -> Limits:
    shares = sum(request.get(BATCH_CPU, 0) for request in requests) * 1024 // 1000
    quota = memory = NO_LIMIT
    if quotas and all(limit.get(BATCH_CPU) for limit in limits):
        quota = max(sum(limit[BATCH_CPU] for limit in limits) * PERIOD // 1000, LEAST_QUOTA)
        quota = normalized(quota, ratio)
    if all(limit.get(BATCH_MEMORY) for limit in limits):
        memory = sum(limit[BATCH_MEMORY] for limit in limits)
    return Limits(min(max(shares, LEAST_SHARES), MOST_SHARES), quota, memory)


def normalized(quota: int, ratio: float) -> int:
    """The quota on a node whose CPUs do more work (HK-8)."""
    return math.ceil(quota / ratio) if ratio > 1 and quota > 0 else quota


def shares_cpus(pod: LocalPod) -> bool:
    """Whether its quota depends on the ratio: it is LS or of no class, and no CPUs are bound to it (HK-8).

    Raises:
        CpusetError: the annotation of bound CPUs has no list of CPUs.
        msgspec.MsgspecError: the annotation is not of its form.
    """
    return pod.raw_qos in {LS, ""} and not bound_cpus(pod)


def normalized_quotas(pod: LocalPod, ratio: float) -> dict[str, int]:
    """The quotas of a pod and its containers by group on a node with this ratio (HK-8); those without a limit have
    none, and neither have pods whose quota does not depend on it.

    Raises:
        QuantityError: a limit is not a quantity.
        CpusetError: the annotation of bound CPUs has no list of CPUs.
        msgspec.MsgspecError: the annotation is not of its form.
    """
    if not shares_cpus(pod):
        return {}
    limits = {each.name: milli(each.resources.limits.get(CPU, 0)) * PERIOD // 1000 for each in pod.pod.spec.containers}
    result = {pod.folder: normalized(sum(limits.values()), ratio)} if all(limits.values()) else {}
    folders = {name: folder for name, folder in pod.containers.items() if limits.get(name)}
    return result | {folder: normalized(limits[name], ratio) for name, folder in folders.items()}


@dataclass(frozen=True, slots=True)
class Identities:
    """`cpu.bvt_warp_ns` by Koordinator's class, by Kubernetes' for pods without one, and of the folders (HK-1)."""

    by_class: Mapping[str, int]
    by_kubernetes: Mapping[str, int]
    folders: Mapping[str, int]


def identities(strategy: QosStrategy) -> Identities:
    """The identities of the classes; all 0 unless the policy is groupIdentity."""

    def value(of: QosClass) -> int:
        if strategy.policies.get("cpuPolicy") != "groupIdentity" or not of.cpu.enable:
            return 0
        return _identity(of.cpu.group_identity)

    lsr, ls, be = value(strategy.lsr), value(strategy.ls), value(strategy.be)
    return Identities(
        {LSE: lsr, LSR: lsr, LS: ls, BE: be},
        {GUARANTEED: lsr or ls, BURSTABLE: ls, BEST_EFFORT: be},
        {GUARANTEED: 0, BURSTABLE: ls, BEST_EFFORT: be},
    )


def own_identity(annotations: Mapping[str, str], qos: str, value: int) -> int:
    """The identity of a pod with the annotation `cpuQOS`, which counts for LS pods; without `enable` it is 0 (HK-2)."""
    text = annotations.get(CPU_QOS, "")
    if not text or qos != LS:
        return value
    try:
        own = decode_as(text, CpuQos)
    except msgspec.MsgspecError:
        return value
    return _identity(own.group_identity) if own.enable else 0


def _identity(value: int | None) -> int:
    """The identity, if the kernel has it."""
    return value if value is not None and GROUP_IDENTITY.low <= value <= GROUP_IDENTITY.high else 0
