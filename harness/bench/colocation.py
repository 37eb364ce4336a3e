"""`bench colocation`: what best-effort load costs a latency-sensitive pod of this machine, without QoS and with ours.

Everything is real: the pods are processes below `kubepods` in the control group of a local cluster, the load spins on
all CPUs, and the node agent is a process that measures and writes as on any node. The cluster ends its pods and removes
its groups when this process ends, however it ends.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from seatrial.harness.bench.core import Progress
from seatrial.harness.bench.request_loop import ROW, work
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.backends import LOCAL, backend_named
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.nodes.local_agent import CGROUP_ANNOTATION, LIMITS_ANNOTATION
from seatrial.harness.nodes.stress import command
from seatrial.harness.replay.plot import new_figure
from seatrial.harness.sample_statistics import median_interval, percentile
from seatrial.harness.subject.koordlet import running_koordlet
from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.slo import NODE_SLOS_PATH
from seatrial.scheduler.api.transport import Request

ALONE, WITHOUT, WITH = "alone", "load_without_qos", "load_with_qos"
MODES = {ALONE: "alone", WITHOUT: "best-effort load without QoS", WITH: "the same load with QoS"}
INTERVAL, WORK = 0.01, 0.006  # seconds between requests of a CPU, and of work for each: more than half of the machine
SETTLE = 4.0  # seconds in which the agent has seen the load and written what follows
WITHIN = 30.0  # seconds in which a pod runs or is gone
CATCH_UP = 5.0  # seconds after a measurement in which the service, alone, has answered what waited
OTHERS = 0.1  # of the machine, used by other programs: more disturbs the figures
PODS = "/api/v1/namespaces/default/pods"
SUPPRESSION = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
CLASSES = {  # suppression alone leaves best-effort processes their turn on each CPU before a request that arrives
    "policies": {"cpuPolicy": "coreSched"},
    "lsClass": {"cpuQOS": {"enable": True}},
    "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}},
}
_CPU_ROOTS = ("cpuacct/{}/cpuacct.usage", "{}/cpu.stat")  # by version of the control groups
_BUSY = (1, 2, 3, 6, 7)  # fields of a line of /proc/stat
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class _Machine:
    """The node, its pods and where their control groups are."""

    cluster: Cluster
    node: str
    parent: str
    cpus: int
    samples: Path

    def start(self, builder: PodBuilder) -> None:
        body = builder.node_name(self.node).manifest
        body["metadata"]["namespace"] = "default"
        accepted(self.cluster.call(Request("POST", PODS, orjson.dumps(body))), f"create pod {builder.name!r}")
        if not self.cluster.wait(lambda: self._phase(builder.name) == "Running", within=WITHIN):
            raise SubjectError(f"pod {builder.name!r} does not run: {self._phase(builder.name) or 'it is gone'}")

    def end(self, name: str) -> None:
        self.cluster.call(Request("DELETE", f"{PODS}/{name}"))
        if not self.cluster.wait(lambda: not self._phase(name), within=WITHIN):
            raise SubjectError(f"pod {name!r} does not end")

    def _phase(self, name: str) -> str:
        response = self.cluster.call(Request("GET", f"{PODS}/{name}"))
        return str(orjson.loads(response.body)["status"].get("phase", "Pending")) if response.ok else ""

    def used(self, folder: str) -> float:
        """CPU seconds of a control group."""
        for pattern in _CPU_ROOTS:
            path = Path("/sys/fs/cgroup") / pattern.format(f"{self.parent}/{folder}")
            if path.is_file():
                words = path.read_text(encoding="ascii").split()
                return int(words[0]) / 1e9 if len(words) == 1 else int(words[words.index("usage_usec") + 1]) / 1e6
        return 0.0

    def latencies(self, begin: float, end: float) -> list[float]:
        """Milliseconds of the requests that were due in this time."""
        return [latency * 1000 for rows in self._rows() for due, latency in rows if begin <= due < end]

    def answered(self, moment: float) -> bool:
        """Whether no request waits that was due before this moment, nor one that is late because of them."""
        lasts = [rows[-1] for rows in self._rows() if rows]
        return len(lasts) == self.cpus and all(due >= moment and late < INTERVAL for due, late in lasts)

    def _rows(self) -> list[list[tuple[float, float]]]:
        """Moments and seconds of the requests of each process."""
        files = [path.read_bytes() for path in sorted(self.samples.parent.glob(f"{self.samples.name}.*"))]
        return [list(ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size])) for data in files]


def bench_colocation(rounds: int, seconds: float, progress: Progress, *, seed: int) -> dict[str, Any]:
    """Run the benchmark and return its figures.

    Args:
        rounds: Times that each of the three is measured; they take turns.
        seconds: Of each measurement.
        progress: Called with a line of text after each round.
        seed: Of the intervals.

    Raises:
        UsageError: no control groups can be made here.
        SubjectError: a pod or the node agent does not start.
    """
    by_mode: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    with _machine() as machine:
        iterations = _calibrated()
        service = [sys.executable, str(Path(work.__code__.co_filename)), str(machine.samples), str(iterations)]
        sensitive = _pod("service", "LS", "koord-prod", [*service, str(INTERVAL), str(machine.cpus)])
        machine.start(_requesting(sensitive))
        for number in range(rounds):
            order = list(MODES)[number % len(MODES) :] + list(MODES)[: number % len(MODES)]
            for mode in order:
                by_mode[mode].append(_measured(machine, mode, seconds))
            texts = (f"{by_mode[mode][-1]['p99']:.1f}" for mode in MODES)
            progress(f"round {number + 1} of {rounds}: p99 {', '.join(texts)} ms")
    others = statistics.median(row["others"] for rows in by_mode.values() for row in rows)
    because = [f"other programs used {others:.0%} of the machine"] if others > OTHERS else []
    if any(row["behind"] for rows in by_mode.values() for row in rows):
        because.append(f"the service, alone on the machine, did not catch up within {CATCH_UP:g} s")
    return {
        "cpus": machine.cpus,
        "rounds": rounds,
        "seconds": seconds,
        "requests_per_second": round(machine.cpus / INTERVAL),
        "work_ms": WORK * 1000,
        "modes": {mode: _figures(rows, seed) for mode, rows in by_mode.items()},
        "other_programs_percent": round(100 * others, 1),
        "valid": not because,
        "invalid_because": because,
    }


def _figures(rows: Sequence[dict[str, float]], seed: int) -> dict[str, Any]:
    """Of one mode: the medians over rounds, each with its 95 % interval."""
    figures = {}
    for name in ("p50", "p99", "best_effort_cores"):
        low, middle, high = median_interval([row[name] for row in rows], seed=seed)
        figures[name if name == "best_effort_cores" else f"{name}_ms"] = {
            "median": round(middle, 3),
            "low": round(low, 3),
            "high": round(high, 3),
        }
    return figures


@contextmanager
def _machine() -> Any:
    with ExitStack() as stack:
        folder = stack.enter_context(private_folder())
        cluster = stack.enter_context(backend_named(LOCAL).start())
        (only,) = orjson.loads(cluster.call(Request("GET", "/api/v1/nodes")).body)["items"]
        annotations = only["metadata"]["annotations"]
        parent = annotations.get(CGROUP_ANNOTATION, "")
        if not parent:
            raise UsageError(
                f"bench colocation: expected control groups that this user may make, found limits"
                f" {annotations[LIMITS_ANNOTATION]}; run it as root, or in a group that systemd delegates:"
                f" systemd-run --user --scope -p Delegate=yes seatrial bench colocation"
            )
        cpus = int(only["status"]["capacity"]["cpu"])
        machine = _Machine(cluster, only["metadata"]["name"], parent, cpus, folder / "latencies")
        slo = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": machine.node}}
        slo["spec"] = {"resourceUsedThresholdWithBE": SUPPRESSION, "resourceQOSStrategy": CLASSES}
        accepted(cluster.call(Request("POST", NODE_SLOS_PATH, orjson.dumps(slo))), "create the NodeSLO")
        yield machine


def _pod(name: str, qos: str, priority_class: str, words: list[str]) -> PodBuilder:
    builder = pod(name).label(PRIORITY_CLASS_LABEL, priority_class)
    builder.manifest["spec"]["containers"][0]["command"] = words
    return builder.qos(qos) if qos else builder


def _requesting(builder: PodBuilder) -> PodBuilder:
    """With a request and no limit: of the class Burstable."""
    builder.manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return builder


def _measured(machine: _Machine, mode: str, seconds: float) -> dict[str, float]:
    """One measurement: p50 and p99 in milliseconds, cores of the load, and the part of the machine that others used."""
    spin = command("--cores", str(machine.cpus))
    load = _pod("load", "BE", "koord-batch", spin) if mode == WITH else _requesting(_pod("load", "", "", spin))
    with ExitStack() as stack:
        if mode == WITH:
            agent = running_koordlet(machine.cluster, machine.node, Path("/"), "CoreSched", parent=machine.parent)
            stack.enter_context(agent)
        if mode != ALONE:
            machine.start(load)
            stack.callback(machine.end, "load")
        machine.cluster.pass_time(SETTLE if mode == WITH else 1.0)
        counters = _counters(machine)
        begin = time.monotonic()
        machine.cluster.pass_time(seconds)
        end = time.monotonic()
        pods, best_effort, node = (after - before for before, after in zip(counters, _counters(machine), strict=True))
    caught_up = machine.cluster.wait(lambda: machine.answered(end), within=CATCH_UP)
    ordered = sorted(machine.latencies(begin, end))
    if not ordered:
        raise SubjectError("the latency-sensitive pod serves no requests")
    own = machine.cpus / INTERVAL * WORK
    return {
        "p50": percentile(ordered, 50),
        "p99": percentile(ordered, 99),
        "best_effort_cores": {
            ALONE: 0.0,
            WITHOUT: max(pods / (end - begin) - own, 0),
            WITH: best_effort / (end - begin),
        }[mode],
        "others": max(node - pods, 0) / (end - begin) / machine.cpus,
        "behind": not caught_up,
    }


def _counters(machine: _Machine) -> tuple[float, float, float]:
    """CPU seconds of all pods, of best-effort pods, and of the whole machine."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split()
    node = sum(int(fields[place]) for place in _BUSY) / _TICKS
    return machine.used("kubepods"), machine.used("kubepods/besteffort"), node


