"""The node webhook: the worked examples NUMA-E20 and QOS-E7, and updates of the kubelet."""

import base64
import json
from typing import Any

import pytest

from seatrial.scheduler.webhooks.nodes import NodeRefusal, patch_of_node
from seatrial.scheduler.webhooks.registration import configurations
from seatrial.scheduler.webhooks.reviews import mutate_node

RATIO = "node.koordinator.sh/resource-amplification-ratio"
RAW = "node.koordinator.sh/raw-allocatable"


def node(cpu: str, **annotations: str) -> dict[str, Any]:
    keys = {"ratio": RATIO, "raw": RAW}
    return {
        "metadata": {"annotations": {keys[key]: text for key, text in annotations.items()}},
        "status": {"allocatable": {"cpu": cpu, "pods": "110"}},
    }


def applied(new: dict[str, Any], old: dict[str, Any]) -> tuple[str, str | None]:
    """Allocatable CPU and the raw annotation after the patch."""
    cpu, raw = new["status"]["allocatable"]["cpu"], new["metadata"]["annotations"].get(RAW)
    for operation in patch_of_node(new, old):
        if operation["path"] == "/status/allocatable/cpu":
            cpu = operation["value"]
        else:
            assert operation["path"] == "/metadata/annotations/node.koordinator.sh~1raw-allocatable"
            raw = operation.get("value")
    return cpu, raw


@pytest.mark.parametrize(
    ("new", "old", "cpu", "raw"),
    [
        pytest.param(node("1000m", ratio='{"cpu":1.5}'), node("1000m"), "1500m", '{"cpu":"1000m"}', id="amplified"),
        pytest.param(node("1000m", ratio='{"cpu":0.5}'), node("1000m"), "1000m", '{"cpu":"1000m"}', id="below-one"),
        pytest.param(node("1000m", ratio='{"cpu":1}'), node("1000m"), "1000m", '{"cpu":"1000m"}', id="one"),
        pytest.param(
            node("1", ratio='{"cpu":1e308}'), node("1"), "9223372036854775807m", '{"cpu":"1"}', id="beyond-64-bits"
        ),
        pytest.param(node("1000m", raw="{}"), node("1000m"), "1000m", None, id="no-ratio"),
        pytest.param(
            node("1000m", ratio='{"cpu":2}', raw='{"cpu":"1"}'), node("1000m"), "2", '{"cpu":"1"}', id="raw-is-known"
        ),
        pytest.param(
            node("1200m", ratio='{"cpu":1.5}', raw='{"cpu":"1000m"}'),
            node("1000m"),
            "1800m",
            '{"cpu":"1200m"}',
            id="the-kubelet-reports-another-amount",
        ),
        pytest.param(
            node("1500m", ratio='{"cpu":1.5}', raw='{"cpu":"1000m"}'),
            node("1500m"),
            "1500m",
            '{"cpu":"1000m"}',
            id="nothing-changed",
        ),
        pytest.param(
            node("1000m", ratio='{"cpu":1.5}', raw='{"cpu":"1000m"}'),
            node("1500m"),
            "1500m",
            '{"cpu":"1000m"}',
            id="the-kubelet-writes-its-own-amount-again",
        ),
    ],
)
def test_updates(new: dict[str, Any], old: dict[str, Any], cpu: str, raw: str | None) -> None:
    assert applied(new, old) == (cpu, raw)


def test_memory_is_amplified_too() -> None:
    new, old = node("1000m", ratio='{"cpu":2,"memory":1.5}'), node("1000m")
    for manifest in (new, old):
        manifest["status"]["allocatable"]["memory"] = "1000"
    raw, *amounts = patch_of_node(new, old)
    assert json.loads(raw["value"]) == {"cpu": "1000m", "memory": "1000"}
    assert {step["path"]: step["value"] for step in amounts} == {
        "/status/allocatable/cpu": "2",
        "/status/allocatable/memory": "1500",
    }
    new["metadata"]["annotations"][RAW] = raw["value"]
    new["status"]["allocatable"]["memory"] = "1200"
    raw, *_ = patch_of_node(new, old)
    assert json.loads(raw["value"]) == {"cpu": "1000m", "memory": "1200"}, "the kubelet reports other memory"


@pytest.mark.parametrize("broken", [{"ratio": "{"}, {"ratio": '{"cpu":2}', "raw": "[]"}, {"ratio": '{"cpu":"2"}'}])
def test_annotations_that_cannot_be_parsed_refuse_the_update(broken: dict[str, str]) -> None:
    with pytest.raises(NodeRefusal, match="expected amounts by resource as JSON"):
        patch_of_node(node("1", **broken), node("1"))
    review = {"request": {"uid": "u", "operation": "UPDATE", "object": node("1", **broken), "oldObject": node("1")}}
    response = mutate_node(review)["response"]
    assert (response["allowed"], response["status"]["code"]) == (False, 400)


def test_only_updates_are_changed() -> None:
    new = node("1000m", ratio='{"cpu":1.5}')
    review = {"request": {"uid": "u", "operation": "CREATE", "object": new}}
    assert "patch" not in mutate_node(review)["response"]
    review["request"] |= {"operation": "UPDATE", "oldObject": node("1000m")}
    patch = json.loads(base64.b64decode(mutate_node(review)["response"]["patch"]))
    assert {operation["path"] for operation in patch} == {
        "/metadata/annotations/node.koordinator.sh~1raw-allocatable",
        "/status/allocatable/cpu",
    }


def test_the_webhook_is_registered_for_nodes_and_their_status() -> None:
    statuses = configurations("https://h", b"ca", mutating=False, nodes=True, node_labels={"a": "b"})
    (webhook,) = statuses[0]["webhooks"]
    assert webhook["rules"][0]["resources"] == ["nodes", "nodes/status"]
    assert webhook["objectSelector"] == {"matchLabels": {"a": "b"}}
    assert webhook["clientConfig"]["url"] == "https://h/mutate-node-status"
    assert not any(
        "mnode" in webhook["name"] for kind in configurations("https://h", b"ca") for webhook in kind["webhooks"]
    )
