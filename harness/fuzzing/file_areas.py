"""Areas of files that users write: fleets, configurations, traces, HAMi's shared regions, inventories of labs."""

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml
from hypothesis import strategies as st

from seatrial.fake_devices.hami.region import RELEASES, CardLimits, ProcessUsage, new_region
from seatrial.harness.clusters.snapshot import check
from seatrial.harness.errors import HarnessError
from seatrial.harness.fuzzing.running import Area
from seatrial.harness.fuzzing.values import mutated, texts
from seatrial.harness.hami.region import read_region
from seatrial.harness.lab.inventory import load_inventory
from seatrial.harness.nodes.fleet import load_fleet, node_manifest
from seatrial.harness.replay import openb
from seatrial.scheduler import config as scheduler_config
from seatrial.scheduler.descheduler import config as descheduler_config

_FLEETS: Final = (
    {"nodes": [{"name": "h100-[0-3]", "server": "dgx-h100", "pods": 110, "labels": {"a": "b"}}]},
    {
        "network": {"nodes_per_block": 2, "blocks_per_spine": 2},
        "nodes": [
            {"name": "n", "count": 3, "devices": [{"model": "a10", "count": 2}], "cpu": 8, "memory": "8Gi"},
            {
                "name": "m",
                "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
                "cpu": 4,
                "memory": 1024,
                "kubelet": {"topology_policy": "SingleNUMANodePodLevel", "reserved_cpus": "0-1"},
            },
        ],
    },
)
_SCHEDULER: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "schedulerName": "koord-scheduler",
            "plugins": {
                "score": {"enabled": [{"name": "DeviceShare", "weight": 2}], "disabled": [{"name": "*"}]},
                "filter": {"enabled": [{"name": "LoadAwareScheduling"}]},
            },
            "pluginConfig": [
                {"name": "DeviceShare", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
                {"name": "LoadAwareScheduling", "args": {"usageThresholds": {"cpu": 65}}},
                {"name": "Coscheduling", "args": {"defaultTimeout": "600s"}},
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "LeastAllocated"}}},
            ],
        }
    ],
}
_DESCHEDULER: Final = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "deschedulingInterval": "30s",
    "dryRun": False,
    "maxNoOfPodsToEvictPerNode": 5,
    "profiles": [
        {
            "name": "koord-descheduler",
            "plugins": {
                "balance": {"enabled": [{"name": "LowNodeLoad"}]},
                "evict": {"enabled": [{"name": "MigrationController"}]},
            },
            "pluginConfig": [
                {"name": "MigrationController", "args": {"evictQPS": "10", "maxMigratingPerNode": 2}},
                {"name": "LowNodeLoad", "args": {"highThresholds": {"cpu": 65}, "lowThresholds": {"cpu": 40}}},
            ],
        }
    ],
}
_LAB: Final = {
    "machines": [{"name": "m1", "address": "m1.lab", "cards": [{"model": "a10", "count": 2}], "tags": ["a"]}],
    "places": [{"name": "p", "machine": "m1"}],
}


