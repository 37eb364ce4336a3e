"""What wakes a pod that waits: one object changes so that the pod has a place, and nothing else happens.

The backoff of the pod is over by then (`expect.pending`), so that its end cannot stand for the event.
"""

from collections.abc import Callable

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import QUOTAS_PATH
from seatrial.suites.scoring.rules import REQUIRED, pod_with, term

pytestmark = [pytest.mark.needs(Capability.NODES)]

Event = Callable[[], object]
AFFINITY = "kubernetes v1.34: plugins/interpodaffinity/plugin.go (EventsToRegister): a pod is added"
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
