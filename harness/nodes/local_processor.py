"""The CPU model of this machine, as koordlet reports it in the NodeResourceTopology: from /proc/cpuinfo and /sys.

CPU normalization looks its ratio up by that model. The report has no CPUs and no NUMA zones: pods of this machine are
processes that are not bound to CPUs.
"""

from pathlib import Path
from typing import Any

from seatrial.scheduler.api import numa
from seatrial.scheduler.api.wire import to_json

Manifest = dict[str, Any]

_CPUS = "sys/devices/system/cpu"


def this_processor(root: Path = Path("/")) -> numa.CpuBasicInfo | None:
    """The CPU model of the machine whose /proc and /sys are below `root`; None if the kernel names none."""
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    rows = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    model = rows.get("model name") or rows.get("Model") or ""
    if not model:
        return None
    turbo = _read(root / _CPUS / "intel_pstate/no_turbo") == "0" or _read(root / _CPUS / "cpufreq/boost") == "1"
    threads = _read(root / _CPUS / "smt/active") == "1"
    return numa.CpuBasicInfo(model, threads, turbo, rows.get("vendor_id", ""))


def topology_report(node: str, node_uid: str, processor: numa.CpuBasicInfo) -> Manifest:
    """The NodeResourceTopology with the CPU model, owned by its Node."""
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node,
        "uid": node_uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": numa.GROUP_VERSION,
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "labels": {"app.kubernetes.io/managed-by": "Koordinator"},
            "annotations": {numa.CPU_BASIC_INFO: to_json(processor).decode()},
            "ownerReferences": [owner],
        },
        "topologyPolicies": ["None"],
        "zones": [],
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
