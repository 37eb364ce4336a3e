"""What the scheduler shows of quotas over HTTP, and preemption where quotas are concerned."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.cluster import Ask
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, priority_class, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.suites.quota.quotas import counted, make, named, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]

QUOTAS = "/apis/v1/plugins/ElasticQuota/quotas"


def answered(services: Ask, path: str) -> Any:
    answer = services("GET", path)
    assert answer.code == 200, answer.body
    return orjson.loads(answer.body)


@pytest.mark.feature("QUOTA-1.status", "QUOTA-2.parent-and-child")
@pytest.mark.case("QU-093", severity="normal")
def test_one_quota_and_all_quotas_are_shown(trial: Trial, expect: Expect, services: Ask) -> None:
    """The summary of a quota has its sums and pods, the list has all but the root, and the metrics agree with both."""
    trial.add(node("n1").cpu(32))
    parent, child = named(trial, "p"), named(trial, "c")
    make(trial, quota(parent).min(cpu=2).max(cpu=8).parent())
    make(trial, quota(child).min(cpu=1).max(cpu=4).below(parent).keeps())
    trial.submit(counted(trial, "first", "c", cpu=3), counted(trial, "second", "c", cpu=2, preemptible=False))
    expect.bound("first")
    expect.pending("second")

    answer = answered(services, f"{QUOTAS}/{child}?includePods=true")

    shown = {key: answer[key] for key in ("parentName", "isParent", "allowLentResource", "tree", "min", "max")}
    assert shown == {
        "parentName": parent,
        "isParent": False,
        "allowLentResource": False,
        "tree": "",
        "min": {"cpu": "1"},
        "max": {"cpu": "4"},
    }
    assert (answer["used"]["cpu"], answer["childRequest"]["cpu"], answer["runtime"]["cpu"]) == ("3", "5", "4")
    assert answer["nonPreemptibleRequest"]["cpu"] == "2"
    assert {key.rpartition("/")[2]: entry["isAssigned"] for key, entry in answer["podCache"].items()} == {
        "first": True,
        "second": False,
    }
    everything = answered(services, QUOTAS)
    assert {parent, child, "koordinator-default-quota", "koordinator-system-quota"} <= everything.keys()
    assert "koordinator-root-quota" not in everything
    assert everything[parent]["used"]["cpu"] == "3"
    assert services("GET", f"{QUOTAS}/nobody").code == 404
    assert b"cannot find quota nobody" in services("GET", f"{QUOTAS}/nobody").body
    metrics = services("GET", "/metrics").body.decode().splitlines()
    for field, value in (("used", 3000), ("runtime", 4000), ("child-request", 5000)):
        assert any(
            line.startswith("scheduler_elastic_quota_status{")
            and f'name="{child}"' in line
            and 'resource="cpu"' in line
            and f'field="{field}"' in line
            and line.endswith(f" {value}")
            for line in metrics
        ), field


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-094", severity="normal")
def test_a_pod_that_waits_for_its_quota_is_explained(trial: Trial, expect: Expect, services: Ask) -> None:
    """The explanation of a waiting pod names its quota on every node, and that of a placed pod does not."""
    trial.add(node("n1").cpu(32), node("n2").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=4))
    trial.submit(counted(trial, "first", "a", cpu=3))
    expect.bound("first")
    trial.submit(counted(trial, "second", "a", cpu=2))
    expect.pending("second")

    answer = services("GET", f"/apis/v1/explain/{trial.name}/second")

    if answer.code == 404:
        pytest.skip("needs a scheduler that explains pods; this one does not")
    text = orjson.dumps(orjson.loads(answer.body)).decode()
    assert f"Insufficient quotas, quotaName: {named(trial, 'a')}, runtime: cpu:4, used: cpu:3" in text
    assert '"ElasticQuota"' in text
    assert b"Insufficient quotas" not in services("GET", f"/apis/v1/explain/{trial.name}/first").body


@pytest.mark.feature("QUOTA-12.inside", "QUOTA-8.non-preemptible")
@pytest.mark.case("QU-095", severity="critical")
def test_no_pod_dies_for_another_quota(trial: Trial, expect: Expect) -> None:
    """A pod above its own quota preempts no pod of another quota or of the default quota, whatever its priority."""
    trial.apply(priority_class("quota-low", 1000), priority_class("quota-high", 9000))
    trial.add(node("n1").cpu(8))
    make(trial, quota(named(trial, "a")).max(cpu=2), quota(named(trial, "b")).max(cpu=8))
    trial.submit(counted(trial, "b-low", "b", cpu=4).priority_class("quota-low"))
    trial.submit(pod("plain").request(cpu=2).scheduler(KOORD_SCHEDULER).priority_class("quota-low"))
    trial.submit(counted(trial, "a-equal", "a", cpu=1).priority_class("quota-high"))
    expect.bound("b-low", "plain", "a-equal")

    trial.submit(counted(trial, "a-high", "a", cpu=2).priority_class("quota-high"))

    expect.pending("a-high", saying="Insufficient quotas")
    expect.stable(seconds=20)


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-096", severity="normal")
@pytest.mark.long(seconds=21)
def test_as_few_as_the_quota_lacks_die(trial: Trial, expect: Expect) -> None:
    """Of three less important pods in a full quota the least important one that suffices is preempted."""
    for name, value in (("quota-low", 1000), ("quota-middle", 5000), ("quota-high", 9000)):
        trial.apply(priority_class(name, value))
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=6))
    trial.submit(
        counted(trial, "low", "a", cpu=2).priority_class("quota-low"),
        counted(trial, "middle", "a", cpu=2).priority_class("quota-middle"),
        counted(trial, "other-middle", "a", cpu=2).priority_class("quota-middle"),
    )
    expect.bound("low", "middle", "other-middle")

    trial.submit(counted(trial, "high", "a", cpu=2).priority_class("quota-high"))

    expect.bound("high")
    expect.gone("low")
    settle(trial)
    expect.bound("middle", "other-middle")
