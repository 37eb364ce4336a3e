"""The controller that writes the status of PodGroups, against an API server that the test plays."""

import json
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import gang
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.podgroup import PodGroup
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.plugins.coscheduling.controller import PodGroupController
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, member
from seatrial.scheduler.tests.scripted import Scripted, context_of, ok


@pytest.mark.parametrize("watch_first", [True, False])
def test_the_status_comes_to_rest_whatever_comes_first(watch_first: bool) -> None:
    """A watch delivers each written status before the answer to the write, or after it; nothing else happens."""
    rig, clock = GangRig(), SimClock()
    rig.group(gang("g", 2))
    for name in ("a", "b"):
        pod = rig.pod(member(name, "g"))
        spec, status = (
            msgspec.structs.replace(pod.spec, node_name="n"),
            msgspec.structs.replace(pod.status, phase="Running"),
        )
        rig.core.intake.set_pod(msgspec.structs.replace(pod, spec=spec, status=status))
    transport = Scripted(clock)
    controller = PodGroupController(rig.cache, context_of(transport, clock))
    shown: dict[str, Any] = {}

    def deliver() -> None:
        manifest = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}, "status": shown}
        rig.cache.set_object(msgspec.convert(manifest, PodGroup))
        controller.work()

    def answer(request: Request) -> Response:
        shown.update(json.loads(request.body or b"{}")["status"])
        if watch_first:
            deliver()
        else:
            clock.call_later(0.1, deliver)
        return ok()

    transport.answer = answer
    controller.work()
    clock.advance(10)
    assert (shown["phase"], shown["running"]) == ("Running", 2)
