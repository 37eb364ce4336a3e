"""Settings of nodes that are refused, with Koordinator's reasons and messages (D2-8, D2-9)."""

import json
from typing import Any

import pytest

from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.pods.selectors import selector_matches
from seatrial.scheduler.webhooks import slo_config
from seatrial.scheduler.webhooks.reviews import validate_config, validate_node
from seatrial.scheduler.webhooks.slo_config import SloConfigRules

POOLS = {"a": {"pool": "a"}, "b": {"pool": "b"}}


def review(new: dict[str, Any], old: dict[str, Any] | None = None, name: str = "slo-controller-config") -> Any:
    metadata = {"name": name, "namespace": "koordinator-system"}
    data, before = ({key: json.dumps(value) for key, value in (part or {}).items()} for part in (new, old))
    request = {"uid": "u", "name": name, "operation": "UPDATE", "object": {"metadata": metadata, "data": data}}
    return {"request": {**request, "oldObject": {"metadata": metadata, "data": before}}}


def refusal(rules: SloConfigRules, *arguments: Any, **more: Any) -> tuple[str, str]:
    """Reason and message; empty if it is allowed."""
    response = validate_config(review(*arguments, **more), rules)["response"]
    if response["allowed"]:
        return "", ""
    body = json.loads(response["status"]["message"].strip("_"))
    return body["reason"], body["message"]


def strategies(*entries: tuple[str, dict[str, str]], **cluster: Any) -> dict[str, Any]:
    overrides = [{"name": name, "nodeSelector": {"matchLabels": labels}} for name, labels in entries]
    return {"clusterStrategy": cluster, "nodeStrategies": overrides}


THRESHOLD, QOS, INVALID = "resource-threshold-config", "resource-qos-config", "ConfigParamInvalid"


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        pytest.param({THRESHOLD: strategies(("a", POOLS["a"]), ("b", POOLS["b"]))}, "", "", id="valid"),
        pytest.param({"colocation-config": {"enable": True}, "host-application-config": []}, "", "", id="others"),
        pytest.param({THRESHOLD: []}, "ParseConfigFail", THRESHOLD, id="no-object"),
        pytest.param({THRESHOLD: {"nodeStrategies": 3}}, "ParseConfigFail", THRESHOLD, id="no-list"),
        pytest.param(
            {THRESHOLD: strategies(cpuSuppressThresholdPercent=101)},
            INVALID,
            "cpuSuppressThresholdPercent: expected 0 to 100, found 101",
            id="range",
        ),
        pytest.param(
            {"colocation-config": {"resourceDiffThreshold": 1.5}}, INVALID, "resourceDiffThreshold", id="part"
        ),
        pytest.param(
            {THRESHOLD: strategies(memoryEvictThresholdPercent=70, memoryEvictLowerPercent=70)},
            INVALID,
            "memoryEvictLowerPercent: expected less than memoryEvictThresholdPercent",
            id="order",
        ),
        pytest.param({QOS: strategies(lsClass={"memoryQOS": {"wmarkMinAdj": 51}})}, INVALID, "wmarkMinAdj", id="depth"),
        pytest.param(
            {THRESHOLD: strategies(("a", {}))},
            INVALID,
            "nodeConfigs NodeSelector must not empty error! configType: resource-threshold-config,nodeConfig name:a",
            id="no-selector",
        ),
        pytest.param(
            {THRESHOLD: strategies(("", POOLS["a"]))},
            INVALID,
            "nodeConfig Name need! configType:resource-threshold-config",
            id="no-name",
        ),
        pytest.param(
            {THRESHOLD: strategies(("a", POOLS["a"]), ("a", POOLS["b"]))},
            INVALID,
            "nodeConfig Name confilict, configType:resource-threshold-config,nodeConfig Name:a! ",
            id="same-name",
        ),
        pytest.param(
            {THRESHOLD: strategies(("a", POOLS["a"]), ("b", {**POOLS["a"], "zone": "z"}))},
            "NodeStrategiesOverlap",
            "a and b",
            id="overlap",
        ),
        pytest.param(
            {THRESHOLD: strategies(("a", POOLS["a"]), ("b", {"zone": "z"}))}, "ExistNodeConfict", "a and b", id="a-node"
        ),
    ],
)
def test_settings(data: dict[str, Any], reason: str, message: str) -> None:
    """N-5: node n1 has both labels."""
    datum_refusal = refusal(SloConfigRules(nodes={"n1": {"pool": "a", "zone": "z"}, "n2": {"pool": "b"}}), data)
    assert datum_refusal[0] == reason
    assert message in datum_refusal[1]


