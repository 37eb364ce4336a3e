"""What the quota controller writes: the special quotas, and evictions of what is overused."""

import json
from typing import Any

import pytest

from seatrial.scheduler.api.builders import pod, quota
from seatrial.scheduler.api.quota import QUOTAS_PATH
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.plugins.elasticquota.cache import QuotaCache
from seatrial.scheduler.plugins.elasticquota.controller import QuotaController
from seatrial.scheduler.plugins.elasticquota.tests.test_plugin import put
from seatrial.scheduler.tests.rig import Rig, profile
from seatrial.scheduler.tests.scripted import Scripted, context_of, ok, refused


def controlled(rig: Rig, transport: Scripted) -> QuotaController:
    controller = QuotaController(QuotaCache.of(rig.core.handle), context_of(transport, rig.clock))
    controller.start()
    return controller


def created(transport: Scripted) -> list[str]:
    """The names of the objects that were posted, in their order."""
    return [json.loads(request.body)["metadata"]["name"] for request in transport.sent if request.method == "POST"]


SPECIAL = ["koordinator-root-quota", "koordinator-system-quota", "koordinator-default-quota"]


def test_special_quotas_are_created_ten_seconds_after_the_start() -> None:
    """Without a quota of a user (QUOTA-R37). A scheduler that does not lead any more creates none."""
    rig = Rig()
    transport = Scripted(rig.clock)
    controller = controlled(rig, transport)
    rig.clock.advance(9.9)
    assert created(transport) == []
    rig.clock.advance(0.2)
    assert created(transport) == SPECIAL
    controller.stop()
    rig.clock.advance(3600)
    assert created(transport) == SPECIAL


def test_the_use_of_all_pods_is_written_once_the_special_quotas_exist() -> None:
    rig = Rig()
    rig.node("n1", cpu="8")
    transport = Scripted(rig.clock)
    controlled(rig, transport)
    rig.submit(pod("a").request(cpu=3))
    rig.run()
    root = quota(SPECIAL[0])
    root.manifest["spec"] = {}
    put(rig, root)
    rig.clock.advance(1.1)
    (status,) = [json.loads(request.body) for request in transport.sent if request.method == "PATCH"]
    assert status["status"]["used"] == {"cpu": "3"}


def test_a_server_without_the_kind_is_asked_less_and_less() -> None:
    """Its answer makes no namespace. After a day the controller has asked about 150 times for each of the three."""
    rig = Rig()
    message = "the server could not find the requested resource"
    transport = Scripted(rig.clock, answer=lambda _: refused(404, "NotFound", message))
    controlled(rig, transport)
    rig.clock.advance(24 * 3600)
    assert {request.path for request in transport.sent} == {
        QUOTAS_PATH.replace("/elasticquotas", "/namespaces/koordinator-system/elasticquotas")
    }
    assert len(transport.sent) < 3 * 160


def test_a_missing_namespace_is_created() -> None:
    rig = Rig()
    namespaces: list[str] = []

    def answer(request: Request) -> Response:
        if request.path == "/api/v1/namespaces":
            namespaces.append("koordinator-system")
        elif not namespaces:
            return refused(404, "NotFound", 'namespaces "koordinator-system" not found')
        return ok(code=201)

    transport = Scripted(rig.clock, answer=answer)
    controlled(rig, transport)
    rig.clock.advance(10.1)
    assert sorted(set(created(transport)[-3:])) == sorted(SPECIAL)


def test_profiles_without_the_plugin_create_no_quotas() -> None:
    rig = Rig(profile(plugins={"multiPoint": {"disabled": [{"name": "ElasticQuota"}]}}))
    transport = Scripted(rig.clock)
    controlled(rig, transport)
    rig.clock.advance(60)
    assert transport.sent == []


def evictions(transport: Scripted) -> int:
    return sum(request.path.endswith("/eviction") for request in transport.sent)


@pytest.mark.parametrize("change", ["deleted", "larger", "not-leading"])
def test_overuse_begins_anew(change: str) -> None:
    """A quota is overused for 119 of 120 s, then deleted, or its max is as before, or the scheduler does not lead.

    When it is overused again its pods have the whole delay, and are evicted after it.
    """
    args: dict[str, Any] = {"monitorAllQuotas": True, "delayEvictTime": "120s"}
    rig = Rig(profile(pluginConfig=[{"name": "ElasticQuota", "args": args}]))
    rig.node("n1")
    transport = Scripted(rig.clock)
    controller = controlled(rig, transport)
    put(rig, quota("keeper").max(cpu=8), quota("q").max(cpu=8))
    rig.submit(*(pod(f"p{n}").request(cpu=1).quota("q") for n in range(8)))
    rig.run()
    put(rig, quota("q").max(cpu=4))
    rig.clock.advance(119)
    if change == "deleted":
        put(rig, quota("q").max(cpu=4), gone=True)
        put(rig, quota("q").max(cpu=4))
    elif change == "larger":
        put(rig, quota("q").max(cpu=8))
        rig.clock.advance(2)
        put(rig, quota("q").max(cpu=4))
    else:
        controller.stop()
        controller.start()
    rig.clock.advance(119)
    assert evictions(transport) == 0
    rig.clock.advance(5)
    assert evictions(transport) == 4
