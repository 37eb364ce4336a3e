"""Which nodes meet what a case states, and what the reason says where none does."""

from typing import Any

import pytest

from seatrial.harness.clusters.requirements import FreeDevice, OfferedNode, assign, offered_node, requirement_of
from seatrial.harness.errors import HardwareMissingError, UsageError
from seatrial.scheduler.api.builders import NodeBuilder, node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.wire import from_plain


def device(minor: int, numa: int = 0) -> FreeDevice:
    return FreeDevice(minor, f"id-{minor}", numa, {"koordinator.sh/gpu-core": "100"})


def offered(
    name: str, cards: int, *, model: str = "A10", nics: int = 0, cpu: int = 8, lent: bool = False
) -> OfferedNode:
    own = tuple(device(minor, minor % 2) for minor in range(cards))
    return OfferedNode(name, "nvidia", model, own, tuple(map(device, range(nics))), cpu * 1000, 1 << 34, lent)


def chosen(nodes: list[NodeBuilder], there: list[OfferedNode]) -> dict[str, str] | None:
    offered_nodes = assign([requirement_of(each.manifest) for each in nodes], there)
    return None if offered_nodes is None else {name: offered_node.name for name, offered_node in offered_nodes.items()}


@pytest.mark.parametrize(
    ("nodes", "there", "want"),
    [
        pytest.param([node("n1").cards(2)], [offered("a", 4), offered("b", 2)], {"n1": "b"}, id="the-least-surplus"),
        pytest.param(
            [node("n1").cards(2)], [offered("a", 8, model="H100"), offered("b", 1)], {"n1": "a"}, id="any-model"
        ),
        pytest.param(
            [node("n1").gpus("a10", 2)], [offered("a", 2, model="H100"), offered("b", 4)], {"n1": "b"}, id="this-model"
        ),
        pytest.param(
            [node("n1").cards(1), node("n2").cards(4)],
            [offered("a", 4), offered("b", 1)],
            {"n1": "b", "n2": "a"},
            id="several-nodes",
        ),
        pytest.param(
            [node("n1").cards(1), node("n2").cards(1).nics("connectx-7", 1)],
            [offered("a", 1, nics=1), offered("b", 1)],
            {"n1": "b", "n2": "a"},
            id="the-only-node-with-a-nic-is-kept-for-who-needs-it",
        ),
        pytest.param([node("n1").cpu(4)], [offered("a", 0, cpu=2), offered("b", 0)], {"n1": "b"}, id="cores"),
        pytest.param([node("n1").cards(2)], [offered("a", 2, lent=True)], None, id="wait-for-a-lent-node"),
        pytest.param([node("n1").cards(2)], [offered("a", 2, lent=True), offered("b", 8)], {"n1": "b"}, id="not-lent"),
    ],
)
def test_nodes_chosen(nodes: list[NodeBuilder], there: list[OfferedNode], want: dict[str, str] | None) -> None:
    assert chosen(nodes, there) == want


@pytest.mark.parametrize(
    ("nodes", "there", "why"),
    [
        pytest.param(
            [node("n1").cards(8)],
            [offered("a", 4)],
            r"needs a node with 8 free cards \(nvidia\); .*trials: a: 4 free cards$",
            id="too-few-cards",
        ),
        pytest.param(
            [node("n1").devices("ascend-910b3", 1)],
            [offered("a", 4)],
            r"1 free cards \(Ascend-910B3\); .*: a: its cards are of vendor nvidia$",
            id="another-vendor",
        ),
        pytest.param([node("n1").gpus("h100-80g", 1)], [offered("a", 4)], "a: its cards are A10$", id="another-model"),
        pytest.param([node("n1").cards(1).nics("connectx-7", 1)], [offered("a", 4)], "a: 0 free NICs$", id="no-nic"),
        pytest.param(
            [node("n1").cpu(16)],
            [offered("a", 0)],
            "needs a node with 16 free cores; .* a: 8 free cores$",
            id="too-few-cores",
        ),
        pytest.param(
            [node("n1").server("dgx-h100")],
            [offered("a", 8, model="H100-SXM-80GB", nics=12)],
            "a: (its cards|cards by NUMA)",
            id="not-that-server",
        ),
        pytest.param([node("n1").cards(1)], [], "trials: there are none$", id="no-node-is-marked"),
        pytest.param(
            [node("n1").cards(2), node("n2").cards(2)],
            [offered("a", 2), offered("b", 1)],
            "needs 2 nodes at once",
            id="not-both",
        ),
        pytest.param(
            [node("n1").cards(1).pods(3)],
            [offered("a", 1)],
            "a node for 3 pods, which only simulated nodes have",
            id="a-limit-of-pods",
        ),
        pytest.param(
            [node("n1").cards(1).kubelet(full_pcpus_only=True)],
            [offered("a", 1)],
            "settings of the kubelet, which only simulated",
            id="kubelet-settings",
        ),
    ],
)
def test_what_is_missing_is_named(nodes: list[NodeBuilder], there: list[OfferedNode], why: str) -> None:
    with pytest.raises(HardwareMissingError, match=why):
        chosen(nodes, there)


def test_what_is_free_on_a_node() -> None:
    """Of four cards one is unhealthy and one is held; a pod that has ended holds nothing."""
    cards = [
        {"type": "gpu", "minor": minor, "health": minor != 3, "resources": {}, "topology": {"nodeID": minor // 2}}
        for minor in range(4)
    ]
    body: dict[str, Any] = {
        "metadata": {"labels": {"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "A10"}},
        "spec": {"devices": [*cards, {"type": "rdma", "minor": 0, "health": True, "id": "0000:15:00.0"}]},
    }

    def holder(name: str, minor: int, phase: str) -> Pod:
        built = pod(name).request(cpu=3, memory="1Gi")
        built.annotation(DEVICE_ALLOCATED, f'{{"gpu": [{{"minor": {minor}, "resources": {{}}}}]}}')
        return from_plain({**built.manifest, "status": {"phase": phase}}, Pod)

    node = offered_node(
        {"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "8", "memory": "4Gi"}}},
        body,
        [holder("runs", 0, "Running"), holder("ended", 1, "Succeeded")],
        lent=False,
    )
    assert (node.vendor, node.model) == ("nvidia", "A10")
    assert [(card.minor, card.numa) for card in node.cards] == [(1, 0), (2, 1)]
    assert [nic.id for nic in node.nics] == ["0000:15:00.0"]
    assert (node.cpu, node.memory) == (5000, 3 << 30)


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        pytest.param([{"count": 1}], "expected `model` or `vendor`, found neither", id="neither"),
        pytest.param([{"model": "a10", "vendor": "nvidia"}], "found both", id="both"),
        pytest.param(
            [{"vendor": "no-such"}], "expected a vendor of nvidia, huawei, .*, found 'no-such'", id="unknown-vendor"
        ),
    ],
)
def test_groups_of_devices_that_are_refused(devices: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        requirement_of({"name": "n1", "devices": devices})