def network(ingress: list[Any], limit: Any = None) -> dict[str, Any]:
    names = ("lsrClass", "lsClass", "beClass")
    own = {name: {"networkQOS": {"ingressRequest": value}} for name, value in zip(names, ingress, strict=False)}
    if limit is not None:
        own["beClass"]["networkQOS"]["egressLimit"] = limit
    return own


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (network([50, 30, 20]), ""),
        (network(["50M", "30M", "20M"]), ""),
        (network([50, 30, 21]), "ClusterStrategy total net bandwidth percentage already over 100"),
        (network(["50M", "30M", "21M"]), "total net bandwidth over total network bandwidth in clusterStrategy"),
        (network([50, 30, 20], "1M"), "only one type can be used for percentages or quantity in clusterStrategy"),
        (network([101]), "must be an integer just in 0-100 or quantity (e.g '50M')"),
        (network(["much"]), "must be an integer just in 0-100 or quantity (e.g '50M')"),
        ({"lsClass": 3}, ""),
    ],
)
def test_bandwidth(settings: dict[str, Any], message: str) -> None:
    """N-7: of 100M."""
    data = {QOS: strategies(**settings), "system-config": strategies(totalNetworkBandwidth="100M")}
    assert refusal(SloConfigRules(), data)[1] == message


@pytest.mark.parametrize(("settings", "place"), [(network([90, 20]), "cfg.NodeStrategies[0] total"), ({}, "")])
def test_bandwidth_of_some_nodes(settings: dict[str, Any], place: str) -> None:
    entry = {"name": "a", "nodeSelector": {"matchLabels": POOLS["a"]}, **settings}
    assert place in refusal(SloConfigRules(), {QOS: {"nodeStrategies": [entry]}})[1]


def test_only_what_changes_of_the_one_config_map_is_checked() -> None:
    """N-4."""
    wrong = {THRESHOLD: strategies(cpuSuppressThresholdPercent=101)}
    assert refusal(SloConfigRules(), wrong, wrong) == ("", "")
    assert refusal(SloConfigRules(), wrong, name="other") == ("", "")
    assert refusal(SloConfigRules(), wrong, {})[0] == "ConfigParamInvalid"


@pytest.mark.parametrize(
    ("operation", "labels", "allowed"),
    [
        ("UPDATE", {"pool": "a", "zone": "z"}, False),
        ("UPDATE", {"pool": "a"}, True),
        ("CREATE", {"pool": "a", "zone": "z"}, True),
    ],
)
def test_labels_of_a_node(
    caplog: pytest.LogCaptureFixture, operation: str, labels: dict[str, str], allowed: bool
) -> None:
    """N-3: refused by an update, and said of a new node."""
    rules = SloConfigRules(data={THRESHOLD: json.dumps(strategies(("a", POOLS["a"]), ("b", {"zone": "z"})))})
    node = {"metadata": {"name": "n1", "labels": labels}}
    old = {"metadata": {"name": "n1", "labels": {"zone": "z"}}}
    request = {"uid": "u", "name": "n1", "operation": operation, "object": node, "oldObject": old}
    response = validate_node({"request": request}, rules)["response"]
    assert response["allowed"] is allowed
    assert ("match node n1" in caplog.text) is (operation == "CREATE")


def test_many_node_settings_are_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two thousand node settings for a pool each, and two thousand nodes: each meets the settings of its own pool."""
    compared = 0

    def counted(selector: LabelSelector, labels: dict[str, str]) -> bool:
        nonlocal compared
        compared += 1
        return selector_matches(selector, labels)

    monkeypatch.setattr(slo_config, "selector_matches", counted)
    pools = [str(number) for number in range(2000)]
    labels = {pool: {"tier": "a", "pool": pool} for pool in pools}
    data = {THRESHOLD: strategies(*labels.items())}
    assert refusal(SloConfigRules(nodes={**labels}), data) == ("", "")
    assert compared == 4000
