"""The use of cards is reported in NodeMetric, by node and by pod, once per interval."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.allocated_devices import devices_of, first_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.nodes.usage import NODE_METRICS, USAGE_ANNOTATION
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_VENDOR_LABEL

INTERVAL = 30  # seconds, the shortest there is
REPORT = INTERVAL + 15.0  # until one has arrived
GIB = 1 << 30


def ask(trial: Trial, name: str) -> None:
    """Create the NodeMetric of a node, as Koordinator's manager does."""
    trial.apply(
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": name},
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": INTERVAL}},
        }
    )


def status(trial: Trial, name: str) -> dict[str, Any]:
    """The status of a node's NodeMetric; empty before the first report."""
    body: dict[str, Any] = orjson.loads(trial.call("GET", f"{NODE_METRICS}/{name}").body)
    return body.get("status") or {}


def next_report(trial: Trial, name: str) -> dict[str, Any]:
    """The first report from now on."""
    before = status(trial, name).get("updateTime")
    arrived = trial.wait(lambda: status(trial, name).get("updateTime") != before, within=REPORT)
    assert arrived, f"expected a report of {name} within {REPORT:g} s after {before}"
    return status(trial, name)


def rows(usage: dict[str, Any]) -> dict[int, tuple[int, int, int]]:
    """Cores, bytes and ratio by the card's minor."""
    return {
        device["minor"]: (
            units(device["resources"][GPU_CORE]),
            units(device["resources"][GPU_MEMORY]),
            units(device["resources"][GPU_MEMORY_RATIO]),
        )
        for device in usage["devices"]
    }


def busy(name: str, core: int, memory: str) -> PodBuilder:
    """A pod that keeps its part of a card busy."""
    return pod(name).annotation(USAGE_ANNOTATION, orjson.dumps({"core": core, "memory": memory}).decode())


on_simulated_nodes = pytest.mark.needs(Capability.NODES, Capability.DEVICE_FAULTS)


@on_simulated_nodes
@pytest.mark.feature("DEV-14.node-and-pod")
@pytest.mark.case("IS-020", severity="critical")
@pytest.mark.long(seconds=60)
def test_use_is_reported_by_node_and_pod(trial: Trial, expect: Expect) -> None:
    """Two tenants of one card and one of another: each pod's use, and the sum for each card."""
    trial.add(node("n1").gpus("a10", 2).isolation())
    ask(trial, "n1")
    trial.submit(busy("c", 70, "6Gi").gpus(1))
    expect.running("c")
    trial.submit(
        busy("a", 20, "2Gi").gpu_share(50).isolated(),
        busy("b", 30, "4Gi").gpu_share(50).isolated(),
        pod("plain").request(cpu=1),
    )
    pods = {pod.metadata.name: pod for pod in expect.running("a", "b", "c", "plain")}
    minor = {name: first_of(pods[name]) for name in "abc"}
    assert minor["a"] == minor["b"] != minor["c"]
    card = units(trial.device("n1")["spec"]["devices"][0]["resources"][GPU_MEMORY])

    report = next_report(trial, "n1")

    use = {"a": (20, 2 * GIB), "b": (30, 4 * GIB), "c": (70, 6 * GIB)}
    ours = {row["name"]: row for row in report["podsMetric"] if row["namespace"] == trial.name}
    assert set(ours) == {"a", "b", "c"}, "a pod without a card has no use of one"
    for name, (core, memory) in use.items():
        assert rows(ours[name]["podUsage"]) == {minor[name]: (core, memory, memory * 100 // card)}
    for number, row in rows(report["nodeMetric"]["nodeUsage"]).items():
        held = [use[name] for name in use if minor[name] == number]
        memory = sum(share[1] for share in held)
        assert row == (sum(share[0] for share in held), memory, memory * 100 // card)


@on_simulated_nodes
@pytest.mark.feature("DEV-14.node-and-pod")
@pytest.mark.case("IS-021", severity="normal")
@pytest.mark.long(seconds=60)
def test_use_ends_with_the_pod(trial: Trial, expect: Expect) -> None:
    """A deleted pod is in no later report, and its card is idle."""
    trial.add(node("n1").gpus("a10", 1))
    ask(trial, "n1")
    trial.submit(busy("a", 55, "1Gi").gpus(1))
    expect.running("a")
    assert rows(next_report(trial, "n1")["nodeMetric"]["nodeUsage"])[0][:2] == (55, GIB)

    trial.delete("a")

    after = next_report(trial, "n1")
    assert rows(after["nodeMetric"]["nodeUsage"]) == {0: (0, 0, 0)}
    assert not after.get("podsMetric")


@on_simulated_nodes
@pytest.mark.feature("DEV-14.node-and-pod", "HIL-4.device-faults")
@pytest.mark.case("IS-022", severity="normal")
@pytest.mark.long(seconds=60)
def test_a_lost_card_says_nothing(trial: Trial) -> None:
    """Use of a card that is off the bus is missing from the report, not zero."""
    trial.add(node("n1").gpus("a10", 2))
    ask(trial, "n1")
    assert set(rows(next_report(trial, "n1")["nodeMetric"]["nodeUsage"])) == {0, 1}

    trial.inject({"node": "n1", "device": 1, "verb": "lost"})

    assert set(rows(next_report(trial, "n1")["nodeMetric"]["nodeUsage"])) == {0}


@pytest.mark.needs(Capability.CONTAINERS, Capability.DEVICE_FAULTS)
@pytest.mark.feature("DEV-14.on-machine", "HIL-3.nvidia")
@pytest.mark.case("IS-023", severity="critical")
@pytest.mark.long(seconds=40)
def test_use_of_this_machine_s_stand_in(trial: Trial, expect: Expect) -> None:
    """Use is attributed to the pod's process in the driver's process list, and reported as the pod's use."""
    only = trial.machine()
    name = only["metadata"]["name"]
    if only["metadata"]["labels"].get(GPU_VENDOR_LABEL) != "nvidia":
        pytest.skip("needs NVIDIA cards, as koordlet counts no others; --fake a10:2 stands in for two")
    trial.submit(busy("a", 70, "6Gi").gpus(1))
    (part,) = devices_of(expect.running("a"))
    ask(trial, name)

    report = next_report(trial, name)
    if rows(report["nodeMetric"]["nodeUsage"])[part.minor][:2] == (0, 0):
        report = next_report(trial, name)  # the sample was from before the pod ran

    assert rows(report["nodeMetric"]["nodeUsage"])[part.minor][:2] == (70, 6 * GIB)
    (own,) = (row for row in report["podsMetric"] if row["namespace"] == trial.name)
    assert rows(own["podUsage"])[part.minor][:2] == (70, 6 * GIB)
