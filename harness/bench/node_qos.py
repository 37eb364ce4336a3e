"""`bench node-qos`: what usage reports, the manager and one node agent cost.

Reports: simulated nodes whose pods use CPU and memory, for a minute of virtual time. Manager: the reports of that
minute arrive, each is read, and what each node offers is calculated, compared and, where it differs, written. Agent: a
process over a fake root, which measures every second; the pods of its node are a real cluster's.
"""

import gc
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson

from seatrial.fake_devices.noderoot import NodeRoot
from seatrial.harness.bench.core import Progress
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.backends import EMBEDDED, backend_named
from seatrial.harness.errors import SubjectError
from seatrial.harness.nodes.pods import BoundPod, decode_pod
from seatrial.harness.nodes.usage import NODE_METRICS, NodeUse, UsageReports, scripted_use
from seatrial.harness.nodes.usage_model import UsageModel
from seatrial.harness.nodes.usage_samples import longest
from seatrial.harness.nodes.writer import Writer
from seatrial.harness.sample_statistics import rounded, spread
from seatrial.harness.subject.koordlet import running_koordlet
from seatrial.harness.subject.manager import build_manager
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from seatrial.scheduler.api.slo import CONFIG_COLOCATION, CONFIG_NAME, CONFIG_NAMESPACE, CollectPolicy
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response

MINUTE = 60.0
CPU, MEMORY = 64, 256 << 30  # of a node
REPORTS_BUDGET, ROUND_BUDGET = 50.0, 1.0  # percent of a core, seconds
AGENT_BUDGET, AGENT_MEMORY = 2.0, 100.0  # percent of a core, MiB
WITHIN = 60.0  # seconds in which the pods of the agent's node run
METRICS, NODES, PODS, CONFIGS, DEVICES = "nodemetrics", "nodes", "pods", "configmaps", "devices"
CARDS = 8  # of a node
_TICKS = os.sysconf("SC_CLK_TCK")
_SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": CONFIG_NAME, "namespace": CONFIG_NAMESPACE, "uid": "config", "resourceVersion": "1"},
    "data": {CONFIG_COLOCATION: '{"enable": true}'},
}


class _Api:
    """An API server in memory: answers lists, keeps objects that are patched, shows changes to watches."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {}  # by the end of the collection's path, and name
        self.reports: dict[str, bytes] = {}  # bodies of the last patch of each NodeMetric's status
        self.writes = 0
        self._watches: dict[str, OnLine] = {}
        self._version = 1

    def send(self, request: Request, done: Done) -> None:
        words = request.path.partition("?")[0].split("/")
        if request.method == "GET":
            items = list(self.objects.get(words[-1], {}).values())
            done(Response(200, orjson.dumps({"metadata": {"resourceVersion": "1"}, "items": items})))
            return
        self._version += 1
        if request.method == "POST":
            known = orjson.loads(request.body)
            known["metadata"] |= {"uid": f"uid-{words[-1]}-{known['metadata']['name']}"}
            self.objects.setdefault(words[-1], {})[known["metadata"]["name"]] = known
        elif words[-1] == "status" and words[-3] == METRICS:
            self.reports[words[-2]] = request.body
            known = {"metadata": {}}
        else:
            self.writes += 1
            kind, name = words[-3:-1] if words[-1] == "status" else words[-2:]
            known = self.objects[kind][name]
            _merge(known, orjson.loads(request.body))
        known["metadata"]["resourceVersion"] = str(self._version)
        body = orjson.dumps(known)
        if request.method == "POST":
            self.show(words[-1], body, b"ADDED")
        done(Response(200, body))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> "_Api":  # noqa: ARG002 it never ends
        self._watches[request.path.partition("?")[0].rpartition("/")[2]] = on_line
        return self

    def close(self) -> None:
        """A watch that is closed: this one shows what it is given."""

    def show(self, kind: str, manifest: bytes, event: bytes = b"MODIFIED") -> None:
        if kind in self._watches:
            self._watches[kind](b'{"type":"%s","object":%s}' % (event, manifest))


def _merge(known: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7386."""
    for name, value in patch.items():
        if value is None:
            known.pop(name, None)
        elif isinstance(value, dict):
            _merge(known.setdefault(name, {}), value)
        else:
            known[name] = value


