"""Explanation of one pod: the status and the scores of each plugin for all nodes.

Runs the plain methods of plugins and uses no kept results, so it is slow. Only for debugging.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.engine.cluster_scope import outside
from seatrial.scheduler.engine.plugin_runner import PluginRunner
from seatrial.scheduler.engine.restoring import restore, share
from seatrial.scheduler.framework.extension_points import Scope
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import SKIPPED, CycleState
from seatrial.scheduler.framework.status import Status


@dataclass(slots=True)
class Scored:
    """A feasible node; `by_plugin` are weighted scores, and `total` is their sum."""

    node: str
    by_plugin: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.by_plugin.values())


@dataclass(frozen=True, slots=True)
class Explanation:
    """`feasible`: best first; `rejected`: by node, the status of the first filter that rejects it."""

    feasible: Sequence[Scored]
    rejected: dict[str, Status]


def explain(runner: PluginRunner, info: PodInfo) -> Explanation:
    """Run all plugins of the pod's profile for all nodes, in the present state."""
    nodes = sorted(runner.handle.cache, key=lambda node: node.name)
    if info.pod_class.invalid:
        wrong = Status.unresolvable(info.pod_class.invalid)
        return Explanation((), {node.name: wrong for node in nodes})
    closed = runner.closed_gate(info)
    if closed is not None:
        return Explanation((), {node.name: closed for node in nodes})
    state, skipped, allowed, allowed_by = CycleState(), set[str](), None, list[str]()
    for plugin in runner.pre_filters:
        status = plugin.pre_filter(state, info.pod)
        if status.skipped:
            skipped.add(plugin.name)
        elif not status.ok:
            return Explanation((), {node.name: status.by(plugin.name) for node in nodes})
        elif status.nodes is not None:
            allowed = status.nodes if allowed is None else allowed & status.nodes
            allowed_by.append(plugin.name)
    state[SKIPPED] = frozenset(skipped)
    restore(runner, state, info)
    feasible: list[NodeInfo] = []
    rejected: dict[str, Status] = {}
    for node in nodes:
        inside = allowed is None or node.name in allowed
        status = runner.check_with_nominated(state, info, node) if inside else outside(allowed_by)
        if status.ok:
            feasible.append(node)
        else:
            rejected[node.name] = status
    return Explanation(_scored(runner, info, state, feasible), rejected)


def _scored(runner: PluginRunner, info: PodInfo, state: CycleState, nodes: Sequence[NodeInfo]) -> list[Scored]:
    results = [Scored(node.name) for node in nodes]
    for plugin, weight in runner.scores if nodes else ():
        values = np.zeros(len(nodes), np.int64)
        if plugin.pre_score(state, info.pod):
            plugin.survey(state, info.pod, nodes)
            share(state)
            wide = plugin.scope is Scope.CLUSTER
            seen = [(state, node) if wide else as_seen(state, node) for node in nodes]
            values = np.array([plugin.score(there, info.pod, node) for there, node in seen], np.int64)
            if plugin.scope is Scope.CLUSTER or plugin.normalizer is not None:
                values = plugin.normalize(state, values)
        for scored, value in zip(results, values.tolist(), strict=True):
            scored.by_plugin[plugin.name] = value * weight
    return sorted(results, key=lambda scored: (-scored.total, scored.node))


def score_table(info: PodInfo, feasible: Sequence[Scored], top: int) -> str:
    """The best `top` nodes as a Markdown table, a column for each plugin."""
    plugins = sorted(feasible[0].by_plugin)
    head = ["#", "Pod", "Node", "Score", *plugins]
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- |" + " ---:|" * (len(plugins) + 1)]
    for number, scored in enumerate(feasible[:top]):
        cells = [number, info.key, scored.node, scored.total, *(scored.by_plugin[plugin] for plugin in plugins)]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)
