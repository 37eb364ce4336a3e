"""The tree of network domains, from the ClusterNetworkTopology `default` and the labels of nodes.

A change of a node changes one row of a column; the tree is not rebuilt. A domain is identified by its path from the
root, so that two blocks of the same name below different spines are two domains (GANG-D7).

Levels: 0 is the root, then one for each layer above the nodes, and the last one is the nodes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.networktopology import CLUSTER_LAYER, DEFAULT_TOPOLOGY, NODE_LAYER, ClusterNetworkTopology
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.columns import Ints, NodeColumns
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.coscheduling.topology.layers import Layer, LayersError, chain

COLUMN = "NetworkTopology/domains"  # [layer, node]: the domain in each layer above the nodes; -1: not in the tree
NONE_THERE = "no cluster network topology"

Path = tuple[str, ...]


@dataclass(slots=True)
class _Level:
    """The domains of one layer above the nodes. A domain without nodes keeps its number."""

    ids: dict[Path, int] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # nodes


@dataclass(frozen=True, slots=True)
class TreeView:
    """The tree as arrays, by level; row: the row of a node in `NodeColumns`.

    `domains`: [row], the domain of each row in each level, -1 outside the tree; of the last level: the row itself.
    `parents`: [domain], the domain above, for all levels but the root. `ranks`: [domain], the order of names.
    """

    layers: tuple[str, ...]
    domains: list[Ints]
    parents: list[Ints]
    ranks: list[Ints]
    paths: list[list[Path]]

    @property
    def bottom(self) -> int:
        """The level of the nodes."""
        return len(self.layers) - 1

    def name(self, level: int, domain: int) -> str:
        """`Layer/name` of a domain, as in messages."""
        path = self.paths[level][domain]
        return f"{self.layers[level]}/{path[-1] if path else ''}"

    def rows(self, level: int, domain: int) -> Ints:
        """The rows of all nodes in a domain."""
        rows: Ints = np.flatnonzero(self.domains[level] == domain)
        return rows


def not_read(name: str) -> str:
    """What is wrong with an object of another name; upstream ignores it without a word."""
    return f"expected the name {DEFAULT_TOPOLOGY!r}, found {name!r}; it is not read"


class NetworkTopology:
    """Keeps the tree. One object for all profiles."""

    def __init__(self, handle: Handle) -> None:
        self.cluster_topology: ClusterNetworkTopology | None = None  # the object `default`, as last read
        self.problem = NONE_THERE  # why there is no tree, or why the last change of the object is not used
        self.layers: tuple[Layer, ...] | None = None  # None: there is no tree
        self.missing: dict[str, str] = {}  # nodes that are left out → the layer that they name no domain of
        self.others: dict[str, ObjectMeta] = {}  # objects of other names, which are not read
        self.changes = 0  # grows with each change of the tree
        self._handle = handle
        self._columns: NodeColumns = handle.columns
        self._levels: list[_Level] = []
        self._paths: dict[str, Path] = {}
        self._view: tuple[int, int, TreeView] | None = None  # of these `changes` and rows
        handle.on_node_changed(self.node_changed)

    # -- objects ------------------------------------------------------------------------------------------------------

    def set_object(self, topology: ClusterNetworkTopology) -> None:
        """A ClusterNetworkTopology was added or changed. One that cannot be used leaves the tree as it was."""
        name = topology.metadata.name
        if name != DEFAULT_TOPOLOGY:
            if name not in self.others:
                self.others[name] = topology.metadata
                self._handle.complain(f"ClusterNetworkTopology {name}: {not_read(name)}")
                self._changed()
            return
        self.cluster_topology = topology
        try:
            layers = chain(topology.spec.network_topology_spec or ())
        except LayersError as error:
            problem = str(error)
            if self.problem != problem:
                self.problem = problem
                self.changes += 1
                self._handle.complain(f"ClusterNetworkTopology {name}: {problem}; it is not used")
            return
        self.problem = ""
        if layers != self.layers:
            self._rebuild(layers)

    def remove_object(self, topology: ClusterNetworkTopology) -> None:
        """The object is gone, and the tree with it. Upstream keeps the old tree until it is restarted."""
        if topology.metadata.name == DEFAULT_TOPOLOGY:
            self.cluster_topology, self.problem = None, NONE_THERE
            self._rebuild(None)
        elif self.others.pop(topology.metadata.name, None) is not None:
            self._changed()

    @property
    def absence(self) -> str:
        """Why there is no tree, in words for users."""
        if self.problem != NONE_THERE:
            return f"{NONE_THERE}: ClusterNetworkTopology {DEFAULT_TOPOLOGY}: {self.problem}"
        names = ", ".join(map(repr, sorted(self.others)))
        return f"{NONE_THERE}: expected one named {DEFAULT_TOPOLOGY!r}, found {names}" if names else NONE_THERE

    def _rebuild(self, layers: tuple[Layer, ...] | None) -> None:
        self.layers = layers
        self._levels = [_Level() for _ in layers or ()]
        self._paths.clear()
        self.missing.clear()
        self._columns.add_column(COLUMN, np.full(max(len(self._levels), 1), -1, np.int64))
        if layers is not None:
            for info in self._handle.cache:
                self._place(info.name, self._path(info.known))
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._handle.request_wake()

    # -- nodes --------------------------------------------------------------------------------------------------------

    def node_changed(self, name: str, node: Node | None) -> None:
        if self.layers is None:
            return
        path = None if node is None else self._path(node)
        if isinstance(path, tuple) and self._paths.get(name) == path and self._is_written(name):
            return
        if isinstance(path, str) and self.missing.get(name) == path:
            return
        known = self._paths.pop(name, None)
        if known is not None:
            for length, level in enumerate(self._levels, 1):
                level.counts[level.ids[known[:length]]] -= 1
        self.missing.pop(name, None)
        self._place(name, path)
        self._changed()

    def _is_written(self, name: str) -> bool:
        """Whether the row is in the column: a node that comes back may have got another row."""
        return not self._levels or bool(self._columns.column(COLUMN)[0, self._columns.rows[name]] >= 0)

    def _path(self, node: Node) -> Path | str:
        """The names of the node's domains, topmost first; or the layer in which it names none (GANG-R48, GANG-R49)."""
        assert self.layers is not None
        labels = node.metadata.labels
        path: list[str] = []
        for number, layer in enumerate(self.layers, 1):
            name = next((labels[key] for key in layer.keys if labels.get(key)), "")
            if not name:
                if number < len(self.layers):
                    return layer.name
                name = node.name  # a domain of its own
            path.append(name)
        return tuple(path)

    def _place(self, name: str, path: Path | str | None) -> None:
        row = self._columns.rows.get(name)
        if isinstance(path, str):
            self.missing[name] = path
        if not isinstance(path, tuple):
            if row is not None:
                self._columns.column(COLUMN)[:, row] = -1
            return
        self._paths[name] = path
        parent = 0
        for number, level in enumerate(self._levels):
            key = path[: number + 1]
            domain = level.ids.get(key)
            if domain is None:
                domain = level.ids[key] = len(level.paths)
                level.paths.append(key)
                level.parents.append(parent)
                level.counts.append(0)
            level.counts[domain] += 1
            if row is not None:
                self._columns.column(COLUMN)[number, row] = domain
            parent = domain

    # -- what is there ------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return self.layers is not None

    def path_of(self, name: str) -> Path | None:
        """The names of a node's domains; None if the node is not in the tree."""
        return self._paths.get(name)

    def view(self) -> TreeView:
        """The tree as arrays. They must not be changed."""
        columns, layers = self._columns, self.layers
        assert layers is not None
        kept = self._view
        if kept is not None and kept[:2] == (self.changes, columns.count):
            return kept[2]
        count = columns.count
        inside = np.zeros(count, np.bool_)
        inside[[columns.rows[name] for name in self._paths if name in columns.rows]] = True
        written = columns.column(COLUMN)[:, :count]
        above = [np.where(inside, written[number], -1) for number in range(len(self._levels))]
        rows = np.arange(count)
        domains: list[Ints] = [np.where(inside, 0, -1), *above, np.where(inside, rows, -1)]
        parents = [np.zeros(1, np.int64), *(np.array(level.parents, np.int64) for level in self._levels), domains[-2]]
        paths: list[list[Path]] = [[()], *(list(level.paths) for level in self._levels)]
        paths.append([(name,) for name in columns.names])
        view = TreeView(
            (CLUSTER_LAYER, *(layer.name for layer in layers), NODE_LAYER),
            domains,
            parents,
            [_ranks([(path[-1:], path) for path in level]) for level in paths],
            paths,
        )
        self._view = self.changes, count, view
        return view

    def detail(self) -> list[dict[str, Any]]:
        """`status.detailStatus`: the domains depth first, children sorted by name, nodes not listed (GANG-R52)."""
        if self.layers is None:
            return []
        names = [CLUSTER_LAYER, *(layer.name for layer in self.layers), NODE_LAYER]
        below: dict[Path, list[Path]] = {}
        counts: dict[Path, int] = {(): len(self._paths)}
        for level in self._levels:
            for path, count in zip(level.paths, level.counts, strict=True):
                if count:
                    below.setdefault(path[:-1], []).append(path)
                    counts[path] = count
        listed: list[dict[str, Any]] = []

        def add(path: Path) -> None:
            entry: dict[str, Any] = {"topologyInfo": _info(names, path)}
            if path:
                entry["parentTopologyInfo"] = _info(names, path[:-1])
            entry["childTopologyLayer"] = names[len(path) + 1]
            children = sorted(below.get(path, ()))
            if children:
                entry["childTopologyNames"] = [child[-1] for child in children]
            entry["nodeNum"] = counts[path]
            listed.append(entry)
            for child in children:
                add(child)

        add(())
        return listed


def _info(names: list[str], path: Path) -> dict[str, str]:
    return {"topologyLayer": names[len(path)], "topologyName": path[-1] if path else ""}


def _ranks(keys: Iterable[Any]) -> Ints:
    """The position of each key in sorted order."""
    listed = list(keys)
    ranks = np.empty(len(listed), np.int64)
    ranks[sorted(range(len(listed)), key=listed.__getitem__)] = np.arange(len(listed))
    return ranks
