"""Use by NUMA node, of simulated nodes and of a machine's files; and the CPU model of a machine."""

from pathlib import Path

import numpy as np
import pytest

from seatrial.harness.nodes.local_processor import this_processor
from seatrial.harness.nodes.numa_usage import divided, read_nodes, read_pod, zones_of_pod
from seatrial.harness.nodes.usage_samples import Samples
from seatrial.scheduler.api.numa import RESOURCE_STATUS

GIB = 1 << 30


def constant(cpu: float, memory: float) -> Samples:
    return Samples(np.array([10.0, 20.0]), np.full(2, cpu), np.full(2, memory))


def test_a_pod_uses_its_numa_nodes_and_the_rest_uses_all() -> None:
    """8 cores and 8 Gi in use: 4 by a pod on NUMA node 0, 2 by one on both, the rest by the system. QOS-KM-8: of the
    system's CPU each NUMA node has its part of all CPU."""
    zero, one = divided(
        constant(8000, 8 * GIB),
        constant(2000, 2 * GIB),
        [(constant(4000, 4 * GIB), [0]), (constant(2000, 2 * GIB), [0, 1])],
        2,
    )
    assert (zero.node.last(), one.node.last()) == ({"cpu": 6000, "memory": 6 * GIB}, {"cpu": 2000, "memory": 2 * GIB})
    assert zero.system is not None
    assert one.system is not None
    assert (zero.system.last(), one.system.last()) == ({"cpu": 1500, "memory": GIB}, {"cpu": 500, "memory": GIB})


def test_the_system_s_part_of_each_numa_node() -> None:
    """QOS-E19: NUMA nodes that use 1 and 3 cores get 0.2 and 0.6 of the system's 0.8 cores; of 1024 bytes on a NUMA
    node, of which its pods use 512, the system's are 512."""
    zero, one = divided(
        constant(4000, 2048), constant(800, 0), [(constant(1000, 512), [0]), (constant(3000, 512), [1])], 2
    )
    assert zero.system is not None
    assert one.system is not None
    assert (zero.node.last(), one.node.last()) == ({"cpu": 1000, "memory": 1024}, {"cpu": 3000, "memory": 1024})
    assert (zero.system.last(), one.system.last()) == ({"cpu": 200, "memory": 512}, {"cpu": 600, "memory": 512})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"numaNodeResources":[{"node":1}]}', [1]),
        ('{"numaNodeResources":[{"node":7}]}', [0, 1]),
        ('{"cpuset":"0-3"}', [0, 1]),
        ("{", [0, 1]),
        ("", [0, 1]),
    ],
)
def test_the_numa_nodes_of_a_pod(text: str, expected: list[int]) -> None:
    assert list(zones_of_pod({RESOURCE_STATUS: text}, 2)) == expected


def test_files_of_two_numa_nodes(tmp_path: Path) -> None:
    """QOS-KM-1 and QOS-KM-2: lines of single CPUs are summed; free, file and reclaimable pages are not in use."""
    for number, cpus in ((0, "0,2"), (1, "1")):
        folder = tmp_path / f"sys/devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
        rows = {"MemTotal": 100, "MemFree": 40, "Active(file)": 10, "Inactive(file)": 5, "SReclaimable": 5 + number}
        (folder / "meminfo").write_text("".join(f"Node {number} {name}: {kib} kB\n" for name, kib in rows.items()))
    stat = "cpu  9 9 9 9\n" + "".join(f"cpu{number} 100 0 {number}00 900 50 0 0 0 0 0\n" for number in range(3))
    assert read_nodes(tmp_path, stat, 100) == {0: (1.0 + 3.0, 40 * 1024), 1: (2.0, 39 * 1024)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "anon N0=4096 N1=8192\nfile N0=100 N1=0\nslab N0=9 N1=9\n", {0: 4196.0, 1: 8192.0}, id="version-2"
        ),
        pytest.param(
            "total=3 N0=1 N1=2\nanon=1 N0=1 N1=0\nhierarchical_anon=3 N0=1 N1=2\nhierarchical_file=1 N0=0 N1=1\n",
            {0: 4096.0, 1: 3 * 4096.0},
            id="version-1",
        ),
    ],
)
def test_memory_of_a_pod_by_numa_node(tmp_path: Path, text: str, expected: dict[int, float]) -> None:
    (tmp_path / "memory.numa_stat").write_text(text)
    assert read_pod([tmp_path]) == expected
    assert read_pod([tmp_path, tmp_path / "absent"]) is None


def test_the_cpu_model_of_a_machine(tmp_path: Path) -> None:
    assert this_processor(tmp_path) is None
    for path, text in {
        "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Fast CPU\n\nprocessor\t: 1\n",
        "sys/devices/system/cpu/smt/active": "1\n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    result = this_processor(tmp_path)
    assert result is not None
    assert (result.cpu_model, result.vendor_id) == ("Fast CPU", "GenuineIntel")
    assert (result.hyper_thread_enabled, result.turbo_enabled) == (True, False)
