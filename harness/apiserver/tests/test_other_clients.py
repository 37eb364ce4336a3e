"""kr8s, lightkube and an operator of kopf, unchanged."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from seatrial.harness.apiserver.tests.foreign import WITHIN, wait_until
from seatrial.harness.apiserver.tests.kubectl import MANIFESTS
from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

OPERATOR = Path(__file__).with_name("operator_boats.py")


def kubeconfig(embedded: EmbeddedCluster) -> str:
    assert embedded.endpoint is not None
    return str(embedded.endpoint.kubeconfig)


def pod(name: str, namespace: str) -> dict[str, Any]:
    spec = {"nodeName": "cpu-0", "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.mark.filterwarnings("ignore")  # of its own dependencies
def test_kr8s(embedded: EmbeddedCluster, namespace: str) -> None:
    import kr8s
    from kr8s.objects import Pod

    api = kr8s.api(kubeconfig=kubeconfig(embedded))
    assert "cpu-0" in {node.name for node in kr8s.get("nodes", api=api)}
    made = Pod(pod("a", namespace), api=api)
    made.create()
    made.wait("condition=Ready", timeout=WITHIN)
    made.label({"x": "y"})
    made.patch({"metadata": {"labels": {"z": "1"}}})
    assert made.labels == {"x": "y", "z": "1"}
    assert next(iter(kr8s.watch("pods", namespace=namespace, api=api)))[0] == "ADDED"
    made.delete()
    wait_until(lambda: not made.exists(), "the pod's end")


@pytest.mark.filterwarnings("ignore")
def test_lightkube(embedded: EmbeddedCluster, namespace: str) -> None:
    from lightkube import Client, KubeConfig, codecs
    from lightkube.generic_resource import get_generic_resource, load_in_cluster_generic_resources
    from lightkube.resources.core_v1 import ConfigMap, Pod

    client = Client(config=KubeConfig.from_file(kubeconfig(embedded)), field_manager="lightkube", namespace=namespace)
    client.create(codecs.from_dict(pod("a", namespace)))
    client.wait(Pod, "a", for_conditions=["Ready"])
    client.patch(Pod, "a", {"metadata": {"labels": {"x": "y"}}})
    result = client.get(Pod, "a")
    result.metadata.labels["z"] = "1"
    assert client.replace(result).metadata.labels == {"x": "y", "z": "1"}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}
    assert client.apply(codecs.from_dict({**settings, "data": {"a": "b"}})).data == {"a": "b"}
    assert client.apply(codecs.from_dict({**settings, "data": {"c": "d"}})).data == {"c": "d"}
    load_in_cluster_generic_resources(client)
    groups = get_generic_resource("scheduling.sigs.k8s.io/v1alpha1", "PodGroup")
    client.create(groups(metadata={"name": "g", "namespace": namespace}, spec={"minMember": 2}))
    assert client.get(groups, "g").spec == {"minMember": 2}
    assert next(iter(client.watch(Pod)))[0] == "ADDED"
    client.delete(ConfigMap, "c")
    assert [item.metadata.name for item in client.list(ConfigMap) if item.metadata.name == "c"] == []


def test_kopf(embedded: EmbeddedCluster, namespace: str, tmp_path: Path) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = yaml.safe_load((MANIFESTS / "cluster_crd.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"]["x-kubernetes-preserve-unknown-fields"] = True
    boats = f"/apis/sea.example.com/v1/namespaces/{namespace}/boats"

    def call(method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        answer = embedded.call(Request(method, path, b"" if body is None else orjson.dumps(body), kind))
        return answer.code, orjson.loads(answer.body)

    def status() -> dict[str, Any]:
        entry: dict[str, Any] = call("GET", f"{boats}/dory")[1].get("status") or {}
        return entry

    assert call("POST", definitions, definition)[0] == 201
    log = tmp_path / "log"
    try:
        with (
            log.open("wb") as sink,
            subprocess.Popen(
                [sys.executable, "-m", "kopf", "run", str(OPERATOR), "-n", namespace],
                stdout=sink,
                stderr=sink,
                env={**os.environ, "KUBECONFIG": kubeconfig(embedded)},
            ) as operator,
        ):
            try:
                assert call("POST", boats, yaml.safe_load((MANIFESTS / "boat.yaml").read_text()))[0] == 201
                wait_until(lambda: status().get("made") == {"sail": "gaff"}, "the handler of creations")
                call("PATCH", f"{boats}/dory", {"spec": {"oars": 7}}, MERGE_PATCH)
                wait_until(lambda: status().get("oars") == 7, "the handler of updates")
                call("DELETE", f"{boats}/dory")
                wait_until(lambda: call("GET", f"{boats}/dory")[0] == 404, "the end of the boat")
            finally:
                operator.terminate()
    finally:
        call("DELETE", f"{definitions}/boats.sea.example.com")
    assert "gone dory" in log.read_text()
