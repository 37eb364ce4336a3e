"""Fleet files: the nodes of a simulated cluster as data, and the Node objects by which agents create them.

    network: {nodes_per_block: 4, blocks_per_spine: 2}    # optional: spine and block labels, in the order of the nodes
    nodes:
      - name: h100-[0-3]            # four nodes; [00-15] keeps the zeros; or `name: h100` with `count: 4`
        server: dgx-h100            # a whole machine of the catalogue, or
        devices: [{model: a10, count: 2}, {model: connectx-7, count: 1}]    # or {vendor: nvidia, count: 2}
        cpu: 64                     # each optional: the machine's own if left out
        memory: 512Gi
        pods: 110
        labels: {pool: train}
        annotations: {example.com/rack: "7"}
        extended: {example.com/fpga: 2}         # what a device plugin of another project offers
        taints: [{key: dedicated, value: train, effect: NoSchedule}]
        kubelet: {topology_policy: SingleNUMANodePodLevel, full_pcpus_only: true, reserved_cpus: 0-1}
        processor: {model: "XEON PLATINUM 8269CY", hyper_threading: true, turbo: true}
        dra: true                   # offer its devices in ResourceSlices, for claims, in place of a Device object;
                                    # `partitions`: also the parts that cards can be cut into; `shares`: parts of cards

An entry without its range has the format of `seatrial.scheduler.api.builders.NodeBuilder.manifest`.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.hardware import machine_of
from seatrial.harness.nodes.slices import Way
from seatrial.harness.nodes.topology import ANY_PROCESSOR, PLAIN, Kubelet, Processor
from seatrial.scheduler.api.core import HOSTNAME_LABEL
from seatrial.scheduler.api.extension import BLOCK_LABEL, SPINE_LABEL
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.api.yaml_files import load_yaml

Entry = dict[str, Any]

FLEETS = Path(__file__).parent / "fleets"
DEFAULT = "default"
MAX_NODES = 100_000
_MAX_DIGITS = 9  # of a number in a range
ANY_MODEL = {name: vendor.any_model for name, vendor in VENDORS.items() if vendor.any_model}

SIMULATED_LABEL = "seatrial.dev/simulated"  # "true", or the run whose agents care for the node
ENTRY_ANNOTATION = "seatrial.dev/node"

_RANGE = re.compile(r"(?P<before>[^\[\]]*)\[(?P<first>\d+)-(?P<last>\d+)\](?P<after>[^\[\]]*)", re.ASCII)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class DeviceGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Some devices of one model; with `vendor` any model of cards of that vendor."""

    model: str = ""
    vendor: str = ""
    count: int = 1

    def __post_init__(self) -> None:
        if bool(self.model) == bool(self.vendor):
            raise ValueError(f"devices: expected `model` or `vendor`, found {'both' if self.model else 'neither'}")
        if self.vendor and self.vendor not in ANY_MODEL:
            raise ValueError(f"devices: expected a vendor of {', '.join(ANY_MODEL)}, found {self.vendor!r}")


