"""NodeSLOs: what the manager writes from the settings for the agents of nodes, and that they go with their nodes."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.manager import StartManager, write_config
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.slo import NODE_METRICS_PATH, NODE_SLOS_PATH
from seatrial.suites.qos.colocation import WITHIN, machine

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


def expect_spec(trial: Trial, name: str, expected: dict[str, Any]) -> None:
    """The fields of the spec of a node's NodeSLO by their path, as in `cpuBurstStrategy.policy`."""

    def spec() -> dict[str, Any]:
        answer = trial.call("GET", f"{NODE_SLOS_PATH}/{name}")
        fields: dict[str, Any] = {}
        for path in expected:
            value = orjson.loads(answer.body).get("spec") if answer.ok else None
            for part in path.split("."):
                value = (value or {}).get(part)
            fields[path] = value
        return fields

    assert trial.reaches(lambda: spec() == expected, within=WITHIN), f"expected {expected} for {name}, found {spec()}"


@pytest.mark.feature("QOS-7.node-slo")
@pytest.mark.case("CO-095", severity="critical", source="Koordinator pkg/slo-controller/nodeslo; spec NS-1, C-2 to C-5")
def test_each_key_of_the_settings(trial: Trial, start_manager: StartManager) -> None:
    """Each key makes its block of the NodeSLO; nodes of the second and the third pool have settings of their own in one
    block, and the others of the cluster; one has programs of its own, and what is set nowhere has its default. A change
    of the settings is written, and so is that of a node's labels. The annotation of a node says how much bandwidth its
    network has, if it can be read."""
    for name in ("n1", "n2", "n3"):
        trial.add(machine(name).label("pool", name))
    strategies = [
        {"name": name, "nodeSelector": {"matchLabels": {"pool": name}}, "cpuSuppressThresholdPercent": percent}
        for name, percent in (("none", 10), ("n2", 50), ("n3", 40))
    ]
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 60, "memoryEvictThresholdPercent": 80}
    system = {"minFreeKbytesFactor": 120, "totalNetworkBandwidth": "10G"}
    application = {"name": "app", "qos": "LS", "priority": "koord-prod"}
    own = {"name": "own", "qos": "BE", "priority": "koord-batch"}
    of_n2 = {"name": "n2", "nodeSelector": {"matchLabels": {"pool": "n2"}}}
    memory = {"beClass": {"memoryQOS": {"enable": True, "minLimitPercent": 10}}}
    be = {"beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}}
    settings: dict[str, Any] = {
        "resource-threshold-config": {"clusterStrategy": threshold, "nodeStrategies": strategies},
        "resource-qos-config": {"clusterStrategy": be, "nodeStrategies": [{**of_n2, **memory}]},
        "cpu-burst-config": {"clusterStrategy": {"policy": "auto", "cfsQuotaBurstPercent": 200}},
        "system-config": {"clusterStrategy": system},
        "host-application-config": {"applications": [application], "nodeConfigs": [{**of_n2, "applications": [own]}]},
    }
    start_manager(settings)

    expected = {
        "resourceUsedThresholdWithBE.memoryEvictThresholdPercent": 80,
        "resourceQOSStrategy.beClass.cpuQOS.groupIdentity": -1,
        "cpuBurstStrategy.policy": "auto",
        "cpuBurstStrategy.cfsQuotaBurstPercent": 200,
        "cpuBurstStrategy.cpuBurstPercent": 1000,
        "resourceUsedThresholdWithBE.cpuSuppressPolicy": "cpuset",
        "systemStrategy.minFreeKbytesFactor": 120,
        "systemStrategy.totalNetworkBandwidth": "10G",
    }
    for name, percent in {"n1": 60, "n2": 50, "n3": 40}.items():
        expected["hostApplications"] = [own if name == "n2" else application]
        expect_spec(trial, name, {**expected, "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent": percent})

    write_config(trial, {**settings, "system-config": {"clusterStrategy": {**system, "minFreeKbytesFactor": 100}}})

    for name in ("n1", "n2", "n3"):
        expect_spec(trial, name, {"systemStrategy.minFreeKbytesFactor": 100})

    assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"pool": "n3"}}}).ok

    expect_spec(trial, "n1", {"resourceUsedThresholdWithBE.cpuSuppressThresholdPercent": 40})

    for bandwidth, expected_bandwidth in (("20G", "20G"), ("much", "10G")):
        annotation = {"metadata": {"annotations": {"node.koordinator.sh/network-bandwidth": bandwidth}}}
        assert trial.call("PATCH", "/api/v1/nodes/n1", annotation).ok
        expect_spec(trial, "n1", {"systemStrategy.totalNetworkBandwidth": expected_bandwidth})


@pytest.mark.feature("QOS-7.node-slo")
@pytest.mark.case("CO-123", severity="normal", source="Koordinator pkg/slo-controller/nodeslo; spec C-1, NS-1")
def test_a_block_whose_settings_cannot_be_read(trial: Trial, start_manager: StartManager) -> None:
    """The manager starts with one key that cannot be parsed: its block in a NodeSLO that is there stays, and others
    are written."""
    trial.add(machine("n1"))
    spec = {"cpuBurstStrategy": {"policy": "auto"}}
    trial.apply(
        {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "n1"}, "spec": spec}
    )
    start_manager({"cpu-burst-config": "{", "system-config": {"clusterStrategy": {"minFreeKbytesFactor": 120}}})
    expect_spec(trial, "n1", {"systemStrategy.minFreeKbytesFactor": 120, "cpuBurstStrategy.policy": "auto"})


@pytest.mark.feature("QOS-7.node-slo", "QOS-1.node-metric")
@pytest.mark.case("CO-096", severity="normal", source="Koordinator pkg/slo-controller; spec NM-1, NS-1")
def test_both_go_with_their_node(trial: Trial, start_manager: StartManager) -> None:
    """The NodeSLO and the NodeMetric of a deleted node are deleted; those of another node stay, and are made again when
    another client deletes them."""
    trial.add(machine("n1"), machine("n2"))
    start_manager({})

    def names() -> set[str]:
        paths = (f"{path}/{name}" for path in (NODE_METRICS_PATH, NODE_SLOS_PATH) for name in ("n1", "n2"))
        return {"/".join(path.split("/")[-2:]) for path in paths if trial.call("GET", path).ok}

    everything = {"nodemetrics/n1", "nodemetrics/n2", "nodeslos/n1", "nodeslos/n2"}
    assert trial.reaches(lambda: names() == everything, within=WITHIN), names()

    trial.cluster.remove_node("n1")

    kept = {"nodemetrics/n2", "nodeslos/n2"}
    assert trial.reaches(lambda: names() == kept, within=WITHIN), names()
    for path in (NODE_METRICS_PATH, NODE_SLOS_PATH):
        assert trial.call("DELETE", f"{path}/n2").ok
    assert trial.reaches(lambda: names() == kept, within=WITHIN), names()
