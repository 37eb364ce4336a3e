"""`bench start`: time from starting the process to a cluster with ten Ready nodes that answers kubectl.

Then the first ElasticQuota is created: the process of its admission webhooks starts with that request.
"""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import orjson

from seatrial.harness.bench.core import Progress
from seatrial.harness.clusters.embedded import start_process
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.errors import ClusterError
from seatrial.harness.processes import stop
from seatrial.harness.sample_statistics import rounded, spread
from seatrial.scheduler.api.builders import quota
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.quota import QUOTAS_PATH

NODES = 10
WITHIN = 30.0  # seconds
_KUBECTL_WITHIN = 20.0
_CREATED = 201
FLEET = 'nodes:\n- {name: "node-[0-9]", server: dgx-h100}\n'


def bench_start(repeat: int, progress: Progress) -> dict[str, Any]:
    """Run the benchmark and return the documented fields of `bench start`.

    Raises:
        ClusterError: the cluster did not start.
    """
    kubectl = shutil.which("kubectl")
    ready: list[float] = []
    served: list[float] = []
    answered: list[float] = []
    quotas: list[float] = []
    for number in range(repeat):
        first, all_ready, value, created = _once(kubectl)
        served.append(first)
        quotas.append(created)
        ready.append(all_ready)
        if value:
            answered.append(value)
        progress(f"repetition {number + 1} of {repeat}: {NODES} nodes Ready after {ready[-1]:.2f} s")
    figures: dict[str, Any] = {
        "seconds": rounded(spread(answered or ready), 3),
        "asked_by": "kubectl get nodes" if answered else "GET /api/v1/nodes",
        "nodes": NODES,
        "repeat": repeat,
        "first_answer_seconds": rounded(spread(served), 3),
        "nodes_ready_seconds": rounded(spread(ready), 3),
        "first_quota_seconds": rounded(spread(quotas), 3),
    }
    return figures


def _once(kubectl: str | None) -> tuple[float, float, float, float]:
    """Seconds until the server answers, its nodes are Ready, and kubectl has printed them (0: no kubectl); and seconds
    for the creation of the first ElasticQuota."""
    with private_folder() as folder:
        kubeconfig, fleet = folder / "kubeconfig", folder / "fleet.yaml"
        fleet.write_text(FLEET)
        begin = time.perf_counter()
        process, url = start_process(kubeconfig, fleet=str(fleet), seed=0, port=0, log=folder / "log")
        try:
            first = time.perf_counter() - begin
            kubeconfig_kubectl = _by_kubectl(kubectl, kubeconfig, begin) if kubectl else 0.0
            ready = kubeconfig_kubectl or _by_requests(kubeconfig, url, begin)
            return first, ready, kubeconfig_kubectl, _first_quota(kubeconfig, url)
        finally:
            stop(process)


def _by_kubectl(kubectl: str, kubeconfig: Path, begin: float) -> float:
    command = [kubectl, "--kubeconfig", str(kubeconfig), "get", "nodes", "--no-headers"]
    lines: list[str] = []
    while time.perf_counter() - begin < WITHIN:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_KUBECTL_WITHIN)
        lines = [line for line in done.stdout.splitlines() if line.split()[1:2] == ["Ready"]]
        if len(lines) == NODES:
            return time.perf_counter() - begin
    raise ClusterError(f"kubectl get nodes: expected {NODES} Ready nodes within {WITHIN:.0f} s, found {len(lines)}")


def _by_requests(kubeconfig: Path, url: str, begin: float) -> float:
    access = load_access(kubeconfig)
    ready = 0
    with access.pool(connections=1) as pool:
        while time.perf_counter() - begin < WITHIN:
            answer = pool.request("GET", f"{url}/api/v1/nodes", headers=access.headers)
            ready = sum(_is_ready(node) for node in orjson.loads(answer.data)["items"])
            if ready == NODES:
                return time.perf_counter() - begin
            time.sleep(0.005)
    raise ClusterError(f"GET /api/v1/nodes: expected {NODES} Ready nodes within {WITHIN:.0f} s, found {ready}")


def _first_quota(kubeconfig: Path, url: str) -> float:
    access = load_access(kubeconfig)
    body = orjson.dumps(quota("first").max(cpu=1).manifest)
    path = QUOTAS_PATH.replace("/elasticquotas", "/namespaces/default/elasticquotas")
    with access.pool(connections=1) as pool:
        begin = time.perf_counter()
        headers = {**access.headers, "Content-Type": "application/json"}
        answer = pool.request("POST", f"{url}{path}", headers=headers, body=body)
    if answer.status != _CREATED:
        raise ClusterError(f"POST {path}: expected {_CREATED}, found {answer.status} {answer.data[:200]!r}")
    return time.perf_counter() - begin


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
