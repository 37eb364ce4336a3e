"""`seatrial audit` of a cluster whose pods were bound before: by hand, to a card that another pod has."""

import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.nodes.fleet import fleet_path
from seatrial.harness.tests.command_line import run_command
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with EmbeddedBackend().start(fleet=fleet_path("default")) as cluster:
        _bind(cluster, "fits", cpu=1)
        _bind(cluster, "large", cpu=100_000)
        assert cluster.endpoint is not None
        yield cluster.endpoint.kubeconfig


def _bind(cluster: EmbeddedCluster, name: str, *, cpu: int) -> None:
    """Bind a pod by hand, and wait until its node has admitted or refused it."""
    node = orjson.loads(cluster.call(Request("GET", "/api/v1/nodes")).body)["items"][0]["metadata"]["name"]
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    assert cluster.call(Request("POST", PODS, orjson.dumps(pod(name).request(cpu=cpu).manifest))).ok
    assert cluster.call(Request("POST", f"{PODS}/{name}/binding", orjson.dumps(binding))).ok
    path = Request("GET", f"{PODS}/{name}")
    assert cluster.wait(lambda: orjson.loads(cluster.call(path).body)["status"]["phase"] != "Pending", within=30)


def test_a_pod_that_its_node_refused_is_told_after_the_fact(kubeconfig: Path) -> None:
    ended = run_command("audit", "--kubeconfig", str(kubeconfig), "--for", "0")
    assert ended.returncode == 1
    refused, summary = ended.stdout.splitlines()
    assert refused.startswith("pod default/large was refused by its node ")
    assert ": OutOfcpu: " in refused
    assert summary.endswith("nodes: no violations, 1 pod refused by their nodes")
    assert summary.startswith("2 pods on ")


@pytest.mark.parametrize(("namespace", "names", "status"), [("default", ["default/large"], 1), ("other", [], 0)])
def test_only_those_of_a_namespace_are_reported(
    kubeconfig: Path, namespace: str, names: list[str], status: int
) -> None:
    ended = run_command("audit", "--kubeconfig", str(kubeconfig), "--for", "0.1", "--json", "--namespace", namespace)
    assert [refusal["pod"] for refusal in json.loads(ended.stdout)["refused"]] == names
    assert ended.returncode == status
    assert ended.stderr.startswith("following 2 pods for 0.1 s")
