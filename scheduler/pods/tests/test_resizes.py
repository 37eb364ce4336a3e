"""A pod that is resized in place holds the largest of what it asks for, was given, and has."""

import json
from typing import Any

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.cache.resources import CPU_COLUMN
from seatrial.scheduler.client.pods import PodDecoder
from seatrial.scheduler.tests.rig import Rig

DECODE = PodDecoder()


def resized(reservation: str, allocated: str | None, actual: str | None, version: int, pending: str = "") -> Any:
    """A running pod with one container and a sidecar that changes nothing."""
    status: dict[str, Any] = {"name": "c"}
    if allocated is not None:
        status["allocatedResources"] = {"cpu": allocated}
    if actual is not None:
        status["resources"] = {"requests": {"cpu": actual}}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    body = {
        "metadata": {"name": "big", "namespace": "default", "uid": "uid-big", "resourceVersion": str(version)},
        "spec": {
            "schedulerName": "default-scheduler",
            "nodeName": "n",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": reservation}}}],
        },
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [status]},
    }
    return DECODE(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("cpu", "allocated", "actual", "pending", "held"),
    [
        pytest.param("1", "4", "4", "", 4000, id="it-shrinks-and-kubelet-has-not-begun"),
        pytest.param("1", "1", "4", "", 4000, id="it-shrinks-and-the-container-has-not-followed"),
        pytest.param("1", "1", "1000m", "", 1000, id="it-has-shrunk"),
        pytest.param("4", "1", "1", "Deferred", 4000, id="it-is-to-grow-later"),
        pytest.param("40", "1", "1", "Infeasible", 1000, id="it-cannot-grow"),
        pytest.param("1", None, "2", "", 2000, id="no-allocation-is-reported"),
        pytest.param("1", None, None, "", 1000, id="nothing-is-reported"),
        pytest.param("1", "much", "1", "", 1000, id="a-report-that-cannot-be-read"),
    ],
)
def test_what_a_resized_pod_holds(cpu: str, allocated: str | None, actual: str | None, pending: str, held: int) -> None:
    rig = Rig()
    rig.node("n", cpu="64")
    rig.core.intake.set_pod(resized(cpu, allocated, actual, 1, pending))
    node = rig.core.cache.find("n")
    assert node is not None
    assert node.requested[CPU_COLUMN] == held


def test_room_of_a_pod_that_shrinks_is_free_when_the_kubelet_has_taken_it_back() -> None:
    rig = Rig()
    rig.node("n", cpu="4")
    rig.core.intake.set_pod(resized("4", "4", "4", 1))
    rig.submit(pod("next").request(cpu=3))
    rig.run()
    for version, reported in enumerate((("4", "4"), ("1", "4")), start=2):
        rig.core.intake.set_pod(resized("1", *reported, version))
        rig.clock.advance(30)
        rig.run()
        assert rig.where("next") == ""
    rig.core.intake.set_pod(resized("1", "1", "1", 4))
    rig.clock.advance(30)
    rig.run()
    assert rig.where("next") == "n"
