"""The YARN operator with Hadoop's own ResourceManager and NodeManager (YN-2, YN-3).

$SEATRIAL_HADOOP names a folder with their jars (docs/colocation.md). Skipped without it, or without Java.
"""

import json
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.embedded import EmbeddedBackend
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.processes import program, start_logged
from seatrial.harness.subject.services import LOOPBACK, free_port
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY, ORIGIN_ALLOCATABLE, THIRD_PARTY_ALLOCATIONS
from seatrial.scheduler.api.transport import Request
from seatrial.scheduler.api.wire import to_json

JARS = os.environ.get("SEATRIAL_HADOOP", "")
pytestmark = [
    pytest.mark.skipif(not JARS, reason="SEATRIAL_HADOOP names no folder with the jars of Hadoop's YARN"),
    pytest.mark.skipif(shutil.which("java") is None, reason="no Java runtime (Debian: default-jre-headless)"),
]

WITHIN = 90.0  # seconds: Java starts slowly
NODE, PODS = "/api/v1/nodes/n1", "/api/v1/namespaces/default/pods"
MANAGER = "org.apache.hadoop.yarn.server"
OPEN = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "io", "net")]


def configuration(settings: dict[str, object]) -> str:
    rows = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    return f"<configuration>{''.join(rows)}</configuration>"


class Yarn:
    """A ResourceManager, with one NodeManager whose identity is `node`."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self._cleanup, self._folder = cleanup, folder
        ports = {
            name: f"{LOOPBACK}:{free_port()}"
            for name in ("web", "rm", "scheduler", "tracker", "admin", "nm", "localizer")
        }
        self.address = f"http://{ports['web']}"
        yarn = {
            "resourcemanager.webapp.address": ports["web"],
            "resourcemanager.address": ports["rm"],
            "resourcemanager.scheduler.address": ports["scheduler"],
            "resourcemanager.resource-tracker.address": ports["tracker"],
            "resourcemanager.admin.address": ports["admin"],
            "nodemanager.address": ports["nm"],
            "nodemanager.localizer.address": ports["localizer"],
            "nodemanager.webapp.address": f"{LOOPBACK}:0",
            "nodemanager.local-dirs": folder / "local",
            "nodemanager.log-dirs": folder / "logs",
            "nodemanager.resource.memory-mb": 1024,
            "nodemanager.resource.cpu-vcores": 1,
            "nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.9,
            "scheduler.capacity.root.queues": "default",
            "scheduler.capacity.root.default.capacity": 100,
            "scheduler.capacity.maximum-am-resource-percent": 1.0,
            "scheduler.capacity.resource-calculator": "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator",
        }
        settings = configuration({f"yarn.{name}": value for name, value in yarn.items()})
        for name in ("yarn-site.xml", "capacity-scheduler.xml"):
            (folder / name).write_text(settings)
        (folder / "core-site.xml").write_text(configuration({"hadoop.tmp.dir": folder / "data"}))
        self._start("resourcemanager.ResourceManager")
        self._start("nodemanager.NodeManager")

    def _start(self, name: str) -> None:
        command = ["java", "-Xmx400m", *OPEN, "-cp", f"{self._folder}:{JARS}/*", f"{MANAGER}.{name}"]
        start_logged(command, self._folder / f"{name}.log", self._cleanup)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """What the REST API says; None while it does not answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 our own address
            f"{self.address}/ws/v1/cluster{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                text = response.read()
        except OSError:
            return None
        return json.loads(text) if text else {}

    @property
    def node(self) -> dict[str, Any] | None:
        nodes = ((self.call("GET", "/nodes") or {}).get("nodes") or {}).get("node") or []
        return next((each for each in nodes if each["state"] == "RUNNING"), None)

    def size(self) -> tuple[int, int] | None:
        """Virtual cores and MiB."""
        of = self.node
        if of is None:
            return None
        cores, size = (f"{state}VirtualCores" for state in ("available", "used")), ("availMemoryMB", "usedMemoryMB")
        return sum(of[name] for name in cores), sum(of[name] for name in size)


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[Yarn]:
    with ExitStack() as cleanup:
        yield Yarn(tmp_path, cleanup)


def awaited(cluster: Cluster, look: Callable[[], object], expected: object) -> None:
    assert cluster.wait(lambda: look() == expected, within=WITHIN), f"expected {expected}, found {look()}"


def test_yarn_gets_what_pods_leave_and_its_containers_are_known(yarn: Yarn, tmp_path: Path) -> None:
    """A container of 1 GiB and two virtual cores; the NodeManager grows when a pod has gone."""
    origin = json.dumps({"resources": {BATCH_CPU: "5000", BATCH_MEMORY: "4Gi"}})
    with EmbeddedBackend().start() as cluster, ExitStack() as cleanup:

        def post(path: str, body: dict[str, Any]) -> None:
            accepted(cluster.call(Request("POST", path, to_json(body))), path)

        def allocated() -> dict[str, str]:
            response = cluster.call(Request("GET", NODE))
            text = json.loads(response.body)["metadata"]["annotations"].get(THIRD_PARTY_ALLOCATIONS, "")
            amounts: dict[str, str] = json.loads(text)["allocations"][0]["resources"] if text else {}
            return amounts

        log = tmp_path / "nodemanager.NodeManager.log"
        assert cluster.wait(lambda: yarn.node is not None, within=WITHIN), log.read_text()[-2000:]
        assert yarn.node is not None
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        post(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n1", "annotations": {ORIGIN_ALLOCATABLE: origin}},
                "status": {"capacity": amounts, "allocatable": amounts},
            },
        )
        for name, annotations in (("nm", {"yarn.hadoop.apache.org/node-id": yarn.node["id"]}), ("other", {})):
            one = pod(name).resources({BATCH_CPU: 1000, BATCH_MEMORY: "1Gi"}).node_name("n1")
            for key, value in annotations.items():
                one.annotation(key, value)
            post(PODS, one.manifest)
        assert cluster.endpoint is not None
        options = ("--kubeconfig", str(cluster.endpoint.kubeconfig), "--resource-manager", yarn.address)
        start_logged([*program("seatrial.scheduler.yarn"), *options], tmp_path / "operator.log", cleanup)
        awaited(cluster, yarn.size, (4, 3072))
        awaited(cluster, allocated, {BATCH_CPU: "0", BATCH_MEMORY: "0"})

        app = yarn.call("POST", "/apps/new-application")["application-id"]
        container = {"commands": {"command": "sleep 300"}}
        resource = {"memory": 1024, "vCores": 2}
        body = {"application-id": app, "am-container-spec": container, "resource": resource, "max-app-attempts": 1}
        yarn.call("POST", "/apps", body)
        awaited(cluster, allocated, {BATCH_CPU: "2000", BATCH_MEMORY: "1Gi"})
        assert cluster.call(Request("DELETE", f"{PODS}/other?gracePeriodSeconds=0")).ok
        awaited(cluster, yarn.size, (5, 4096))
        yarn.call("PUT", f"/apps/{app}/state", {"state": "KILLED"})
        awaited(cluster, allocated, {BATCH_CPU: "0", BATCH_MEMORY: "0"})