def _calibrated() -> int:
    """Iterations that take `WORK` on this machine when nothing disturbs: the fastest of some attempts counts."""
    iterations = 1000

    def timed(call: Callable[[int], object]) -> float:
        begin = time.perf_counter()
        call(iterations)
        return time.perf_counter() - begin

    return max(1, round(iterations * WORK / min(timed(work) for _ in range(200))))


def draw(figures: dict[str, Any], path: Path) -> None:
    """Write a PNG with p50, p99 and the cores of the load, a bar for each of the three with its interval."""
    figure = new_figure(9, 3.2)
    panels = (("p50_ms", "p50, ms"), ("p99_ms", "p99, ms"), ("best_effort_cores", "cores of the load"))
    for axes, (name, title) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for place, (mode, words) in enumerate(MODES.items()):
            value = figures["modes"][mode][name]
            error = [[value["median"] - value["low"]], [value["high"] - value["median"]]]
            axes.bar(place, value["median"], yerr=error, capsize=4, label=words, color=f"C{place}")
            axes.annotate(
                f"{value['median']:,.{0 if value['median'] >= 100 else 2}f}",
                (place, value["high"]),
                ha="center",
                va="bottom",
                fontsize=8,
            )
        axes.set(title=title, xticks=[], **({"yscale": "log"} if name.endswith("_ms") else {}))
        axes.grid(visible=True, axis="y", alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=110)
