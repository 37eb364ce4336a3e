"""A transport in trouble: what the client sees, and what the server behind it did all the same."""

from collections.abc import Callable

import orjson
import pytest

from seatrial.harness.clusters.fault_injection.transport import (
    PICKS,
    BindingsOf,
    FaultyTransport,
    OfKind,
    Picks,
    bindings,
    decode_picks,
    encode_picks,
    every,
    writes,
)
from seatrial.harness.clusters.virtual import VirtualCluster
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import Request, Response

PODS = "/api/v1/namespaces/default/pods"
CREATE = Request("POST", PODS, orjson.dumps(pod("p").manifest))
READ = Request("GET", f"{PODS}/p")


class Scene:
    """A client's link to a virtual cluster."""

    def __init__(self) -> None:
        self.cluster = VirtualCluster()
        self.link = FaultyTransport(self.cluster.transport, self.cluster.clock)
        self.lines: list[bytes] = []
        self.ended: list[Response] = []

    def send(self, request: Request) -> list[Response]:
        got: list[Response] = []
        self.link.send(request, got.append)
        self.cluster.clock.settle()
        return got

    def watch(self) -> None:
        self.link.stream(Request("GET", f"{PODS}?watch=1"), self.lines.append, self.ended.append)
        self.cluster.clock.settle()

    @property
    def there(self) -> bool:
        """Whether the pod was created, as the server's store shows."""
        return self.cluster.call(READ).ok


@pytest.mark.parametrize(
    ("trouble", "code", "there"),
    [
        pytest.param(FaultyTransport.heal, 201, True, id="none"),
        pytest.param(lambda link: link.refuse(500), 500, False, id="refused"),
        pytest.param(lambda link: link.refuse(500, bindings), 201, True, id="only-bindings-refused"),
        pytest.param(lambda link: link.lose_answers(writes), 0, True, id="answer-lost"),
        pytest.param(lambda link: link.cut(), 0, False, id="cut"),
        pytest.param(lambda link: (link.cut(), link.refuse(500, every), link.heal()), 201, True, id="healed"),
    ],
)
def test_what_the_client_sees_and_what_was_done(
    trouble: Callable[[FaultyTransport], object], code: int, there: bool
) -> None:
    scene = Scene()
    trouble(scene.link)
    assert [response.code for response in scene.send(CREATE)] == [code]
    assert scene.there == there


def test_a_dead_client_hears_nothing_of_what_it_sent() -> None:
    scene = Scene()
    scene.watch()
    got: list[Response] = []
    scene.link.send(CREATE, got.append)
    scene.link.die()
    scene.cluster.clock.settle()
    assert (got, scene.lines, scene.ended) == ([], [], [])
    assert scene.there
    assert scene.send(READ) == []


def test_streams_break_and_are_held_back() -> None:
    scene = Scene()
    scene.watch()
    scene.link.hold_streams()
    scene.send(CREATE)
    assert scene.lines == []
    scene.link.heal()
    assert len(scene.lines) >= 1
    scene.link.break_streams()
    assert [response.code for response in scene.ended] == [0]


def test_a_watch_is_told_that_it_is_too_old_until_its_collection_is_listed() -> None:
    scene = Scene()
    scene.watch()
    scene.link.cut()
    scene.link.expire_watches()
    scene.link.heal()
    scene.watch()
    scene.watch()
    events = [orjson.loads(line) for line in scene.lines]
    assert [(event["type"], event["object"]["code"], event["object"]["reason"]) for event in events] == [
        ("ERROR", 410, "Expired")
    ] * 2
    assert [response.code for response in scene.ended] == [0, 200, 200]
    assert scene.link.answers[410] == 2
    scene.send(Request("GET", PODS))
    scene.watch()
    scene.send(CREATE)
    assert orjson.loads(scene.lines[-1])["type"] == "ADDED"


def test_too_many_requests_say_when_to_come_back() -> None:
    scene = Scene()
    scene.link.refuse(429)
    (answer,) = scene.send(READ)
    assert answer.headers["retry-after"] == "1"
    assert orjson.loads(answer.body)["reason"] == "TooManyRequests"


def test_answers_take_their_time() -> None:
    scene = Scene()
    scene.link.delay = 2.0
    got: list[Response] = []
    scene.link.send(CREATE, got.append)
    scene.cluster.clock.advance(1.9)
    assert (got, scene.there) == ([], True)
    scene.cluster.clock.advance(0.2)
    assert len(got) == 1


@pytest.mark.parametrize(
    ("method", "path", "picked"),
    [
        pytest.param("POST", "/api/v1/namespaces/d/pods/first/binding", True, id="its-binding"),
        pytest.param("POST", "/api/v1/namespaces/d/pods/first-2/binding", False, id="of-another-pod"),
        pytest.param("POST", "/api/v1/namespaces/first/pods/p/binding", False, id="in-a-namespace-of-that-name"),
        pytest.param("PATCH", "/api/v1/namespaces/d/pods/first/status", False, id="its-status"),
    ],
)
def test_the_bindings_of_one_pod(method: str, path: str, picked: bool) -> None:
    assert BindingsOf("first")(Request(method, path)) is picked


@pytest.mark.parametrize(
    ("path", "picked"),
    [
        pytest.param("/api/v1/nodes?watch=1", True, id="all"),
        pytest.param("/api/v1/nodes/n1/status", True, id="one"),
        pytest.param("/api/v1/pods?fieldSelector=nodes", False, id="a-selector"),
        pytest.param("/apis/metrics/v1/nodesets", False, id="another-kind"),
    ],
)
def test_the_requests_about_one_kind(path: str, picked: bool) -> None:
    assert OfKind("nodes")(Request("GET", path)) is picked


@pytest.mark.parametrize("picks", [*PICKS.values(), BindingsOf("p-1"), OfKind("nodes")])
def test_another_process_makes_the_same_of_what_it_is_sent(picks: Picks) -> None:
    assert decode_picks(orjson.loads(orjson.dumps(encode_picks(picks)))) == picks


@pytest.mark.parametrize(
    ("encoded", "complaint"),
    [
        pytest.param("reads", "found 'reads'", id="no-such-name"),
        pytest.param(7, "found 7", id="neither-name-nor-object"),
        pytest.param({"picks": "bindings_of"}, "missing required field `pod`", id="no-parameter"),
        pytest.param({"picks": "bindings_of", "pod": 1}, "Expected `str`, got `int`", id="wrong-type"),
        pytest.param({"picks": "bindings_of", "pod": "a/b"}, "expected the name of a pod, found 'a/b'", id="no-name"),
        pytest.param({"picks": "bindings_of", "pod": "p", "node": "n"}, "unknown field `node`", id="one-too-many"),
        pytest.param({"picks": "writes"}, "Invalid value 'writes'", id="without-parameters"),
    ],
)
def test_requests_that_cannot_be_understood_are_refused(encoded: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"expected one of every, .*, or of_kind with a plural") as caught:
        decode_picks(encoded)
    assert complaint in str(caught.value)


def test_a_function_of_a_case_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="found <lambda>"):
        encode_picks(lambda _: True)


@pytest.mark.parametrize("trouble", [FaultyTransport.lose_answers, lambda link, picks: link.refuse(500, picks)])
def test_what_another_process_could_not_be_told_is_refused_here_too(
    trouble: Callable[[FaultyTransport, Picks], None],
) -> None:
    """A case that runs in virtual time alone would break on processes."""
    with pytest.raises(ValueError, match="expected one of every, writes"):
        trouble(Scene().link, lambda request: "/pods/" in request.path)
