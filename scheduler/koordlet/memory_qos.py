"""Protection, throttling and reclaim of memory by QoS class and annotation (CG-1 to CG-6).

Follows Koordinator's pkg/koordlet/qosmanager/plugins/cgreconcile. A kernel may lack files: `memory.min` to `.high` are
those of cgroup v2 and of Anolis, the others of Anolis alone.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from seatrial.scheduler.api.core import Container
from seatrial.scheduler.api.numa import LSE, LSR
from seatrial.scheduler.api.quantity import MEMORY, QuantityError, units
from seatrial.scheduler.api.slo import BATCH_MEMORY
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.koordlet.cgroups import (
    MEMORY_HIGH,
    MEMORY_LOW,
    MEMORY_MIN,
    MEMORY_PRIORITY,
    OOM_GROUP,
    PAGE_CACHE_ENABLE,
    PAGE_CACHE_SIZE,
    PAGE_CACHE_SYNC,
    PRIORITY_OOM,
    WMARK_MIN_ADJ,
    WMARK_RATIO,
    WMARK_SCALE,
    File,
    Layout,
)
from seatrial.scheduler.koordlet.executor import Update
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.strategies import MemoryQos, QosStrategy
from seatrial.scheduler.pods.qos import BE, BEST_EFFORT, BURSTABLE, GUARANTEED, LS
from seatrial.scheduler.pods.requests import pod_requests

ANNOTATION = "koordinator.sh/memoryQOS"
PAGE = 4096  # bytes
NONE = MemoryQos(
    min_limit_percent=0,
    low_limit_percent=0,
    throttling_percent=0,
    wmark_ratio=0,
    wmark_scale_permill=50,
    wmark_min_adj=0,
    priority_enable=0,
    priority=0,
    oom_kill_group=0,
)
_SENSITIVE = msgspec.structs.replace(NONE, wmark_ratio=95, wmark_scale_permill=20, wmark_min_adj=-25)
DEFAULTS = {LSE: _SENSITIVE, LSR: _SENSITIVE, LS: _SENSITIVE, BE: msgspec.structs.replace(_SENSITIVE, wmark_min_adj=50)}
_BY_KUBERNETES = {GUARANTEED: LSR, BURSTABLE: LS, BEST_EFFORT: BE}
_FIXED = {
    WMARK_RATIO: "wmark_ratio",
    WMARK_SCALE: "wmark_scale_permill",
    WMARK_MIN_ADJ: "wmark_min_adj",
    MEMORY_PRIORITY: "priority",
    PRIORITY_OOM: "priority_enable",
    OOM_GROUP: "oom_kill_group",
}
_OF_CLASSES = (MEMORY_PRIORITY, PRIORITY_OOM, OOM_GROUP)


class PodMemoryQos(MemoryQos, frozen=True, rename="camel"):
    """The annotation of a pod."""

    policy: str = ""


def class_config(qos: QosStrategy, name: str) -> MemoryQos:
    """The settings of a QoS class; neutral values where it is not enabled (NS-3)."""
    own = {LSE: qos.lsr, LSR: qos.lsr, LS: qos.ls, BE: qos.be}.get(name)
    return _overlaid(DEFAULTS[name], own.memory) if own is not None and own.memory.enable else NONE


def pod_config(annotations: Mapping[str, str], name: str, config: MemoryQos) -> MemoryQos:
    """The settings of a pod of a class (CG-5); `config`: those of the class. An unreadable annotation is none."""
    try:
        own = decode_as(annotations.get(ANNOTATION) or "{}", PodMemoryQos)
    except msgspec.MsgspecError:
        return config
    if own.policy == "none":
        return NONE
    return _overlaid(DEFAULTS.get(name, NONE) if own.policy == "auto" else config, own)


def _overlaid(below: MemoryQos, above: MemoryQos) -> MemoryQos:
    values = {name: getattr(above, name) for name in MemoryQos.__struct_fields__}
    return msgspec.structs.replace(below, **{name: value for name, value in values.items() if value is not None})


def protection(config: MemoryQos, request: int) -> dict[File, int]:
    """`memory.min` and `memory.low` for a request in bytes (CG-2)."""
    least, low = (request * (part or 0) // 100 for part in (config.min_limit_percent, config.low_limit_percent))
    return {MEMORY_MIN: least, MEMORY_LOW: max(low, least) if low > 0 else 0}


def high(config: MemoryQos, request: int, limit: int) -> int:
    """`memory.high` of a container (CG-3); `limit`: its own, or what the node offers to pods."""
    percent = config.throttling_percent or 0
    if percent == 0:
        return MEMORY_HIGH.high
    value = (request + (limit - request) * percent // 100) // PAGE * PAGE
    return max(value, protection(config, request)[MEMORY_MIN])


def page_cache(config: MemoryQos, limit: int | None) -> dict[File, int]:
    """The limit of a pod's page cache (CG-6); `limit`: of its memory. A size goes before a percentage."""
    size: int | None = None
    if config.page_cache_limit_size is not None:
        with contextlib.suppress(QuantityError):
            size = units(config.page_cache_limit_size)
            size = size if limit is None else min(size, limit)
    elif config.page_cache_limit_percent is not None and limit is not None:
        size = limit * config.page_cache_limit_percent // 100
    by_page_cache_enable = {} if size is None else {PAGE_CACHE_ENABLE: int(size > 0), PAGE_CACHE_SIZE: size}
    if size and config.page_cache_reclaim_sync is not None:
        by_page_cache_enable[PAGE_CACHE_SYNC] = int(config.page_cache_reclaim_sync)
    if config.page_cache_enable is not None:
        by_page_cache_enable[PAGE_CACHE_ENABLE] = int(config.page_cache_enable)
    return by_page_cache_enable


