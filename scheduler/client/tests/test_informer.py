"""List, watch, and list again after a gap: nothing lost, nothing doubled."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.client.informer import Informer
from seatrial.scheduler.tests.scripted import Scripted, Watch, ok, refused


def node(name: str, version: int, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": labels}}


def page(items: list[Any], version: int, continue_: str = "") -> Response:
    return ok({"metadata": {"resourceVersion": str(version), "continue": continue_}, "items": items})


class Scene:
    """An informer of nodes and what it said."""

    def __init__(self, *, optional: bool = False, path: str = "/api/v1/nodes") -> None:
        self.clock = SimClock()
        self.api = Scripted(self.clock)
        self.calls: list[tuple[str, str]] = []
        self.synced = 0
        self.errors: Counter[str] = Counter()
        self.informer: Informer[Node] = Informer(
            self.api,
            self.clock,
            path,
            msgspec.json.Decoder(Node).decode,
            on_set=lambda item: self.calls.append(("set", item.name)),
            on_gone=lambda gone: self.calls.append(("gone", gone.name)),
            on_synced=self._count,
            on_batch=lambda: None,
            optional=optional,
            errors=self.errors,
        )

    def _count(self) -> None:
        self.synced += 1

    def lists(self, *answers: Response) -> None:
        queue = list(answers)
        self.api.answer = lambda _: queue.pop(0) if len(queue) > 1 else queue[0]

    def start(self) -> None:
        self.informer.start()
        self.clock.settle()

    @property
    def watch(self) -> Watch:
        return self.api.streams[-1]


def test_lists_then_watches_from_there() -> None:
    scene = Scene()
    scene.lists(page([node("a", 1)], 5))
    scene.start()
    assert scene.calls == [("set", "a")]
    assert scene.synced == 1
    assert "resourceVersion=5" in scene.watch.request.path
    scene.watch.event("ADDED", node("b", 6))
    scene.watch.event("DELETED", node("a", 7))
    assert scene.calls[1:] == [("set", "b"), ("gone", "a")]


def test_a_long_list_comes_in_pages() -> None:
    scene = Scene()
    scene.lists(page([node("a", 1)], 5, "more"), page([node("b", 2)], 5))
    scene.start()
    assert scene.calls == [("set", "a"), ("set", "b")]
    assert "continue=more" in scene.api.sent[1].path


def test_a_watch_that_ends_is_taken_up_where_it_was() -> None:
    scene = Scene()
    scene.lists(page([node("a", 1)], 5))
    scene.start()
    scene.watch.event("MODIFIED", node("a", 9))
    scene.watch.event("BOOKMARK", {"metadata": {"resourceVersion": "12"}})
    scene.watch.end(Response(200))
    assert "resourceVersion=12" in scene.watch.request.path
    assert len(scene.api.streams) == 2
    assert len(scene.api.sent) == 1, "nothing is listed again"


def test_a_broken_watch_pauses_longer_each_time() -> None:
    scene = Scene()
    scene.lists(page([], 5))
    scene.start()
    scene.watch.end(Response(0, b"connection lost"))
    assert len(scene.api.streams) == 1
    scene.clock.advance(0.2)
    assert len(scene.api.streams) == 2
    scene.watch.end(Response(0, b"connection lost"))
    scene.clock.advance(0.2)
    assert len(scene.api.streams) == 2
    scene.clock.advance(0.2)
    assert len(scene.api.streams) == 3


def test_after_a_gap_what_is_missing_has_gone() -> None:
    scene = Scene()
    scene.lists(page([node("a", 1), node("b", 2)], 5), page([node("b", 2), node("c", 40)], 41))
    scene.start()
    gone = {
        "kind": "Status",
        "status": "Failure",
        "code": 410,
        "reason": "Expired",
        "message": "too old resource version",
    }
    scene.watch.event("ERROR", gone)
    scene.clock.advance(1)
    assert scene.calls[2:] == [("gone", "a"), ("set", "b"), ("set", "c")]
    assert "resourceVersion=41" in scene.watch.request.path


def test_a_refused_watch_that_is_too_old_lists_at_once() -> None:
    scene = Scene()
    scene.lists(page([node("a", 1)], 5), page([], 9))
    scene.start()
    scene.watch.end(refused(410, "Expired", "too old"))
    scene.clock.settle()
    assert scene.calls == [("set", "a"), ("gone", "a")]


def test_a_name_used_again_is_another_object() -> None:
    scene = Scene()
    scene.lists(page([node("a", 1)], 5), page([{"metadata": {"name": "a", "uid": "other", "resourceVersion": "8"}}], 9))
    scene.start()
    scene.watch.end(refused(410, "Expired", "too old"))
    scene.clock.settle()
    assert scene.calls == [("set", "a"), ("gone", "a"), ("set", "a")]


def test_a_refused_list_is_tried_again() -> None:
    scene = Scene()
    scene.lists(refused(503, "ServiceUnavailable", "starting"), page([node("a", 1)], 5))
    scene.start()
    assert scene.synced == 0
    scene.clock.advance(0.2)
    assert scene.synced == 1


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(refused(404, "NotFound", "the server could not find the requested resource"), id="absent"),
        pytest.param(refused(403, "Forbidden", 'nodes is forbidden: User "x" cannot list resource'), id="not-shown"),
    ],
)
def test_an_optional_kind_does_not_hold_up_the_start_and_is_found_when_it_comes(refusal: Response) -> None:
    scene = Scene(optional=True)
    scene.lists(refusal, page([node("a", 1)], 5))
    scene.start()
    assert scene.synced == 1
    scene.clock.advance(1)
    assert scene.calls == [("set", "a")]
    assert scene.synced == 1


def test_a_stopped_informer_says_no_more() -> None:
    scene = Scene()
    scene.lists(page([], 5))
    scene.start()
    watch = scene.watch
    scene.informer.stop()
    assert watch.closed
    watch.on_line(b'{"type":"ADDED","object":{"metadata":{"name":"late","uid":"u","resourceVersion":"6"}}}')
    assert scene.calls == []


def test_requests_ask_for_pages() -> None:
    scene = Scene()
    scene.lists(page([], 5))
    scene.start()
    assert scene.api.sent[0] == Request("GET", "/api/v1/nodes?limit=5000")


def bad(name: str, version: int) -> dict[str, Any]:
    return {**node(name, version), "spec": {"unschedulable": "perhaps"}}


def test_an_object_that_cannot_be_decoded_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    """A list has a Node with a wrong type between two good ones."""
    scene = Scene()
    scene.lists(page([node("a", 1), bad("b", 2), node("c", 3)], 5))
    scene.start()
    assert scene.calls == [("set", "a"), ("set", "c")]
    assert scene.synced == 1
    assert scene.errors == {"/api/v1/nodes": 1}
    assert "object=b" in caplog.text


def test_an_object_that_could_not_be_decoded_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    """The Node is read after 1 s, after 2 s more, and then decodes."""
    scene = Scene()
    scene.lists(page([bad("b", 2)], 5))
    scene.start()
    scene.lists(ok(bad("b", 2)))
    scene.clock.advance(1)
    assert [request.path for request in scene.api.sent[1:]] == ["/api/v1/nodes/b"]
    scene.lists(ok(node("b", 9)))
    scene.clock.advance(1)
    assert scene.calls == []
    scene.clock.advance(1)
    assert scene.calls == [("set", "b")]
    assert scene.errors == {"/api/v1/nodes": 2}
    scene.clock.advance(1000)
    assert len(scene.api.sent) == 3, "no further attempt"
    assert caplog.text.count("object=b") == 2


def test_a_version_that_cannot_be_decoded_leaves_the_last_good_one() -> None:
    """An event and a new list bring versions with a wrong type; then the Node is deleted."""
    scene = Scene()
    scene.lists(page([node("a", 1)], 5))
    scene.start()
    scene.watch.event("MODIFIED", bad("a", 6))
    scene.watch.end(Response(200))
    assert "resourceVersion=6" in scene.watch.request.path
    scene.lists(page([bad("a", 6)], 7))
    scene.watch.end(refused(410, "Expired", "too old"))
    scene.clock.settle()
    assert scene.calls == [("set", "a"), ("set", "a")]
    scene.watch.event("DELETED", bad("a", 8))
    assert scene.calls[2:] == [("gone", "a")]


def test_a_newer_event_ends_the_attempts() -> None:
    """The attempt's answer arrives after the event and is older."""
    scene = Scene()
    scene.lists(page([bad("a", 1)], 5))
    scene.start()
    scene.watch.event("MODIFIED", node("a", 6))
    assert scene.calls == [("set", "a")]
    scene.clock.advance(600)
    assert len(scene.api.sent) == 1


