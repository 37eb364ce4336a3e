"""Invariants of a node agent, judged by the pods of its node, their control groups and its events.

They hold for any agent that enforces a NodeSLO; a case that runs one over a fake root judges them after each step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from seatrial.harness.apiserver.quantities import QuantityError, amount
from seatrial.harness.cpusets import CpusetError, parse_cpuset
from seatrial.scheduler.api.colocation import EXTENDED_RESOURCE_SPEC
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.numa import LSE, PRIORITY_CLASS_LABEL, PROD, QOS_LABEL, RESOURCE_STATUS, decode_status
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY
from seatrial.scheduler.api.wire import decode_as

EVICTION_ENABLED = "koordinator.sh/eviction-enabled"  # label of pods that agree to be evicted
PROD_PRIORITIES = range(9000, 10_000)


@dataclass(frozen=True, slots=True)
class AgentView:
    """A node when its agent has seen everything.

    Attributes:
        pods: those that were started on the node, by uid; evicted ones too.
        best_effort_cpus: lists of CPUs by group, of the class BestEffort and what is below it.
        suppressing: whether the settings ask for suppression by CPUs.
        evicted: uids of pods whose eviction the agent has reported.
        quotas: what the group of a best-effort pod has by its uid: shares, microseconds of quota, bytes of memory; only
            of pods that the agent has seen for a round of its rules.
        lifted: whether the settings suppress by quota, so that these pods have none of their own.
    """

    pods: Mapping[str, Pod] = field(default_factory=dict)
    best_effort_cpus: Mapping[str, str] = field(default_factory=dict)
    suppressing: bool = False
    evicted: frozenset[str] = frozenset()
    quotas: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    lifted: bool = False


@dataclass(frozen=True, slots=True)
class AgentInvariant:
    """Holds for a node whose agent has seen everything; `check` yields each breach in words."""

    id: str
    title: str
    check: Callable[[AgentView], Iterator[str]]


def _exclusive_cpus(view: AgentView) -> Iterator[str]:
    if not view.suppressing:
        return
    for uid, pod in view.pods.items():
        text = pod.metadata.annotations.get(RESOURCE_STATUS, "")
        if pod.metadata.labels.get(QOS_LABEL) != LSE or not text or uid in view.evicted:
            continue
        try:
            own = parse_cpuset(decode_status(text).cpuset)
            for group, cpus in view.best_effort_cpus.items():
                common = own & parse_cpuset(cpus)
                if common:
                    yield f"group {group} has CPUs {sorted(common)}, which are those of pod {pod.metadata.key} alone"
        except (CpusetError, msgspec.MsgspecError):
            continue  # AUD-301


def _no_prod_victim(view: AgentView) -> Iterator[str]:
    for uid in sorted(view.evicted):
        pod = view.pods.get(uid)
        if pod is None or pod.metadata.labels.get(EVICTION_ENABLED) == "true":
            continue
        named = pod.metadata.labels.get(PRIORITY_CLASS_LABEL)
        if named == PROD or (named is None and pod.spec.priority in PROD_PRIORITIES):
            yield f"prod pod {pod.metadata.key} is evicted and has no label {EVICTION_ENABLED}"


def _other_quotas(view: AgentView) -> Iterator[str]:
    for uid, written in view.quotas.items():
        pod = view.pods[uid]
        try:
            spec = decode_as(pod.metadata.annotations[EXTENDED_RESOURCE_SPEC], dict[str, Any])
            parts = [_limits(each) for each in spec["containers"].values()]
        except (QuantityError, msgspec.MsgspecError, KeyError, AttributeError):
            continue  # the annotation is not readable: the agent leaves the pod as it is
        request = sum(each.request for each in parts)
        cores = [each.cpu for each in parts]
        sizes = [each.memory for each in parts]
        shares = min(max(request * 1024 // 1000, 2), 262_144)
        quota = -1 if view.lifted or -1 in cores else max(sum(cores) * 100, 1000)
        expected = (shares, quota, -1 if -1 in sizes else sum(sizes))
        if written != expected:
            yield f"pod {pod.metadata.key} has shares, quota and memory {written}, and its annotation says {expected}"


class _Limits(NamedTuple):
    request: int  # thousandths of a core
    cpu: int  # likewise; -1: no limit
    memory: int  # bytes; -1: no limit


def _limits(container: Mapping[str, Any]) -> _Limits:
    limits, requests = container.get("limits") or {}, container.get("requests") or {}
    cpu, memory = (amount(name, limits[name]) if limits.get(name) else -1 for name in (BATCH_CPU, BATCH_MEMORY))
    return _Limits(amount(BATCH_CPU, requests.get(BATCH_CPU, 0)), cpu, memory)


AGENT_INVARIANTS: Sequence[AgentInvariant] = (
    AgentInvariant("AUD-701", "Best-effort groups have no CPU of an LSE pod", _exclusive_cpus),
    AgentInvariant("AUD-702", "The node agent evicts no prod pod without the label for it", _no_prod_victim),
    AgentInvariant("AUD-704", "Shares, quota and memory of batch pods are those of their annotation", _other_quotas),
)


def agent_breaches(view: AgentView) -> list[str]:
    """All breaches, each with the ID and the title of its invariant."""
    return [f"{each.id} {each.title}: {text}" for each in AGENT_INVARIANTS for text in each.check(view)]