def bench_node_qos(  # noqa: PLR0917
    nodes: int, pods: int, rounds: int, agent_pods: int, agent_seconds: float, progress: Progress, *, seed: int
) -> dict[str, Any]:
    """Run the benchmark and return its figures.

    Args:
        nodes: number of nodes that report.
        pods: pods on each of them.
        rounds: minutes that are measured.
        agent_pods: pods of the agent's node.
        agent_seconds: how long the agent is measured.
        progress: called with a line of text after each part.
        seed: of the usage.

    Raises:
        SubjectError: the node agent did not start, or a node was offered nothing.
    """
    figures = _reports_and_manager(nodes, pods, rounds, progress, seed)
    agent = _agent(agent_pods, agent_seconds)
    progress(f"agent: {agent['core_percent']} % of a core, {agent['resident_mib']} MiB")
    return {
        "nodes": nodes,
        "pods_per_node": pods,
        **figures,
        "agent_pods": agent_pods,
        "agent": agent,
        "within_budget": {
            "reports": figures["reports_core_percent"]["median"] <= REPORTS_BUDGET,
            "manager": figures["manager_round_seconds"]["median"] <= ROUND_BUDGET,
            "agent": agent["core_percent"] <= AGENT_BUDGET and agent["resident_mib"] <= AGENT_MEMORY,
        },
    }


def _reports_and_manager(nodes: int, pods: int, rounds: int, progress: Progress, seed: int) -> dict[str, Any]:
    clock, api = SimClock(), _Api()
    names = [f"node-{number}" for number in range(nodes)]
    policy = CollectPolicy(aggregate_duration_seconds=300, report_interval_seconds=int(MINUTE))
    plain_policy = {"aggregateDurationSeconds": 300, "reportIntervalSeconds": int(MINUTE)}
    plain_policy |= {"nodeAggregatePolicy": {"durations": ["5m", "10m", "30m"]}}  # type: ignore[dict-item]
    plain_policy |= {"nodeMemoryCollectPolicy": "usageWithoutPageCache"}  # type: ignore[dict-item]
    metrics = {
        name: {
            "metadata": {"name": name, "uid": f"metric-{name}", "resourceVersion": "1"},
            "spec": {"metricCollectPolicy": plain_policy},
        }
        for name in names
    }
    look = _simulated(names, pods, clock, seed)
    api.objects = {
        METRICS: metrics,
        NODES: {name: _node(name) for name in names},
        DEVICES: {name: _device(name) for name in names},
        CONFIGS: {CONFIG_NAME: _SETTINGS},
    }
    reports = UsageReports(api, clock, Writer(api, clock), look)
    reports.start()
    clock.advance(2000.0)  # so that the longest durations are full
    own_clock = SimClock(clock.now())
    manager = build_manager(api, own_clock)
    manager.start()
    for name in names:
        for number in range(pods):
            api.show(PODS, orjson.dumps(_pod(f"{name}-{number}", name)), b"ADDED")
    _deliver(api, names)
    if not api.writes:
        raise SubjectError("no node was offered anything")
    spent: list[float] = []
    round_seconds: list[float] = []
    gc.collect()
    gc.freeze()
    for number in range(rounds):
        begin = time.process_time()
        clock.advance(MINUTE)
        middle = time.process_time()
        lines = _lines(api, names)
        begin_round = time.process_time()
        _deliver(api, names, lines)
        own_clock.advance(MINUTE)
        round_seconds.append(time.process_time() - begin_round)
        spent.append(100 * (middle - begin) / MINUTE)
        progress(f"minute {number + 1} of {rounds}: reports {spent[-1]:.1f} %, manager {round_seconds[-1]:.2f} s")
    gc.unfreeze()
    assert longest(policy) <= 2000.0
    return {
        "reports_core_percent": rounded(spread(spent), 2),
        "manager_round_seconds": rounded(spread(round_seconds), 3),
    }


def _simulated(names: list[str], pods: int, clock: SimClock, seed: int) -> Callable[[str, CollectPolicy], NodeUse]:
    """What a node does, as its simulated agent measures it: a function of its name."""
    models, bound = {}, {}
    for name in names:
        models[name] = model = UsageModel(clock, name, seed)
        model.set_node('{"cpu": "2", "memory": "8Gi", "noise": 5}')
        bound[name] = [_bound(f"{name}-{number}", name) for number in range(pods)]
        for each in bound[name]:
            model.started(each.metadata.uid, each.key, '{"cpu": "1", "memory": "4Gi", "noise": 20}')

    def look(name: str, policy: CollectPolicy) -> NodeUse:
        samples, load = models[name].measure(longest(policy))
        uses = (scripted_use(each, (), samples.get(each.metadata.uid)) for each in bound[name])
        return NodeUse((), tuple(uses), load)

    return look


