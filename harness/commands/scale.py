"""`seatrial scale nodes`: another number of simulated nodes on a cluster that `seatrial up` started."""

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.backends import EMBEDDED, ENVTEST
from seatrial.harness.clusters.detached import Detached
from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.scale import (
    NodeShape,
    added_entries,
    check_no_pods,
    pods_by_node,
    remove_nodes,
    shape_of,
    simulated_nodes,
    surplus,
)
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import MAX_NODES, Entry, load_fleet

_SHAPE = re.compile(r"(?P<shape>[^=]+)=(?P<count>[0-9]{1,9})")  # Python refuses thousands of digits


def nodes(
    *shapes: str,
    name: str = detached.DEFAULT_NAME,
    force: Annotated[bool, Parameter(negative="")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Bring the number of simulated nodes of each shape to N; returns once new nodes are Ready.

    New nodes are copies of the last node of their shape, or of the fleet file's last one if there is none.
    Surplus nodes are removed: those without pods first, and of these the highest numbers. Nothing is changed if pods
    would be lost.

    Args:
        shapes: SHAPE=N, as in h100=20. SHAPE is the name of nodes without their number (h100 of h100-0, h100-1), or a
            server model of the catalogue.
        name: Name of the cluster.
        force: Remove nodes with their pods.
        json_: Print what was added and removed as JSON.
    """
    counts = _counts(shapes)
    up = _cluster_named(name)
    kubeconfig = Path(up.kubeconfig)
    with closing(EmbeddedCluster(up.backend, load_access(kubeconfig), kubeconfig)) as cluster:
        rows = _scale(cluster, counts, _fleet_entries(up.fleet), force=force)
    print(json.dumps(rows, indent=2) if json_ else "\n".join(map(_line, rows)))


def _counts(words: tuple[str, ...]) -> dict[str, int]:
    """
    Raises:
        UsageError: a word is not SHAPE=N, or a shape is there twice.
    """
    if not words:
        raise UsageError("scale nodes: expected SHAPE=N, as in h100=20")
    counts: dict[str, int] = {}
    for word in words:
        match = _SHAPE.fullmatch(word)
        if match is None:
            raise UsageError(f"scale nodes: expected SHAPE=N, found {word!r}")
        if match["shape"] in counts:
            raise UsageError(f"scale nodes: expected each shape once, found {match['shape']!r} twice")
        counts[match["shape"]] = int(match["count"])
        if counts[match["shape"]] > MAX_NODES:
            raise UsageError(f"scale nodes: expected at most {MAX_NODES} nodes, found {word}")
    return counts


def _cluster_named(name: str) -> Detached:
    """
    Raises:
        UsageError: no such cluster is up, or its nodes cannot be added and removed.
    """
    cluster = detached.find(name)
    if cluster is None:
        raise UsageError(f"no cluster {name!r} is up (up: {', '.join(detached.names()) or 'none'})")
    if cluster.backend not in {EMBEDDED, ENVTEST}:
        raise UsageError(
            f"scale nodes: expected a cluster of --backend {EMBEDDED} or {ENVTEST}, found {name!r} of"
            f" --backend {cluster.backend}"
        )
    return cluster


def _fleet_entries(fleet: str) -> list[Entry]:
    """The entries of the fleet that the cluster was started with; none without one, or if the file cannot be used."""
    try:
        return load_fleet(fleet) if fleet else []
    except UsageError:
        return []


def _scale(
    cluster: EmbeddedCluster, counts: dict[str, int], fleet: list[Entry], *, force: bool
) -> list[dict[str, Any]]:
    """Check all shapes, then add and remove nodes; what was done, for each shape."""
    there, pods = simulated_nodes(cluster), pods_by_node(cluster)
    plans: list[tuple[NodeShape, int, list[dict[str, Any]], list[str]]] = []
    for name, count in counts.items():
        shape = shape_of(name, there, fleet)
        removed = surplus(shape, count, pods)
        if not force:
            check_no_pods(f"{name}={count}", removed, pods)
        plans.append((shape, count, added_entries(shape, count), removed))
    rows = []
    for shape, count, added, removed in plans:
        cluster.add_nodes(added)
        lost = remove_nodes(cluster, f"{shape.name}={count}", removed, force=force)
        rows.append(
            {
                "shape": shape.name,
                "before": len(shape.members),
                "after": count,
                "added": [entry["name"] for entry in added],
                "removed": removed,
                "podsRemoved": lost,
            }
        )
    return rows


def _line(row: dict[str, Any]) -> str:
    if not row["added"] and not row["removed"]:
        return f"{row['shape']}: {row['after']} nodes, no change"
    parts = {"added": row["added"], "removed": row["removed"], "pods removed:": row["podsRemoved"]}
    text = "".join(f", {verb} {', '.join(names)}" for verb, names in parts.items() if names)
    return f"{row['shape']}: {row['before']} -> {row['after']} nodes{text}"
