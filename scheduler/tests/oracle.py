"""The slow reference: the same plugins asked node by node, nothing kept from one decision to the next.

What plugins count over the cluster as pods come and go is counted anew from the pods there are.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.tallies import Tallies
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.engine.restoring import restore, share
from seatrial.scheduler.engine.runner import Runner
from seatrial.scheduler.framework.extension_points import Scope, Score
from seatrial.scheduler.framework.fit_error import histogram
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import SKIPPED, CycleState
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.coscheduling.topology.selector import SelectorPeers
from seatrial.scheduler.plugins.interpodaffinity.terms import HeldTerms


@dataclass(frozen=True)
class Verdict:
    """What should happen to a pod: its node, or the message that says why there is none."""

    node: str = ""
    message: str = ""


COUNTED = frozenset({Tallies, HeldTerms, SelectorPeers})


@contextmanager
def counting_anew(core: Core) -> Iterator[None]:
    """Plugins find nothing counted that they share, and what they count now is forgotten afterwards."""
    handle, cache = core.handle, core.cache
    shared, listeners = handle._shared, cache._listeners
    handle._shared = {kind: result for kind, result in shared.items() if kind not in COUNTED}
    cache._listeners = []
    try:
        yield
    finally:
        handle._shared, cache._listeners = shared, listeners


def judge(core: Core, runner: Runner, info: PodInfo) -> Verdict:
    """Decide about one pod from scratch."""
    with counting_anew(core):
        return _judge(core, runner, info)


def statuses(core: Core, runner: Runner, info: PodInfo) -> tuple[CycleState, list[tuple[NodeInfo, Status]]]:
    """What the filters say of every node, and the state of the cycle; all nodes alike if a PreFilter says no."""
    nodes = sorted(core.cache, key=lambda node: node.row)
    if info.pod_class.invalid:
        return CycleState(), [(node, Status.unresolvable(info.pod_class.invalid)) for node in nodes]
    closed = runner.closed_gate(info)
    if closed is not None:
        return CycleState(), [(node, Status.unresolvable(*closed.reasons)) for node in nodes]
    state, skipped, allowed, allowed_by = CycleState(), set[str](), None, list[str]()
    for plugin in runner.pre_filters:
        status = plugin.pre_filter(state, info.pod)
        if status.skipped:
            skipped.add(plugin.name)
        elif not status.ok:
            # Whatever its code, there is nothing that a pod's going would change about it.
            return state, [(node, Status.unresolvable(*status.reasons)) for node in nodes]
        elif status.nodes is not None:
            allowed = status.nodes if allowed is None else allowed & status.nodes
            allowed_by.append(plugin.name)
    state[SKIPPED] = frozenset(skipped)
    restore(runner, state, info)
    outside = Status.unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(allowed_by))}]")
    return state, [
        (node, runner.check_with_nominated(state, info, node) if allowed is None or node.name in allowed else outside)
        for node in nodes
    ]


def _judge(core: Core, runner: Runner, info: PodInfo) -> Verdict:
    state, results = statuses(core, runner, info)
    if not results:
        return Verdict(message="no nodes available to schedule pods")
    if SKIPPED not in state:
        return Verdict(message=f"0/{len(results)} nodes are available: {results[0][1].message}.")
    feasible = [node for node, status in results if status.ok]
    if not feasible:
        reasons = histogram((status, 1) for _, status in results)
        return Verdict(message=f"0/{len(results)} nodes are available: {reasons}.")
    own = core.handle.nominator.node_of(info.uid)
    if own in {node.name for node in feasible}:
        return Verdict(node=own)
    totals = np.zeros(len(feasible), np.int64)
    common_ties = False
    for score, weight in runner.scores:
        if score.pre_score(state, info.pod):
            totals += scores(score, state, info, feasible) * weight
            common_ties |= score.common_ties
    ties = core.cache.columns.ties
    salt = 0 if common_ties else ties.salt(info.pod_class.digest)
    ranks = [ties.rank(node.name) ^ salt for node in feasible]
    best = max(range(len(feasible)), key=lambda index: (totals[index], ranks[index]))
    return Verdict(node=feasible[best].name)


def scores(plugin: Score, state: CycleState, info: PodInfo, nodes: list[NodeInfo]) -> Ints:
    """One plugin's scores, normalised, a node each."""
    if plugin.scope is Scope.CLUSTER:
        plugin.survey(state, info.pod, nodes)
        return plugin.normalize(state, np.array([plugin.score(state, info.pod, node) for node in nodes], np.int64))
    share(state)
    seen = [as_seen(state, node) for node in nodes]
    raw = np.array([plugin.score(there, info.pod, node) for there, node in seen], np.int64)
    if plugin.normalizer is None:
        return raw
    highest = int(raw.max())
    return np.array([plugin.normalizer.one(int(value), highest) for value in raw], np.int64)


def judge_group(
    core: Core, members: Sequence[Pod], satisfied: Callable[[Sequence[Pod]], bool]
) -> dict[str, str] | None:
    """The node of each member by uid if a Strict group is placed from scratch, one member after another.

    `core` has the cluster without the members, and is changed. `satisfied`: whether these members are enough. None:
    the group is not bound.
    """
    placed: list[Pod] = []
    nodes: dict[str, str] = {}
    for pod in members:
        info = PodInfo(pod, core.cache.classes.of(pod))
        runner = core.runners.of(info)
        verdict = judge(core, runner, info)
        if not verdict.node:
            return None
        with counting_anew(core):
            state, _ = statuses(core, runner, info)
        if not runner.reserve(state, pod, verdict.node).ok:
            return None
        core.cache.assume(info, verdict.node)
        nodes[pod.metadata.uid] = verdict.node
        placed.append(pod)
        if satisfied(placed):
            return nodes
    return None
