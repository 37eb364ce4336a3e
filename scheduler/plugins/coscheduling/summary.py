"""The answer of the services API about one gang: Koordinator's GangSummary, with what is wrong in words."""

from collections.abc import Iterable
from typing import Any

from seatrial.scheduler.api.podgroup import topology_index_note
from seatrial.scheduler.plugins.coscheduling.cache import GangCache
from seatrial.scheduler.plugins.coscheduling.gang import Gang
from seatrial.scheduler.plugins.coscheduling.topology.tree import NetworkTopology


def summary_of(cache: GangCache, gang: Gang) -> dict[str, Any]:
    """Koordinator's fields; `scheduleCycle`, `notes`, `incomplete` and `lastFailure` are ours."""
    group = gang.group
    return {
        "name": gang.id,
        "waitTime": round(gang.wait * 1e9),
        "createTime": gang.created,
        "mode": gang.mode,
        "gangMatchPolicy": gang.policy,
        "minRequiredNumber": gang.minimum,
        "totalChildrenNum": gang.total,
        "gangGroup": list(group.ids),
        "children": _keys(gang, gang.children),
        "pendingChildren": _keys(gang, gang.pending),
        "waitingForBindChildren": _keys(gang, gang.waiting),
        "boundChildren": _keys(gang, gang.bound),
        "onceResourceSatisfied": group.satisfied,
        "gangGroupInfo": {"gangGroupID": group.id, "representativePodKey": group.representative_key},
        "gangFrom": "GangFromPodGroupCrd" if gang.from_object else "GangFromPodAnnotation",
        "hasGangInit": gang.initialised,
        "scheduleCycle": group.cycle,
        "incomplete": cache.incomplete(group) or "",
        "lastFailure": group.message,
        "gathering": group.gathering,
        "notes": [*gang.notes, *sorted(note for pod in gang.children.values() if (note := topology_index_note(pod)))],
    }


def topology_summary(topology: NetworkTopology) -> dict[str, Any]:
    """The tree of network domains, what is wrong with its object, and the nodes that are left out."""
    return {
        "layers": [layer.name for layer in topology.layers or ()],
        "problem": topology.problem if topology.ready else topology.absence,
        "detailStatus": topology.detail(),
        "nodesWithoutLayer": dict(sorted(topology.missing.items())),
    }


def _keys(gang: Gang, uids: Iterable[str]) -> dict[str, dict[str, str]]:
    return {key: {} for key in sorted(gang.children[uid].metadata.key for uid in uids if uid in gang.children)}
