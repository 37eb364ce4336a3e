"""What wakes a pod that waits: one object changes so that the pod has a place, and nothing else happens.

The backoff of the pod is over by then (`expect.pending`), so that its end cannot stand for the event.
"""

from collections.abc import Callable

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import QUOTAS_PATH
from seatrial.suites.gang.namespaces import second_namespace
from seatrial.suites.scoring.rules import REQUIRED, apart_from, pod_with, term

__all__ = ["second_namespace"]

pytestmark = [pytest.mark.needs(Capability.NODES)]

Event = Callable[[], object]
AFFINITY = "kubernetes v1.28: plugins/interpodaffinity/plugin.go (EventsToRegister): a pod is added"
UPSTREAM = "koordinator: pkg/scheduler/plugins/{}/plugin.go@v1.7.0 (EventsToRegister)"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"


def device_label(trial: Trial, _expect: Expect) -> Event:
    """A card gets the label that the pod's hint selects."""
    trial.add(node("n1").gpus("a10", 1))
    trial.submit(pod("waits").gpus(1).hint("gpu", selector={"matchLabels": {"pool": "fast"}}))

    def label() -> None:
        devices = trial.device("n1")["spec"]["devices"]
        for device in devices:
            device["labels"] = {**device.get("labels", {}), "pool": "fast"}
        assert trial.call("PATCH", f"{DEVICES}/n1", {"spec": {"devices": devices}}).ok

    return label


def quota_grows(trial: Trial, expect: Expect) -> Event:
    """A pod comes before its quota, which is too small for it, and then grows."""
    trial.add(node("n1").cpu(4))
    name = f"{trial.name}-team"
    holder, waiting = pod("holder").request(cpu=4), pod("waits").request(cpu=3).quota(name)
    trial.submit(holder.scheduler(KOORD_SCHEDULER), waiting.scheduler(KOORD_SCHEDULER))
    expect.bound("holder")
    expect.pending("waits")
    trial.apply(quota(name).max(cpu=1).manifest)
    trial.delete("holder")
    path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{trial.name}/elasticquotas")
    return lambda: trial.call("PATCH", f"{path}/{name}", {"spec": {"max": {"cpu": "4"}}})


def partner_comes(trial: Trial, _expect: Expect) -> Event:
    """Both members of a gang have to be beside a pod that comes later."""
    trial.add(node("n1").cpu(4))
    near = {"podAffinity": {REQUIRED: [term("partner")]}}
    trial.submit(*(pod_with(name, affinity=near).in_light_gang("train", 2) for name in ("waits", "mate")))
    return lambda: trial.submit(pod_with("partner", "partner"))


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize(
    "prepared",
    [
        pytest.param(
            device_label,
            id="device",
            marks=[
                pytest.mark.needs(Capability.HARDWARE),
                pytest.mark.case("SC-468", severity="critical", source=UPSTREAM.format("deviceshare")),
            ],
        ),
        pytest.param(
            quota_grows,
            id="quota",
            marks=[
                pytest.mark.needs(Capability.OWN_CLUSTER),
                pytest.mark.profile(KOORD_SCHEDULER),
                pytest.mark.case("SC-469", severity="critical", source=UPSTREAM.format("elasticquota")),
            ],
        ),
        pytest.param(
            partner_comes, id="partner", marks=pytest.mark.case("SC-474", severity="critical", source=AFFINITY)
        ),
    ],
)
def test_one_event_wakes_a_pod(trial: Trial, expect: Expect, prepared: Callable[[Trial, Expect], Event]) -> None:
    """A pod waits, and its backoff is over. The Device object of its node or its quota changes, or the pod comes that
    it and its gang have to be beside, and nothing else happens: it is bound."""
    event = prepared(trial, expect)
    expect.pending("waits")
    expect.stable(seconds=3)

    event()

    expect.bound("waits", within=20)


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-561", severity="critical", source=AFFINITY)
@pytest.mark.long(seconds=15)
def test_partners_that_come_one_after_the_other(trial: Trial, expect: Expect) -> None:
    """Two pods wait for a partner each. One partner comes and later the other: each time its pod is bound."""
    trial.add(node("n1").cpu(8))
    for name in ("a", "b"):
        trial.submit(pod_with(f"waits-{name}", affinity={"podAffinity": {REQUIRED: [term(f"partner-{name}")]}}))
    expect.pending("waits-a", "waits-b")
    for name in ("b", "a"):
        trial.submit(pod_with(f"partner-{name}", f"partner-{name}"))
        expect.bound(f"waits-{name}", within=20)


def in_two_namespaces(trial: Trial, expect: Expect, other: str) -> tuple[list[str], list[str]]:
    """In each of two namespaces a pod keeps apart from one of its own namespace."""
    trial.submit(pod_with("opponent", "opponent"))
    theirs = f"/api/v1/namespaces/{other}/pods"
    trial.accept(pod_with("opponent", "opponent").select({TRIAL_LABEL: trial.name}).manifest, theirs)
    assert trial.wait(lambda: bool(node_of(trial, f"{theirs}/opponent")), within=30)
    expect.bound("opponent")
    trial.submit(pod_with("waits", affinity=apart_from("opponent")))
    trial.accept(pod_with("waits", affinity=apart_from("opponent")).select({TRIAL_LABEL: trial.name}).manifest, theirs)
    mine = f"/api/v1/namespaces/{trial.name}/pods"
    return [f"{mine}/opponent", f"{theirs}/opponent"], [f"{mine}/waits", f"{theirs}/waits"]


def node_of(trial: Trial, path: str) -> str:
    node_name: str = orjson.loads(trial.call("GET", path).body)["spec"].get("nodeName") or ""
    return node_name


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-550", severity="critical", source=AFFINITY)
@pytest.mark.long(seconds=25)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # makes a second namespace
@pytest.mark.parametrize("helped", [0, 1])
def test_an_event_wakes_the_one_pod_that_it_helps(
    trial: Trial, expect: Expect, second_namespace: str, helped: int
) -> None:
    """Two equal pods of two namespaces wait, each for a pod of its namespace to leave. One of those leaves: the pod
    that waits for it is bound, the other one is not."""
    trial.add(node("n1").cpu(8))
    opponents, waiting = in_two_namespaces(trial, expect, second_namespace)
    trial.pass_time(15)
    assert [node_of(trial, path) for path in waiting] == ["", ""]

    assert trial.call("DELETE", f"{opponents[helped]}?gracePeriodSeconds=0").ok

    assert trial.wait(lambda: bool(node_of(trial, waiting[helped])), within=20), "the pod without an opponent waits"
    assert not node_of(trial, waiting[1 - helped])
