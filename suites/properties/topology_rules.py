"""The oracle of network topology: the tree of domains, their room in members, and where a gang gathers.

Rules GANG-R47 to GANG-R58 of Koordinator's network topology, by their sentences, for gangs whose members are alike and
all of which have to be placed at once.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from seatrial.scheduler.api.extension import POD_GROUP_LABEL
from seatrial.scheduler.api.networktopology import DEFAULT_TOPOLOGY, GATHER_SPEC, NODE_LAYER
from seatrial.suites.properties.node_fit import constraints, free, objections
from seatrial.suites.properties.state import Change, Json, State, labels, name_of, node_of, noted, requests

ROOT = "ClusterTopologyLayer"
_Path = tuple[str, ...]  # names of a domain and those above it, topmost first; of a node the last is its own


def _layers(state: State) -> list[Json]:
    """From the top down to the layer above the nodes; empty if they are no chain, or there is no topology."""
    topology = state.topologies.get(DEFAULT_TOPOLOGY)
    if topology is None:
        return []
    entries = {entry["topologyLayer"]: entry for entry in topology["spec"]["networkTopologySpec"]}
    chain: list[Json] = []
    at = entries[NODE_LAYER].get("parentTopologyLayer", "")
    while at:
        chain.insert(0, entries[at])
        at = entries[at].get("parentTopologyLayer", "")
    return chain


def _paths(state: State) -> dict[str, _Path]:
    """Each node that is in the tree (GANG-R48, GANG-R49)."""
    layers, by_name = _layers(state), {}
    for name, node in state.nodes.items():
        names = [next((value for key in one["labelKey"] if (value := labels(node).get(key))), "") for one in layers]
        if names and not names[-1]:
            names[-1] = name
        if names and all(names):
            by_name[name] = (*names, name)
    return by_name


def _slots(state: State, member: Json, node: Json, size: int) -> int:
    """How many members of a gang of `size` fit on the node (GANG-R54)."""
    if list(constraints(member, node)):
        return 0
    amounts, room = requests(member) | {"pods": 1}, free(state, node, member)
    return max(0, min(size, *(room.get(key, 0) // value for key, value in amounts.items())))


def _domains(state: State, member: Json, size: int, depth: int) -> dict[_Path, int]:
    """The slots of the domains of a layer; `depth` layers from the top, with the nodes as the last."""
    by_path: dict[_Path, int] = defaultdict(int)
    for name, path in _paths(state).items():
        by_path[path[:depth]] += _slots(state, member, state.nodes[name], size)
    return by_path


def _depth(state: State, group: Json) -> int | None:
    """How deep the deepest layer with MustGather is; 0: the whole cluster; None: the gang names no known layers."""
    spec = noted(group, GATHER_SPEC)
    names = [*(layer["topologyLayer"] for layer in _layers(state)), NODE_LAYER]
    rules = spec["gatherStrategy"] if spec else []
    if len(names) == 1 or not rules or any(rule["layer"] not in names for rule in rules):
        return None
    return max((names.index(rule["layer"]) + 1 for rule in rules if rule["strategy"] == "MustGather"), default=0)


def _best(state: State, member: Json, size: int, depth: int) -> tuple[int, dict[_Path, int]]:
    """The deepest layer where a domain has room for the whole gang, and the domains there that have (GANG-R57)."""
    best: tuple[int, dict[_Path, int]] = depth, {}
    for deeper in range(depth, len(_layers(state)) + 2):
        kept = {path: slots for path, slots in _domains(state, member, size, deeper).items() if slots >= size}
        if kept:
            best = deeper, kept
    return best


def _members(state: State, group: str) -> list[Json]:
    return [pod for pod in state.pods.values() if labels(pod).get(POD_GROUP_LABEL) == group]


def topology_rules(before: State, after: State, change: Change) -> Iterator[str]:
    """The status lists the domains; a gang waits if and only if no domain has room, and gathers as it can."""
    yield from _of_status(after)
    for name, group in after.groups.items():
        members, size = _members(after, name), group["spec"]["minMember"]
        depth = _depth(after, group)
        if depth is None or len(members) != size or any(requests(pod) != requests(members[0]) for pod in members):
            continue
        waiting = [pod for pod in members if not node_of(pod)]
        if len(waiting) == size:
            _, rooms = _best(after, members[0], size, depth)
            if rooms:
                yield f"gang {name} waits although there is room for {size} members: {_shown(rooms)}"
        elif not any(node_of(before.pods.get(name_of(pod), {"spec": {}})) for pod in members):
            if waiting:
                yield f"of gang {name} {size - len(waiting)} members are bound, and {len(waiting)} wait"
            elif change is Change.ONE:
                yield from _of_bound(after, name, members, depth)
    for pod in after.waiting():
        homes = [name for name, node in after.nodes.items() if not list(objections(after, pod, node))]
        if POD_GROUP_LABEL not in labels(pod) and homes:
            yield f"pod {name_of(pod)} waits although nodes {homes} have room"


def _of_bound(after: State, name: str, members: list[Json], depth: int) -> Iterator[str]:
    gone = {name_of(pod) for pod in members}
    earlier = replace(after, pods={name: pod for name, pod in after.pods.items() if name not in gone})
    reached, rooms = _best(earlier, members[0], len(members), depth)
    paths = _paths(earlier)
    domains = {paths.get(node_of(pod), (f"{node_of(pod)}, outside of the tree",))[:reached] for pod in members}
    if not rooms or len(domains) > 1:
        yield f"gang {name} is in {sorted(domains)}, expected one of {_shown(rooms)}"
    elif rooms.get(next(iter(domains)), 0) != min(rooms.values()):
        yield f"gang {name} is in {sorted(domains)}, expected the fullest that has room, of {_shown(rooms)}"


def _of_status(state: State) -> Iterator[str]:
    topology = state.topologies.get(DEFAULT_TOPOLOGY)
    if topology is None:
        return
    names = [ROOT, *(layer["topologyLayer"] for layer in _layers(state))]
    expected: dict[tuple[str, str, str], int] = defaultdict(int)
    for path in _paths(state).values():
        for depth, layer in enumerate(names):
            full = ("", *path)
            expected[layer, full[depth], full[depth - 1] if depth else ""] += 1
    rows = (topology.get("status") or {}).get("detailStatus") or []
    results = {
        (
            row["topologyInfo"]["topologyLayer"],
            row["topologyInfo"].get("topologyName", ""),
            (row.get("parentTopologyInfo") or {}).get("topologyName", ""),
        ): row.get("nodeNum", 0)
        for row in rows
    }
    if {key: count for key, count in results.items() if count} != expected:
        yield f"the status of the topology has {results}, expected {dict(expected)} (layer, name, name above)"


def _shown(rooms: dict[_Path, int]) -> str:
    return ", ".join(f"{'/'.join(path) or 'the cluster'} ({slots})" for path, slots in sorted(rooms.items()))
