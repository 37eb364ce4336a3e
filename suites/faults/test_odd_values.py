"""One user's object has a value that is costly to read or cannot be read: pods of others are bound as before."""

import json

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.builders import PodBuilder, node, pod, reservation
from seatrial.scheduler.api.device import GPU_PARTITION_SPEC
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.podgroup import GANG_GROUPS, GANG_WAITING_TIME

pytestmark = [
    pytest.mark.feature("HIL-4.odd-values"),
    pytest.mark.profile(KOORD_SCHEDULER),
    pytest.mark.needs(Capability.NODES),
]


def _member() -> PodBuilder:
    return pod("odd").scheduler(KOORD_SCHEDULER).in_light_gang("odd", 2)


def _bandwidth(text: str) -> str:
    return json.dumps({"allocatePolicy": "Restricted", "ringBusBandwidth": text})


@pytest.mark.case("FT-090", severity="critical")
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(_member().annotation(GANG_WAITING_TIME, "1" * 200_000), id="waiting-time"),
        pytest.param(
            _member().annotation(GANG_GROUPS, json.dumps([f"default/g{at}" for at in range(10_000)])), id="gang-groups"
        ),
        pytest.param(_member().annotation(GANG_GROUPS, "[" * 200_000), id="nested-gang-groups"),
        pytest.param(
            pod("odd")
            .scheduler(KOORD_SCHEDULER)
            .gpus(1)
            .annotation(GPU_PARTITION_SPEC, _bandwidth("1" * 60_000 + "x")),
            id="bandwidth",
        ),
        pytest.param(pod("odd").scheduler(KOORD_SCHEDULER).request(cpu="9" * 400), id="amount"),
    ],
)
def test_an_odd_value_of_one_pod_does_not_keep_others_waiting(trial: Trial, expect: Expect, odd: PodBuilder) -> None:
    """A value of 200,000 digits, 10,000 gangs in a group, JSON that is nested too deeply, an amount beyond 64 bits.

    Other pods are bound while the pod is there and after it is gone.

    Source: ours; kube-scheduler's queue goes on with other pods when one cannot be scheduled.
    """
    trial.add(node("n1").gpus("a10", 2))
    trial.submit(odd)
    trial.submit(pod("beside").scheduler(KOORD_SCHEDULER))
    expect.bound("beside", within=10)
    trial.delete("odd")
    trial.submit(pod("after").scheduler(KOORD_SCHEDULER))
    expect.bound("after", within=10)


@pytest.mark.case("FT-091", severity="critical")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("ttl", "1" * 100_000, id="long-ttl"),
        pytest.param("expires", "0000-01-01T00:00:00Z", id="year-0"),
        pytest.param("expires", "2026-01-01T00:00:00+99:99", id="offset"),
        pytest.param("expires", "9999-12-31T23:59:59Z", id="year-9999"),
    ],
)
def test_an_odd_end_of_a_reservation_does_not_keep_pods_waiting(
    trial: Trial, expect: Expect, field: str, value: str
) -> None:
    """The ttl has 100,000 digits; the time of expiry is in the year 0 or has an offset that does not exist.

    Source: ours; Koordinator's CRD says `format: date-time`, and kube-apiserver 1.34 takes year 0 and such offsets.
    """
    trial.add(node("n1"))
    odd = reservation("odd").like(pod("x").request(cpu=1)).for_labels(app="x")
    odd.manifest["spec"].pop("ttl", None)
    odd.manifest["spec"][field] = value
    try:
        trial.reserve(odd)
    except ApiRefused:
        pytest.skip(f"the API server refuses {field} {value[:40]!r}")
    trial.submit(pod("beside").scheduler(KOORD_SCHEDULER))
    expect.bound("beside", within=10)
