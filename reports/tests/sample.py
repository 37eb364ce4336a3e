"""A realistic run, made up from a seed: 50 cases, 12 nodes with 8 GPUs each, 2,000 pods bound under load."""

from pathlib import Path

import numpy as np

from seatrial.harness.results import (
    Case,
    DeviceState,
    NodeState,
    ResultsWriter,
    RunInfo,
    Share,
    Subject,
    Verdict,
    moment,
)
from seatrial.scheduler.api.clock import SIM_EPOCH, SimClock

FEATURES_YAML = """\
- {id: DEV-1, title: "gpu-core, gpu-memory, gpu-memory-ratio in all spellings", release: [v0.7], group: Devices}
- {id: DEV-2, title: "Device objects; unhealthy devices leave the pool", release: [v0.7], group: Devices}
- {id: DEV-3, title: "Chosen minors in the device-allocated annotation", release: [v0.7], group: Devices}
- {id: DEV-4, title: "Bin-packing and spreading of devices", release: [v0.7, v1.6], group: Devices}
- {id: DEV-7, title: "GPU and RDMA allocated jointly, aligned on PCIe", release: [v1.6], group: Devices}
- {id: DEV-8, title: "Shared GPUs isolated by HAMi-core", release: [v1.6], group: Devices}
- {id: GANG-1, title: "All-or-nothing PodGroups with a schedule timeout", release: [v0.7], group: Gangs and preemption}
- {id: GANG-4, title: "Gang groups across roles", release: [v0.7], group: Gangs and preemption}
- {id: PRE-1, title: "Preemption by priority, with minimal victims", release: [v1.7], group: Gangs and preemption}
- {id: QUOTA-1, title: "Guaranteed min and bounding max; borrowing and giving back", release: [v0.7], group: Quota}
- {id: QUOTA-2, title: "Parents and children in one tree", release: [v0.7], group: Quota}
- {id: NUMA-1, title: "Node topology policies, kubelet's wins", release: [v1.4], group: NUMA}
- {id: HIL-8, title: "Latency percentiles and throughput under load", group: The harness}
"""

_CLAIMS = [  # feature, suite, claim
    ("DEV-1", "allocation", "two half GPU pods share one card"),
    ("DEV-1", "allocation", "a pod that asks for memory in bytes gets that much"),
    ("DEV-2", "faults", "a card with an XID leaves the pool"),
    ("DEV-3", "allocation", "the annotation names what reached the container"),
    ("DEV-4", "allocation", "the packing profile fills a card before it opens the next"),
    ("DEV-7", "topology", "GPU and NIC sit under one PCIe switch"),
    ("DEV-8", "isolation", "a tenant cannot allocate beyond its memory"),
    ("GANG-1", "gang", "a gang without its quorum holds nothing after the timeout"),
    ("GANG-4", "gang", "workers wait for their parameter servers"),
    ("PRE-1", "preemption", "only as many victims as the pod needs"),
    ("QUOTA-1", "quota", "what was borrowed is given back to its owner"),
    ("QUOTA-2", "quota", "children stay within their parent"),
    ("HIL-8", "throughput", "p99 from create to bound stays under 50 ms"),
]
_FAILURE = """AssertionError: preemption evicted 3 pods where 2 would do
expected victims: {'low-1', 'low-4'}
found victims:    {'low-1', 'low-4', 'low-6'}
  low-6 holds 1 of 8 cards on n03; the pod fits without it"""
_EVENTS = """12:00:31.204 created   default/high-1   wants 2 x nvidia.com/gpu, priority 1000
12:00:31.207 nominated default/high-1   n03
12:00:31.209 preempted default/low-1    by default/high-1 on n03
12:00:31.209 preempted default/low-4    by default/high-1 on n03
12:00:31.210 preempted default/low-6    by default/high-1 on n03
12:00:31.288 bound     default/high-1   n03 gpu 2,5
"""


def sample_run(
    folder: Path, *, seed: int = 7, backend: str = "embedded", failing: bool = True, slower: float = 1.0
) -> Path:
    """Write the run into `folder` and give the folder. The same seed writes the same figures."""
    chance = np.random.default_rng(seed)
    clock = SimClock(SIM_EPOCH + seed * 3600)
    with ResultsWriter(folder, fresh=True, clock=clock) as writer:
        writer.run(_info(backend, seed, clock.now()))
        _cases(writer, clock, chance, failing=failing)
        _load(writer, clock, chance, slower)
        writer.fleet(_fleet(chance))
        writer.finish()
    return folder


