"""Nodes that a client made in KWOK's format, on a little API: which the agents take care of, and how large they are."""

from collections.abc import Mapping
from typing import Any

import pytest

from seatrial.harness.nodes.fleet import SIMULATED_LABEL
from seatrial.harness.nodes.kwok import is_simulated
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.scheduler.api.clock import SimClock

FAKE = {"kwok.x-k8s.io/node": "fake"}
NODES = "/api/v1/nodes"


@pytest.mark.parametrize(
    ("labels", "annotations", "simulated"),
    [
        pytest.param({}, FAKE, True, id="kwok"),
        pytest.param({SIMULATED_LABEL: "true"}, {}, True, id="our-label"),
        pytest.param({SIMULATED_LABEL: "a1b2"}, FAKE, False, id="a-node-of-a-run"),
        pytest.param({"type": "kwok"}, {"kwok.x-k8s.io/node": "real"}, False, id="another-value"),
        pytest.param({}, {}, False, id="any-other-node"),
    ],
)
def test_which_nodes_are_simulated(labels: Mapping[str, str], annotations: Mapping[str, str], simulated: bool) -> None:
    assert is_simulated(labels, annotations) is simulated


class Rig:
    """Agents that take care of all nodes that are simulated."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.api = LittleApi(self.clock)
        self.agents = NodeAgents(self.api, self.clock, selector="", cares_for=is_simulated)
        self.agents.start()
        self.clock.settle()

    def add(self, name: str, status: Mapping[str, Any], annotations: Mapping[str, str] = FAKE) -> dict[str, Any]:
        """Create a Node as a client does; return it once the agents have done their work."""
        body = {"metadata": {"name": name, "labels": {}, "annotations": dict(annotations)}, "status": dict(status)}
        self.api.put(NODES, body)
        self.clock.settle()
        return self.api.get(f"{NODES}/{name}")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def ready(node: Mapping[str, Any]) -> str:
    """The status of the condition Ready; empty without one."""
    return next((each["status"] for each in node["status"].get("conditions", ()) if each["type"] == "Ready"), "")


def test_a_fake_node_is_ready_with_the_size_of_its_manifest(rig: Rig) -> None:
    """Resources that are not kubelet's own stay as the manifest has them."""
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    node = rig.add("kwok-0", {"allocatable": amounts})
    assert ready(node) == "True"
    assert node["status"]["capacity"] | {"ephemeral-storage": ""} == {
        "cpu": "32",
        "memory": "268435456Ki",
        "pods": "110",
        "ephemeral-storage": "",
    }
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert rig.api.has("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/kwok-0")


def test_a_fake_node_without_a_size_has_that_of_a_plain_node(rig: Rig) -> None:
    assert ready(rig.add("kwok-0", {})) == "True"


def test_another_node_is_left_alone(rig: Rig) -> None:
    node = rig.add("real", {}, annotations={})
    assert ready(node) == ""
    assert rig.api.writes("real") == []


def test_a_node_that_is_not_fake_any_more_gets_no_lease_renewals(rig: Rig) -> None:
    rig.add("kwok-0", {})
    rig.api.patch(f"{NODES}/kwok-0", {"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}})
    rig.clock.settle()
    before = len(rig.api.sent)
    rig.clock.advance(60)
    assert rig.api.sent[before:] == []


def test_a_size_that_is_no_quantity_is_a_condition_of_the_node(rig: Rig) -> None:
    node = rig.add("kwok-0", {"capacity": {"cpu": "many"}})
    assert ready(node) == "False"
    assert "many" in next(each["message"] for each in node["status"]["conditions"] if each["type"] == "Ready")


def test_a_pod_that_runs_with_a_real_nodes_card_stays(rig: Rig) -> None:
    """As in a snapshot of a real cluster. A new pod is refused: there is no card."""
    rig.add("kwok-0", {})
    card = '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}]}'
    for name, started in (("old", True), ("new", False)):
        status = {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]} if started else {}
        body = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": {"scheduling.koordinator.sh/device-allocated": card},
            },
            "spec": {"nodeName": "kwok-0", "containers": [{"name": "c"}]},
            "status": status,
        }
        rig.api.put("/api/v1/namespaces/default/pods", body)
    rig.clock.advance(5)
    phases = {
        name: rig.api.get(f"/api/v1/namespaces/default/pods/{name}")["status"]["phase"] for name in ("old", "new")
    }
    assert phases == {"old": "Running", "new": "Failed"}
