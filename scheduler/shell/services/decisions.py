"""Kept decisions as JSON, and the room that a pod lacks on nodes."""

from collections.abc import Mapping
from itertools import islice
from operator import mul
from typing import Any

from seatrial.scheduler.api.clock import read_time, rfc3339
from seatrial.scheduler.api.integers import MAX_INT32, integer
from seatrial.scheduler.api.quantity import text as quantity
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.resources import BY_CLAIM
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.framework.kept_decisions import KeptDecision, Ranking
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.serving.routes import Answer, RequestContext, json

FIT = "NodeResourcesFit"


def decisions(core: Core, request: RequestContext) -> Answer:
    """Kept decisions, newest first; with `pod=NAMESPACE/NAME` those of one pod, with `limit` no more than so many."""
    pod, limit = request.query.get("pod"), integer(request.query.get("limit", ""), 0, MAX_INT32)
    kept = core.handle.kept
    matching = (each for each in kept if pod is None or f"{each.namespace}/{each.name}" == pod)
    results = [decision_view(each) for each in islice(matching, limit)]
    return json({"size": kept.size, "kept": len(kept), "decisions": results})


def placement_of(core: Core, info: PodInfo) -> dict[str, Any] | None:
    """The decision that put a pod on its node; None if it is not kept."""
    for each in core.handle.kept:
        if each.uid == info.uid and each.node:
            return decision_view(each) if each.node == info.node_name else None
    return None


def decision_view(kept: KeptDecision) -> dict[str, Any]:
    """One decision; `exact` false: the node's score is at most this number.

    `plugins` has name and weight of each plugin, and `scores` of a node their raw and normalized scores, in the same
    order; None and empty if they are not kept.
    """
    created = read_time(kept.created)
    return {
        "pod": {"namespace": kept.namespace, "name": kept.name, "uid": kept.uid},
        "time": rfc3339(kept.time),
        "secondsSinceCreation": None if created is None else round(kept.time - created, 3),
        "node": kept.node,
        "message": kept.message,
        **({"plugins": None, "best": [], "rejected": []} if kept.ranking is None else _ranking_view(kept.ranking)),
    }


def _ranking_view(ranking: Ranking) -> dict[str, Any]:
    names, totals, bounds, by_node, by_others, filters, table = ranking
    plugins, weights, numbers = table or ((), (), ())
    pairs = iter(zip(numbers[::2], numbers[1::2], strict=True))
    scores = [list(islice(pairs, len(plugins))) for _ in names]
    if table is not None:  # they are exact, also where the key was a bound
        totals, bounds = tuple(sum(map(mul, weights, [one for _, one in each])) for each in scores), 0
    return {
        "plugins": table
        and [{"plugin": plugin, "weight": weight} for plugin, weight in zip(plugins, weights, strict=True)],
        "best": [
            {"node": name, "score": total, "exact": not bounds >> place & 1, "scores": of_node}
            for place, (name, total, of_node) in enumerate(zip(names, totals, scores, strict=True))
        ],
        "rejected": [
            {"plugins": plugins, "nodes": count}
            for plugins, count in zip(filters, (by_node, by_others), strict=True)
            if count
        ],
    }


def lacking_room(core: Core, info: PodInfo, rejected: Mapping[str, Status]) -> list[dict[str, str]]:
    """What the pod lacks on the node that comes nearest, of the nodes that only have too little room for it.

    For each resource that is short there: the amount asked, and the most that is free on one of these nodes. The
    nearest node lacks the smallest share of what is asked.
    """
    nodes = [
        node
        for name, status in rejected.items()
        if status.plugin == FIT and (node := core.cache.find(name)) is not None
    ]
    matches = [(name, column, amount) for name, column, amount in info.pod_class.named if amount]
    if not nodes or not matches:
        return []

    def lacks(node: NodeInfo) -> float:
        return sum(max(0, amount - _free(node, column)) / amount for _, column, amount in matches)

    nearest = min(nodes, key=lambda node: (lacks(node), node.name))
    lacking = []
    for name, column, amount in matches:
        if _free(nearest, column) >= amount:
            continue
        most = min(nodes, key=lambda node: (-_free(node, column), node.name))
        lacking.append(
            {
                "resource": name,
                "asked": quantity(name, amount),
                "free": quantity(name, max(0, _free(nearest, column))),
                "nearest": nearest.name,
                "mostFree": quantity(name, max(0, _free(most, column))),
                "mostFreeOn": most.name,
            }
        )
    return lacking


def _free(node: NodeInfo, column: int) -> int:
    offered = node.allocatable[column] if column < len(node.allocatable) else 0
    taken = node.requested[column] if column < len(node.requested) else 0
    return offered if offered == BY_CLAIM else offered - taken
