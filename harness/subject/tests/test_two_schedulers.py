"""Two of our schedulers as processes over one API server: one leads, the other takes over when it is killed."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.subject.process import ProcessSubject, our_command
from seatrial.harness.subject.protocol import OURS
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: 4s
  renewDeadline: 3500ms
  retryPeriod: 300ms
  resourceName: two-schedulers
profiles:
  - schedulerName: default-scheduler
"""


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedBackend().start() as started:
        started.add_nodes([node("a").gpus("a10", 8), node("b").gpus("a10", 8)])
        yield started


def electing(cluster: EmbeddedCluster, config: Path) -> list[str]:
    assert cluster.endpoint is not None
    return [*our_command(cluster.endpoint.kubeconfig, 0, config), "--port", "0"]


def submit(cluster: EmbeddedCluster, *names: str) -> None:
    for name in names:
        body = orjson.dumps(pod(name).gpus(1).manifest)
        accepted(cluster.call(Request("POST", PODS, body)), f"create {name}")


def granted(cluster: EmbeddedCluster) -> dict[str, tuple[str, int]]:
    """Where each bound pod is: node and number of its card."""
    items = orjson.loads(accepted(cluster.call(Request("GET", PODS)), "list pods").body)["items"]
    node_names = {}
    for stored in items:
        if stored["spec"].get("nodeName"):
            devices = orjson.loads(stored["metadata"]["annotations"][DEVICE_ALLOCATED])["gpu"]
            node_names[stored["metadata"]["name"]] = (stored["spec"]["nodeName"], devices[0]["minor"])
    return node_names


def test_the_other_takes_over_when_the_leader_is_killed(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    command = electing(cluster, config)
    first = [f"p{number}" for number in range(8)]
    second = [f"p{number}" for number in range(8, 16)]
    with ExitStack() as stack:
        both = [
            stack.enter_context(ProcessSubject(OURS, command, log_file=tmp_path / f"{number}.log"))
            for number in range(2)
        ]

        def leaders() -> list[ProcessSubject]:
            return [scheduler for scheduler in both if "leader elected" in scheduler.log()]

        assert cluster.wait(lambda: bool(leaders()), within=60)
        (leader,) = leaders()
        submit(cluster, *first)
        assert cluster.wait(lambda: len(granted(cluster)) == 8, within=60)
        before = granted(cluster)

        os.kill(leader.pid, signal.SIGKILL)
        submit(cluster, *second)
        assert cluster.wait(lambda: len(granted(cluster)) == 16, within=60), [scheduler.log() for scheduler in both]
        assert len(leaders()) == 2, "the pods after the kill can only have been bound by the other"

        after = granted(cluster)
        assert {name: after[name] for name in first} == before, "no pod was moved"
        assert len(set(after.values())) == 16, "every card was given to one pod"


def test_a_leader_that_is_told_to_stop_does_not_keep_the_other_waiting(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.replace("4s", "120s").replace("3500ms", "60s"))
    command = electing(cluster, config)
    with ProcessSubject(OURS, command, log_file=tmp_path / "0.log") as leader:
        assert cluster.wait(lambda: "leader elected" in leader.log(), within=60)
        with ProcessSubject(OURS, command, log_file=tmp_path / "1.log") as other:
            os.kill(leader.pid, signal.SIGTERM)
            assert cluster.wait(lambda: "leader elected" in other.log(), within=60), other.log()
