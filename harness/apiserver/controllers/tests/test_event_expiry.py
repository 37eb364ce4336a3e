"""Events live for an hour after their last change."""

from seatrial.harness.apiserver.controllers.event_expiry import TTL
from seatrial.harness.apiserver.tests.asking import Api

EVENTS = "/api/v1/namespaces/default/events"


def test_an_event_is_removed_an_hour_after_its_last_change() -> None:
    api = Api()

    def names() -> list[str]:
        return [item["metadata"]["name"] for item in api.do("GET", EVENTS)["items"]]

    def create(name: str) -> None:
        about = {"kind": "Pod", "namespace": "default", "name": "p"}
        api.do("POST", EVENTS, {"metadata": {"name": name}, "involvedObject": about})

    for number in range(300):  # more than one iteration removes
        create(f"old-{number}")
    create("changed")
    api.clock.advance(TTL - 1)
    create("new")
    patch = {"count": 2}
    api.do("PATCH", f"{EVENTS}/changed", patch, "application/merge-patch+json")
    assert len(names()) == 302
    api.clock.advance(1)
    assert names() == ["changed", "new"]
    api.clock.advance(TTL - 2)
    assert names() == ["changed", "new"]
    api.clock.advance(1)
    assert names() == []