def test_a_list_and_a_line_that_are_no_json_are_asked_for_again() -> None:
    """A proxy cuts a response; then a watch line is cut."""
    scene = Scene()
    scene.lists(Response(200, b'{"items": ['), page([node("a", 1)], 5))
    scene.start()
    assert scene.calls == []
    scene.clock.advance(0.2)
    assert scene.calls == [("set", "a")]
    scene.watch.on_line(b'{"type": "ADDED", "obj')
    scene.clock.advance(0.2)
    assert scene.calls == [("set", "a"), ("set", "a")]


@pytest.mark.parametrize(
    ("path", "namespace", "want"),
    [
        pytest.param("/api/v1/nodes", "", "/api/v1/nodes/x", id="cluster-scoped"),
        pytest.param("/api/v1/pods", "ns", "/api/v1/namespaces/ns/pods/x", id="core-group"),
        pytest.param("/apis/g/v1/things", "ns", "/apis/g/v1/namespaces/ns/things/x", id="other-group"),
        pytest.param("/api/v1/namespaces/ns/pods", "ns", "/api/v1/namespaces/ns/pods/x", id="one-namespace"),
    ],
)
def test_path_of_one_object(path: str, namespace: str, want: str) -> None:
    scene = Scene(path=path)
    one = bad("x", 1)
    one["metadata"]["namespace"] = namespace
    scene.lists(page([one], 5))
    scene.start()
    scene.clock.advance(1)
    assert scene.api.sent[1].path == want