class _Written:
    """Writes inputs to one file that is replaced each time."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __call__(self, name: str, data: bytes) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="seatrial-fuzz-")
        path = Path(self._folder.name) / name
        path.write_bytes(data)
        return path


_written = _Written()


def _expecting(
    errors: type[Exception] | tuple[type[Exception], ...], name: str, read: Callable[[Path], Any]
) -> Callable[[Any], None]:
    def run(data: bytes) -> None:
        try:
            read(_written(name, data))
        except errors as refused:
            if not str(refused).strip():
                raise AssertionError(f"{type(refused).__name__} without words") from refused

    return run


def _fleet(path: Path) -> None:
    for entry in load_fleet(path)[:20]:
        node_manifest(entry)


def _scheduler(path: Path) -> None:
    scheduler_config.expand(scheduler_config.load(path))


@st.composite
def _yaml_of(draw: st.DrawFn, documents: tuple[Any, ...]) -> bytes:
    """Changed documents as YAML, at times with changed text."""
    text = yaml.safe_dump(draw(mutated(documents)), allow_unicode=True)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(
                st.sampled_from(["[", "{", "&a ", "*a", "\t", "- ", ": ", "'", "!!x ", "[0-", "]", "9" * 30, "\x00"])
            )
            + text[at + draw(st.integers(0, 3)) :]
        )
    return text.encode("utf-8", "surrogatepass")


_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS: Final = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
_cells = st.one_of(
    st.sampled_from(["1", "0", "1000", "2", "V100M16", "A10|T4", "LS", "-1", "1e9", "", '"', '"a\nb"', "9" * 40]), texts
)


def _csv(columns: tuple[str, ...]) -> st.SearchStrategy[str]:
    rows = st.lists(st.lists(_cells, min_size=len(columns) - 1, max_size=len(columns) + 1).map(",".join), max_size=4)
    header = st.one_of(st.just(",".join(columns)), st.lists(st.sampled_from(columns), max_size=6).map(",".join))
    return st.tuples(header, rows).map(lambda parts: "\n".join([parts[0], *parts[1]]))


_NODES: Final = "sn,cpu_milli,memory_mib,gpu,model\nn1,96000,786432,8,V100M16\n"


def _run_csv(values: tuple[str, str]) -> None:
    nodes, pods = (text.encode("utf-8", "surrogatepass") for text in values)
    try:
        trace = openb.load(_written("nodes.csv", nodes), _written("pods.csv", pods))
        openb.arrivals(trace, 0.01, 1)
    except HarnessError as refused:
        if not str(refused).strip():
            raise AssertionError("UsageError without words") from refused


_REGIONS: Final = {
    release: bytes(
        new_region(
            release,
            (CardLimits("GPU-8f2e1c4a-0000-1111-2222-333344445555", memory=8 << 30, cores=40),),
            (ProcessUsage(pid=11, host_pid=12, used=({"context": 300, "data": 1000},), cores=(30,), sequence=4),),
        )
    )
    + b"\0"
    for release in sorted(RELEASES)
}


@st.composite
def _regions(draw: st.DrawFn) -> tuple[str, tuple[tuple[int, bytes], ...], int]:
    """Release, changed bytes, and bytes cut from the end."""
    release = draw(st.sampled_from(sorted(_REGIONS)))
    places = st.one_of(
        st.integers(0, 3000), st.integers(0, len(_REGIONS[release])), st.just(len(_REGIONS[release]) - 33)
    )
    changes = draw(st.lists(st.tuples(places, st.binary(min_size=1, max_size=8)), max_size=5))
    return release, tuple(changes), draw(st.sampled_from([0, 0, 0, 0, 1, 1000, 2_000_000]))


def _run_region(values: tuple[str, tuple[tuple[int, bytes], ...], int]) -> None:
    release, changes, cut = values
    data = bytearray(_REGIONS[release])
    for at, new in changes:
        data[at : at + len(new)] = new
    _expecting(HarnessError, "region.cache", read_region)(bytes(data[: max(0, len(data) - cut)]))


_SNAPSHOT: Final = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "uid": "1"}},
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "uid": "2", "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "a", "uid": "3", "ownerReferences": [{"name": "n", "uid": "2"}]},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": True}]},
    },
    {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "n", "uid": "4"},
        "spec": {"devices": [{"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": 1}}]},
    },
)


@st.composite
def _snapshots(draw: st.DrawFn) -> bytes:
    """Snapshots with changed objects, at times cut off or with a changed byte."""
    objects = draw(mutated(([*_SNAPSHOT],)))
    header = {"snapshot": 1, "objects": len(objects)} if isinstance(objects, list) else {}
    lines = [header, *(objects if header else [objects])]
    data = bytearray(gzip.compress("\n".join(json.dumps(line) for line in lines).encode(), mtime=0))
    if draw(st.integers(0, 3)) == 0:
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 0, 9, 50]))])


FILE_AREAS: Final = (
    Area("fleets", "fleet files", _yaml_of(_FLEETS), _expecting(HarnessError, "fleet.yaml", _fleet)),
    Area(
        "scheduler-configurations",
        "KubeSchedulerConfiguration files",
        _yaml_of((_SCHEDULER,)),
        _expecting(scheduler_config.ConfigError, "scheduler.yaml", _scheduler),
    ),
    Area(
        "descheduler-configurations",
        "DeschedulerConfiguration files",
        _yaml_of((_DESCHEDULER,)),
        _expecting(descheduler_config.ConfigError, "descheduler.yaml", descheduler_config.load),
    ),
    Area(
        "inventories", "inventories of a lab", _yaml_of((_LAB,)), _expecting(HarnessError, "lab.yaml", load_inventory)
    ),
    Area(
        "csv",
        "openb traces",
        st.one_of(st.tuples(_csv(_NODE_COLUMNS), _csv(_POD_COLUMNS)), st.tuples(st.just(_NODES), _csv(_POD_COLUMNS))),
        _run_csv,
    ),
    Area("regions", "HAMi's shared regions", _regions(), _run_region),
    Area("snapshots", "snapshots of clusters", _snapshots(), _expecting(HarnessError, "snapshot", check)),
)
