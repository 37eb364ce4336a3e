"""Events live for an hour after their last change."""

import pytest

from seatrial.harness.apiserver.controllers import event_expiry
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


def test_the_oldest_of_too_many_events_go_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_expiry, "MOST", 10)
    api = Api()
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    for number in range(25):
        api.do("POST", EVENTS, {"metadata": {"name": f"e{number:02}"}, "involvedObject": about})
    assert [item["metadata"]["name"] for item in api.do("GET", EVENTS)["items"]] == [f"e{at}" for at in range(15, 25)]
    api.clock.advance(TTL)
    assert api.do("GET", EVENTS)["items"] == []