class NodeTaint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A taint of the nodes of an entry, as in the API."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of a fleet file."""

    name: str
    count: int | None = None
    server: str = ""
    devices: tuple[DeviceGroup, ...] = ()
    cpu: int | None = None
    memory: str | int | None = None
    pods: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    extended: dict[str, int] = {}
    taints: tuple[NodeTaint, ...] = ()
    kubelet: Kubelet = PLAIN
    processor: Processor = ANY_PROCESSOR
    dra: bool | Way = False  # its devices are offered in ResourceSlices, not in a Device object

    def __post_init__(self) -> None:
        self.kubelet.check()  # msgspec turns the ValueError into a ValidationError
        for name, amount in self.extended.items():
            if "/" not in name or amount < 0:
                raise ValueError(f"extended: expected DOMAIN/NAME and an amount from 0 on, found {name}: {amount}")


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network tree of a fleet: nodes are assigned to blocks, and blocks to spines, in order."""

    nodes_per_block: int
    blocks_per_spine: int


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: tuple[NodeEntry, ...]
    network: Network | None = None


def load_fleet(fleet: Path | str | None = None) -> list[Entry]:
    """The entries of a fleet file, one for each node; a bare word names a fleet that comes with the program.

    Raises:
        UsageError: there is no such file, or it has a mistake; the message names file, key, expected and found.
    """
    path = fleet_path(fleet or DEFAULT)
    try:
        content = load_yaml(path.read_bytes())
    except OSError as error:
        raise UsageError(f"fleet {path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"fleet {path}: not YAML: {error}") from error
    return parse_fleet(content, where=str(path))


def fleet_path(fleet: Path | str) -> Path:
    """The file of a name or path.

    Raises:
        UsageError: neither a file nor a known name.
    """
    path = Path(fleet)
    if path.is_file():
        return path
    known = FLEETS / f"{fleet}.yaml"
    if path.name == str(fleet) and known.is_file():
        return known
    names = ", ".join(sorted(path.stem for path in FLEETS.glob("*.yaml")))
    raise UsageError(f"no fleet file {str(fleet)!r}; give the path of a YAML file, or one of: {names}")


def parse_fleet(content: Any, *, where: str) -> list[Entry]:
    """The entries of a fleet given as plain data; `where` names it in messages.

    Raises:
        UsageError: it has a mistake.
    """
    try:
        file = msgspec.convert(content, _File)
    except msgspec.ValidationError as error:
        raise UsageError(f"fleet {where}: {error}") from error
    entries: list[Entry] = []
    for number, node in enumerate(file.nodes):
        at = f"fleet {where}: nodes[{number}]"
        try:
            machine_of(_with_models(node))
        except UsageError as error:
            raise UsageError(f"{at}: {error}") from error
        entries += [_entry(node, name) for name in _names(node, at)]
        if len(entries) > MAX_NODES:
            raise UsageError(f"{at}: expected at most {MAX_NODES} nodes in a fleet, found more")
    _check_unique(entries, where)
    if file.network is not None:
        _add_network(entries, file.network, where)
    return entries


def checked_entry(entry: Mapping[str, Any]) -> Entry:
    """Check one entry of an annotation or a call.

    Raises:
        UsageError: it has a mistake.
    """
    name = str(entry.get("name", "?"))
    try:
        node = msgspec.convert(dict(entry), NodeEntry)
    except msgspec.ValidationError as error:
        raise UsageError(f"node {name!r}: {error}") from error
    if not _NAME.fullmatch(name):
        raise UsageError(f"node {name!r}: name: expected lower-case letters, digits, '-' and '.'")
    node_entry = _entry(node, name)
    machine_of(node_entry)
    return node_entry


def kubelet_of(entry: Mapping[str, Any]) -> Kubelet:
    """The kubelet settings of a checked entry."""
    return msgspec.convert(entry.get("kubelet", {}), Kubelet)


def processor_of(entry: Mapping[str, Any]) -> Processor:
    """The CPU model of a checked entry."""
    return msgspec.convert(entry.get("processor", {}), Processor)


def node_manifest(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The Node object by which node agents create the node: label, annotation, and what the entry adds to them."""
    name = str(entry["name"])
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {HOSTNAME_LABEL: name, SIMULATED_LABEL: "true", **(entry.get("labels") or {})},
            "annotations": {**(entry.get("annotations") or {}), ENTRY_ANNOTATION: to_json(entry).decode()},
        },
    }
    if entry.get("taints"):
        manifest["spec"] = {"taints": [dict(taint) for taint in entry["taints"]]}
    return manifest


def _entry(node: NodeEntry, name: str) -> Entry:
    models = _with_models(node)
    models.pop("count", None)
    return {**models, "name": name}


def _with_models(node: NodeEntry) -> Entry:
    """The entry as plain data, with a model for each group of devices."""
    entry: Entry = msgspec.to_builtins(node)
    if "devices" in entry:
        entry["devices"] = [
            {"model": group.model or ANY_MODEL[group.vendor], "count": group.count} for group in node.devices
        ]
    return entry


def _names(node: NodeEntry, at: str) -> Iterable[str]:
    match = _RANGE.fullmatch(node.name)
    if match is not None:
        if node.count is not None:
            raise UsageError(f"{at}: expected a range in `name` or a `count`, found both")
        if max(len(match["first"]), len(match["last"])) > _MAX_DIGITS:
            raise UsageError(f"{at}.name: expected numbers of at most {_MAX_DIGITS} digits, found {node.name[:80]!r}")
        first, last, width = int(match["first"]), int(match["last"]), len(match["first"])
        if last < first or last - first >= MAX_NODES:
            raise UsageError(f"{at}.name: expected a range that goes up, found {node.name!r}")
        names = [f"{match['before']}{number:0{width}}{match['after']}" for number in range(first, last + 1)]
    elif node.count is not None:
        if not 0 <= node.count <= MAX_NODES:
            raise UsageError(f"{at}.count: expected 0 to {MAX_NODES}, found {node.count}")
        names = [f"{node.name}-{number}" for number in range(node.count)]
    else:
        names = [node.name]
    if names and not _NAME.fullmatch(names[0]):
        raise UsageError(f"{at}.name: expected lower-case letters, digits, '-' and '.', found {names[0]!r}")
    return names


def _check_unique(entries: Iterable[Entry], where: str) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry["name"] in seen:
            raise UsageError(f"fleet {where}: expected each name once, found {entry['name']!r} twice")
        seen.add(entry["name"])


def _add_network(entries: list[Entry], network: Network, where: str) -> None:
    if network.nodes_per_block < 1 or network.blocks_per_spine < 1:
        raise UsageError(f"fleet {where}: network: expected numbers of 1 and more, found {network}")
    for number, entry in enumerate(entries):
        block = number // network.nodes_per_block
        marks = {SPINE_LABEL: f"spine-{block // network.blocks_per_spine}", BLOCK_LABEL: f"block-{block}"}
        entry["labels"] = {**marks, **entry.get("labels", {})}
