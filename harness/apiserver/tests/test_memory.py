"""What a server keeps while objects come and go: after warming up, as many objects as before."""

import gc
from collections import Counter, deque

import pytest

from seatrial.harness.apiserver.controllers import event_expiry
from seatrial.harness.apiserver.controllers.tests.bench import Bench, running, workload
from seatrial.harness.apiserver.storage import store

CONTAINERS = [{"name": "c", "image": "i", "command": ["sh", "-c", "true"]}]
TURN = 10  # seconds
WORKLOADS = 30  # of each kind in a quarter of an hour


def turn(bench: Bench, number: int, pods: deque[str]) -> None:
    """Create and delete objects of the kinds with controllers; each third turn workloads and a namespace."""
    name = f"x{number}"
    bench.create("pods", {"metadata": {"name": name}, "spec": {"containers": CONTAINERS}})
    pods.append(name)
    if len(pods) > 5:
        bench.delete("pods", pods.popleft(), "?gracePeriodSeconds=1")
    if number % 3 == 0:
        template = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
        bench.create("jobs", {"metadata": {"name": name}, "spec": {"ttlSecondsAfterFinished": 5, "template": template}})
        bench.create("deployments", workload(name, 2))
        bench.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        bench.call(
            "POST", f"/api/v1/namespaces/{name}/pods", {"metadata": {"name": name}, "spec": {"containers": CONTAINERS}}
        )
        bench.create("daemonsets", workload(f"d{number}"))
        bench.settle(1)
        for pod in bench.names("pods"):
            if pod.startswith(f"d{number}-"):
                bench.patch("pods", pod, {"status": {"phase": "Failed"}}, "status")
        if number:
            bench.delete("deployments", f"x{number - 3}")
            bench.delete("daemonsets", f"d{number - 3}")
            bench.call("DELETE", f"/api/v1/namespaces/x{number - 3}")
    bench.settle(TURN)


def kept() -> Counter[str]:
    gc.collect()
    return Counter(
        f"{type(item).__module__}.{type(item).__qualname__}"
        for item in gc.get_objects()
        if str(type(item).__module__).startswith("seatrial.") or type(item) in {dict, list, set, deque}
    )


def test_a_cluster_keeps_no_more_objects_after_half_an_hour_than_after_a_quarter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Events live for five minutes here, and a history has 20 changes, so that both are full soon."""
    monkeypatch.setattr(event_expiry, "TTL", 300.0)
    monkeypatch.setattr(store, "KEPT", 20)
    monkeypatch.setattr("seatrial.scheduler.cache.tallies.MIN_TALLIES", 8)
    with running(nodes=2) as bench:
        pods: deque[str] = deque()
        half = 900 // TURN
        for number in range(half):
            turn(bench, number, pods)
        before = kept()
        for number in range(half, 2 * half):
            turn(bench, number, pods)
        grown = {name: more for name, more in (kept() - before).items() if more >= WORKLOADS // 2}
        assert not grown
