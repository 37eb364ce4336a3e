"""Planted breaches of a manager: an offer above the formulas is reported as AUD-703, one below is not."""

import json
from typing import Any

import pytest

from seatrial.harness.audit.offer_rules import OfferView, offer_breaches
from seatrial.scheduler.api.clock import SIM_EPOCH, rfc3339

GI = 1 << 30
NODE = {"cpu": "100", "memory": "120Gi"}
REPORT: dict[str, Any] = {"nodeMetric": {"systemUsage": {"resources": {"cpu": "7", "memory": "12Gi"}}}}
ON = {"enable": True, "cpuReclaimThresholdPercent": 65}


def pod(name: str, cpu: str, labels: dict[str, str] | None = None, *, age: float = 600) -> dict[str, Any]:
    """A running pod that came `age` seconds before now."""
    metadata = {"name": name, "namespace": "d", "labels": labels or {}}
    spec = {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}
    return {
        "metadata": {**metadata, "creationTimestamp": rfc3339(SIM_EPOCH - age)},
        "spec": spec,
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }


def breaches(
    offer: dict[str, str], *pods: dict[str, Any], settings: Any = ON, age: float = 30, annotations: Any = None
) -> list[str]:
    """What is reported of a node of 100 cores and 120 GiB whose metric is `age` seconds old."""
    usage = {"resources": {"cpu": "10", "memory": "20Gi"}}
    reported = [{"namespace": "d", "name": "reported", "podUsage": usage}]
    metric = {"status": {**REPORT, "updateTime": rfc3339(SIM_EPOCH - age), "podsMetric": reported}}
    metadata = {"name": "n1", "annotations": annotations or {}}
    node = {"metadata": metadata, "status": {"capacity": NODE, "allocatable": {**NODE, **offer}}}
    return offer_breaches(OfferView(node, pods, metric, settings, SIM_EPOCH))


PODS = (pod("reported", "30"), pod("unreported", "8"))
# Of 100 cores 35 % are kept, the system has 7, one pod uses 10, the other asks for 8: 40 are left; 10 % may differ.


@pytest.mark.parametrize(
    ("offer", "more"),
    [
        pytest.param("45k", {}, id="above-the-formula"),
        pytest.param("33k", {"settings": {**ON, "cpuCalculatePolicy": "maxUsageRequest"}}, id="of-requests"),
        pytest.param("33k", {"settings": {**ON, "batchCPUThresholdPercent": 25}}, id="above-its-limit"),
        pytest.param("1", {"settings": {**ON, "enable": False}}, id="disabled"),
        pytest.param("1", {"age": 17 * 60}, id="an-old-report"),
        pytest.param("1", {"settings": {**ON, "cpuReclaimThresholdPercent": 0}}, id="all-is-kept"),
    ],
)
def test_an_offer_above_the_formulas(offer: str, more: dict[str, Any]) -> None:
    (text,) = breaches({"kubernetes.io/batch-cpu": offer}, *PODS, **more)
    assert text.startswith("AUD-703 A node offers no more")
    assert f"node n1 offers kubernetes.io/batch-cpu {offer}" in text


@pytest.mark.parametrize(
    ("pods", "more"),
    [
        pytest.param(PODS, {}, id="as-the-formula"),
        pytest.param((*PODS, pod("new", "20", age=5)), {}, id="a-pod-since-the-report"),
        pytest.param((*PODS, pod("low", "20", {"koordinator.sh/qosClass": "BE"})), {}, id="a-batch-pod"),
        pytest.param(PODS, {"settings": {**ON, "cpuReclaimThresholdPercent": "all"}}, id="settings-are-not-read"),
        pytest.param(
            PODS, {"settings": {**ON, "cpuReclaimThresholdPercent": 30, "degradeTimeMinutes": 0}}, id="no-time"
        ),
    ],
)
def test_what_is_no_breach(pods: tuple[dict[str, Any], ...], more: dict[str, Any]) -> None:
    assert breaches({"kubernetes.io/batch-cpu": "40k"}, *pods, **more) == []


@pytest.mark.parametrize(("priority", "count"), [("koord-prod", 1), ("koord-mid", 1), ("koord-batch", 0), ("", 0)])
def test_programs_outside_of_pods_count_by_their_class(
    monkeypatch: pytest.MonkeyPatch, priority: str, count: int
) -> None:
    usage = {"resources": {"cpu": "8", "memory": "1Gi"}}
    monkeypatch.setitem(REPORT, "hostApplicationMetric", [{"name": "nginx", "priority": priority, "usage": usage}])
    assert len(breaches({"kubernetes.io/batch-cpu": "40k"}, *PODS)) == count


def test_mid_resources_and_third_parties() -> None:
    """Nothing is reclaimable here, so that no mid core may be offered; what Hadoop has is no batch resource."""
    assert breaches({"kubernetes.io/mid-cpu": "0"}, *PODS) == []
    assert len(breaches({"kubernetes.io/mid-cpu": "1k"}, *PODS)) == 1
    taken = {"name": "hadoop-yarn", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "10k"}}
    others = {"node.koordinator.sh/thirdPartyAllocations": json.dumps({"allocations": [taken]})}
    assert breaches({"kubernetes.io/batch-cpu": "30k"}, *PODS, annotations=others) == []
    assert len(breaches({"kubernetes.io/batch-cpu": "40k"}, *PODS, annotations=others)) == 1