def _info(backend: str, seed: int, now: float) -> RunInfo:
    return RunInfo(
        f"{backend}-{seed:04d}",
        moment(now),
        ("seatrial", "run", "allocation", "gang", "--backend", backend, "--fleet", "lab-12"),
        backend,
        Subject("seatrial-scheduler", "0.1.0+3afd0f6"),
        "lab-12 (12 nodes with 8 GPUs)",
        seed,
        {"seatrial": "0.1.0", "python": "3.11.9", "kubernetes API": "1.34.1", "HAMi-core": "2.6.0", "driver": "570.86"},
        {"machine": "ci-runner-4", "system": "Debian 12, Linux 6.1", "cpu": "2 x Xeon 8375C", "memory": "7.6 GiB"},
        ("allocation", "gang", "isolation", "preemption", "quota", "throughput"),
    )


def _cases(writer: ResultsWriter, clock: SimClock, chance: np.random.Generator, *, failing: bool) -> None:
    for number in range(50):
        feature, suite, claim = _CLAIMS[number % len(_CLAIMS)]
        nodeid = f"suites/{suite}/test_{suite}.py::test_{claim.replace(' ', '_')}[{number // len(_CLAIMS)}]"
        verdict: Verdict = "passed"
        reason = ""
        if feature == "DEV-8":
            verdict, reason = (
                "skipped",
                "needs a real GPU; the embedded backend has none (--backend local on a GPU machine)",
            )
        elif failing and number == 9:
            verdict, reason = "failed", _FAILURE
            writer.attach(nodeid, "timeline", _EVENTS, ".log")
            writer.attach(
                nodeid,
                "scheduler's score table",
                "node  fit  device  total\nn03   71   88      159\nn07   64   90      154\n",
            )
        elif failing and number == 31:
            verdict, reason = "broken", "ClusterError: envtest's etcd did not answer within 20 s on 127.0.0.1:2379"
        started = clock.now()
        clock.advance(float(chance.gamma(2.0, 0.4)))
        case = f"{feature.partition('-')[0][:2]}-{number:03d}"
        severity = "critical" if number % 5 == 0 else "normal"
        text = claim[0].upper() + claim[1:]
        writer.case(
            Case(
                nodeid,
                verdict,
                text,
                f"{text}.",
                case,
                (feature,),
                suite,
                severity,
                reason,
                moment(started),
                clock.now() - started,
            )
        )


def _load(writer: ResultsWriter, clock: SimClock, chance: np.random.Generator, slower: float) -> None:
    case = "suites/throughput/test_throughput.py::test_load[steady]"
    start = clock.now()
    arrivals = np.cumsum(chance.exponential(1 / 50, 2000)) + 2 * np.sin(np.linspace(0, 9, 2000))
    latencies = slower * chance.lognormal(np.log(6.0), 0.55, 2000)
    latencies[::97] *= 5
    for number, (arrived, latency) in enumerate(zip(np.sort(arrivals), latencies, strict=True)):
        node, minor = int(chance.integers(12)), int(chance.integers(8))
        name = f"load/p{number:04d}"
        writer.event("created", name, case=case, at=start + float(arrived))
        shares = {"gpu": [Share(minor, 50, 50)]}
        writer.event(
            "bound", name, node=f"n{node:02d}", devices=shares, case=case, at=start + float(arrived + latency / 1e3)
        )
    clock.advance(float(arrivals.max()) + 1)
    writer.measure("create_to_bound", "ms", values=latencies[:1200], labels={"mix": "whole"})
    writer.measure("create_to_bound", "ms", values=latencies[1200:] * 1.4, labels={"mix": "shared"})
    for rate in (31_900, 32_400, 31_200):
        writer.measure("decisions", "pods/s", rate / slower)
    writer.measure("gpu_allocated", "%", 95.6)


def _fleet(chance: np.random.Generator) -> list[NodeState]:
    models = ["H100-SXM5-80GB"] * 6 + ["A100-SXM4-80GB"] * 6
    return [
        NodeState(f"n{number:02d}", {"pool": "train"}, _devices(chance, number, model))
        for number, model in enumerate(models)
    ]


def _devices(chance: np.random.Generator, node: int, model: str) -> tuple[DeviceState, ...]:
    states = []
    for minor in range(8):
        used = float(chance.choice([0, 25, 50, 75, 100, 100], p=[0.14, 0.1, 0.2, 0.1, 0.26, 0.2]))
        health = "Xid79: GPU has fallen off the bus" if (node, minor) == (4, 6) else "ok"
        used = 0.0 if health != "ok" else used
        pods = tuple(f"load/n{node:02d}-{minor}-{k}" for k in range(int(np.ceil(used / 50))))
        states.append(DeviceState("gpu", minor, model, minor // 4, health, used, min(100.0, used), pods))
    nics = [DeviceState("rdma", minor, "ConnectX-7", minor, "ok", used, 0.0) for minor, used in ((0, 50.0), (1, 0.0))]
    return (*states, *nics)