def _lines(api: _Api, names: list[str]) -> list[bytes]:
    """The last reports as objects: what a watch would show."""
    metrics = api.objects[METRICS]
    return [orjson.dumps(metrics[name] | orjson.loads(api.reports[name])) for name in names if name in api.reports]


def _deliver(api: _Api, names: list[str], lines: list[bytes] | None = None) -> None:
    for line in _lines(api, names) if lines is None else lines:
        api.show(METRICS, line)


def _node(name: str) -> dict[str, Any]:
    amounts = {"cpu": str(CPU), "memory": str(MEMORY)}
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {}, "annotations": {}}
    return {"metadata": metadata, "status": {"capacity": dict(amounts), "allocatable": dict(amounts)}}


def _device(name: str) -> dict[str, Any]:
    amounts = {GPU_CORE: "100", GPU_MEMORY: "80Gi", GPU_MEMORY_RATIO: "100"}
    cards = [{"type": "gpu", "minor": minor, "health": True, "resources": amounts} for minor in range(CARDS)]
    return {"metadata": {"name": name, "uid": f"device-{name}", "resourceVersion": "1"}, "spec": {"devices": cards}}


def _pod(name: str, where: str) -> dict[str, Any]:
    manifest = pod(name).request(cpu="2", memory="8Gi").qos("LS").node_name(where).manifest
    manifest["metadata"] |= {"namespace": "bench", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {**manifest, "status": {"phase": "Running"}}


def _bound(name: str, where: str) -> BoundPod:
    return decode_pod(msgspec.Raw(orjson.dumps(_pod(name, where))))


def _agent(pods: int, seconds: float) -> dict[str, float]:
    """Percent of a core and MiB of an agent; `pods`: of its node, each with one container."""
    with tempfile.TemporaryDirectory(prefix="seatrial-root-") as folder, backend_named(EMBEDDED).start() as cluster:
        cluster.add_nodes([node("n1").cpu(CPU).memory(str(MEMORY)).pods(2 * pods)])
        path = "/api/v1/namespaces/default/pods"
        for number in range(pods):
            body = pod(f"p{number}").request(cpu="100m").qos("LS" if number % 2 else "BE").node_name("n1").manifest
            body["metadata"]["namespace"] = "default"
            accepted(cluster.call(Request("POST", path, orjson.dumps(body))), "create a pod")
        metric = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "n1"}}
        slo = {**metric, "kind": "NodeSLO", "spec": {"resourceUsedThresholdWithBE": {"enable": True}}}
        accepted(cluster.call(Request("POST", NODE_METRICS, orjson.dumps(metric))), "create the NodeMetric")
        slos = NODE_METRICS.replace("nodemetrics", "nodeslos")
        accepted(cluster.call(Request("POST", slos, orjson.dumps(slo))), "create the NodeSLO")
        root = NodeRoot(Path(folder), cpus=CPU, memory=MEMORY)

        def running() -> list[dict[str, Any]]:
            items = orjson.loads(cluster.call(Request("GET", path)).body)["items"]
            return [each for each in items if each["status"].get("phase") == "Running"]

        if not cluster.wait(lambda: len(running()) == pods, within=WITHIN):
            raise SubjectError(f"expected {pods} running pods within {WITHIN:.0f} s, found {len(running())}")
        folders = []
        for each in running():
            (status,) = each["status"]["containerStatuses"]
            kind = {"Guaranteed": "", "Burstable": "burstable"}.get(each["status"]["qosClass"], "besteffort")
            container = status["containerID"].partition("://")[2]
            folders.append(root.pod(kind, each["metadata"]["uid"], container) + f"/{container}")
        with running_koordlet(cluster, "n1", Path(folder)) as process:
            assert process is not None
            samples = []
            for _ in range(max(1, round(seconds / 10))):
                before, begin = _seconds_of(process.pid), time.monotonic()
                for _ in range(math.ceil(min(seconds, 10))):
                    for group in folders:
                        root.use(group, 0.1, 64 << 20)
                    root.refresh()
                    cluster.pass_time(1.0)
                samples.append(100 * (_seconds_of(process.pid) - before) / (time.monotonic() - begin))
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            resident = int(status.partition("VmRSS:")[2].split()[0]) / 1024
    return {"core_percent": round(statistics.median(samples), 2), "resident_mib": round(resident, 1)}


def _seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