def updates(
    pods: Iterable[LocalPod],
    qos: QosStrategy,
    layout: Layout,
    allocatable: int,
    say: Callable[[LocalPod, Exception], None],
) -> Iterator[Update]:
    """The values of all groups, ordered from above: of classes, then of pods, then of containers (CG-1, CG-4).

    `allocatable`: bytes that the node offers to pods. `say` hears of a pod without values: its amounts are none.
    """
    sums = {kind: {MEMORY_MIN: 0, MEMORY_LOW: 0} for kind in _BY_KUBERNETES}
    below: list[list[Update]] = [[], []]
    for pod in pods:
        try:
            own, groups = _of_pod(pod, qos, allocatable)
        except QuantityError as error:
            say(pod, error)
            continue
        for file, value in own.items():
            for kind in {GUARANTEED, pod.kubernetes}:  # that of Guaranteed is above the two others
                sums[kind][file] += value
        for level, new in zip(below, groups, strict=True):
            level.extend(new)
    for kind, name in _BY_KUBERNETES.items():
        values = {**sums[kind], **_fixed(class_config(qos, name), _OF_CLASSES)}
        yield from (Update(layout.qos(kind), file, value) for file, value in values.items())
    yield from below[0]
    yield from below[1]


def _of_pod(pod: LocalPod, qos: QosStrategy, allocatable: int) -> tuple[dict[File, int], tuple[list[Update], ...]]:
    """The protection of a pod, and the values of its group and of its containers'.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    resource = BATCH_MEMORY if pod.raw_qos == BE else MEMORY
    config = pod_config(pod.pod.metadata.annotations, pod.qos, class_config(qos, pod.qos))
    fixed = _fixed(config, _FIXED)
    own = protection(config, pod_requests(pod.pod.spec).get(resource, 0))
    limits = [_amount(each.resources.limits, resource) for each in pod.pod.spec.containers]
    values = {**own, **fixed, **page_cache(config, sum(limits) if all(limits) else None)}
    inside: list[Update] = []
    for container in pod.pod.spec.containers:
        if folder := pod.containers.get(container.name):
            of_container = {**_container(container, resource, config, allocatable), **fixed}
            inside += [Update(folder, file, value) for file, value in of_container.items()]
    return own, ([Update(pod.folder, file, value) for file, value in values.items()], inside)


def _fixed(config: MemoryQos, files: Iterable[File]) -> dict[File, int]:
    """What is the same for all groups of a pod."""
    return {file: getattr(config, _FIXED[file]) or 0 for file in files}


def _container(container: Container, resource: str, config: MemoryQos, allocatable: int) -> dict[File, int]:
    request, limit = (_amount(each, resource) for each in (container.resources.requests, container.resources.limits))
    return {**protection(config, request), MEMORY_HIGH: high(config, request, limit or allocatable)}


def _amount(resources: Mapping[str, str | int | float], name: str) -> int:
    return units(resources[name]) if name in resources else 0
