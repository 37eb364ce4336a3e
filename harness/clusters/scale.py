"""Node shapes on a running cluster: which simulated nodes are added or removed for another number of them.

A node shape is the name of nodes without their number, as in a fleet file: `h100` of h100-0 to h100-3.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from seatrial.fake_devices.models import CatalogError, catalog
from seatrial.harness.clusters.answers import accepted, listed
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.clusters.run_scope import NODES_OF_NO_RUN
from seatrial.harness.clusters.simulated import NODES, SimulatedNodes
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import ENTRY_ANNOTATION, Entry
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

_NUMBERED = re.compile(r"(?P<shape>.*?)(?P<dash>-?)(?P<number>[0-9]+)")
_ENDED = frozenset({"Succeeded", "Failed"})

PodsByNode = Mapping[str, Sequence[str]]  # node name → NAMESPACE/NAME of pods


@dataclass(frozen=True, slots=True)
class NodeShape:
    """The nodes of a node shape: their fleet entries by name, the highest number last.

    `like` is the entry that new nodes are copies of; None for an unknown one. `known` has the names of all node
    shapes of the cluster and of its fleet.
    """

    name: str
    members: dict[str, Entry]
    like: Entry | None
    known: tuple[str, ...]


def simulated_nodes(cluster: Cluster) -> list[dict[str, Any]]:
    """The simulated nodes of a cluster that belong to no run."""
    return listed(cluster.call, f"{NODES}?labelSelector={NODES_OF_NO_RUN.replace('=', '%3D')}")


def pods_by_node(cluster: Cluster) -> dict[str, list[str]]:
    """The pods that are lost with their nodes: not those that ended, are being deleted, or belong to a DaemonSet."""
    names: dict[str, list[str]] = {}
    for pod in listed(cluster.call, "/api/v1/pods"):
        meta, node = pod["metadata"], pod["spec"].get("nodeName")
        owned = any(owner["kind"] == "DaemonSet" for owner in meta.get("ownerReferences") or ())
        ended = (pod.get("status") or {}).get("phase") in _ENDED
        if node and not (owned or ended or meta.get("deletionTimestamp")):
            names.setdefault(node, []).append(f"{meta['namespace']}/{meta['name']}")
    return names


def shape_of(name: str, nodes: Iterable[Mapping[str, Any]], fleet: Iterable[Entry] = ()) -> NodeShape:
    """The node shape of that name among Node objects.

    Without a node, new ones are copies of the last entry of `fleet` that has this shape, or of a server model. A node
    whose whole name is that of the shape belongs to it, and is the last one.
    """
    fleet = [*fleet]
    entries = {node["metadata"]["name"]: _entry_of(node) for node in nodes}
    numbers: dict[str, float] = {}
    for node in entries:
        shape, number = _parts(node)
        if name in {node, shape}:
            numbers[node] = float("inf") if node == name or number is None else number
    members = {node: entries[node] for node in sorted(numbers, key=lambda node: (numbers[node], node))}
    alike = [*(entry for entry in fleet if _parts(entry["name"])[0] == name), *members.values()]
    return NodeShape(
        name, members, alike[-1] if alike else _server(name), tuple(sorted({_parts(node)[0] for node in entries}))
    )


def added_entries(shape: NodeShape, count: int) -> list[Entry]:
    """The entries of new nodes that make the shape `count` nodes; free numbers are taken, the lowest first.

    Raises:
        UsageError: the shape is not known.
    """
    if shape.like is None:
        raise UsageError(
            f"node shape {shape.name!r}: no node of the cluster or of its fleet has this name and a number (node"
            f" shapes: {', '.join(shape.known) or 'none'}), and the catalogue has no server model {shape.name!r}"
        )
    last = _NUMBERED.fullmatch(next(reversed(shape.members), "")) or _NUMBERED.fullmatch(shape.like["name"])
    dash = last["dash"] if last is not None and last["shape"] == shape.name else "-"
    width = max((len(match[0]) for node in shape.members if (match := re.search(r"0[0-9]+$", node))), default=0)
    names = (f"{shape.name}{dash}{number:0{width}}" for number in itertools.count())
    free = (name for name in names if name not in shape.members)
    return [{**shape.like, "name": name} for name in itertools.islice(free, max(0, count - len(shape.members)))]


def surplus(shape: NodeShape, count: int, pods: PodsByNode) -> list[str]:
    """The nodes to remove so that `count` remain: those with the fewest pods first, of these the highest numbers."""
    highest_first = [*reversed(shape.members)]
    ordered = sorted(highest_first, key=lambda node: len(pods.get(node, ())))
    return ordered[: max(0, len(ordered) - count)]


def check_no_pods(what: str, nodes: Iterable[str], pods: PodsByNode) -> None:
    """
    Raises:
        UsageError: nodes that are to be removed have pods; `what` is what was asked for, as `h100=2`.
    """
    lost = [f"{node} ({', '.join(pods[node])})" for node in nodes if pods.get(node)]
    if lost:
        raise UsageError(f"{what}: pods would be lost: {', '.join(lost)}; --force removes nodes with their pods")


def remove_nodes(cluster: SimulatedNodes, what: str, nodes: Sequence[str], *, force: bool) -> list[str]:
    """Remove nodes and their pods; return the pods that were removed.

    Without `force` the nodes are cordoned first, and their pods are looked up once more.

    Raises:
        UsageError: without `force`, a node has got a pod in the meantime; the nodes stay, without cordon.
    """
    if nodes and not force:
        for node in nodes:
            _cordon(cluster, node, on=True)
        try:
            check_no_pods(what, nodes, pods_by_node(cluster))
        except UsageError:
            for node in nodes:
                _cordon(cluster, node, on=False)
            raise
    pods = pods_by_node(cluster) if nodes else {}
    for node in nodes:
        cluster.remove_node(node)
    return [pod for node in nodes for pod in pods.get(node, ())]


def _cordon(cluster: Cluster, node: str, *, on: bool) -> None:
    patch = orjson.dumps({"spec": {"unschedulable": on or None}})
    accepted(cluster.call(Request("PATCH", f"{NODES}/{node}", patch, MERGE_PATCH)), f"cordon node {node!r}")


def _entry_of(node: Mapping[str, Any]) -> Entry:
    """The fleet entry in a Node's annotation, which anybody may have written; {} where it is none."""
    text = (node["metadata"].get("annotations") or {}).get(ENTRY_ANNOTATION) or "{}"
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        document = {}
    return {**(document if isinstance(document, dict) else {}), "name": node["metadata"]["name"]}


def _parts(node: str) -> tuple[str, int | None]:
    """The shape of a node and its number; the whole name and None for a name without a number."""
    match = _NUMBERED.fullmatch(node)
    return (match["shape"], int(match["number"])) if match is not None else (node, None)


def _server(name: str) -> Entry | None:
    """The entry of a server model of the catalogue; None if there is none of that name."""
    try:
        catalog().server(name)
    except CatalogError:
        return None
    return {"name": f"{name}-0", "server": name}
