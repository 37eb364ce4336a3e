"""A transport in trouble: what the client sees, and what the server behind it did all the same."""

from collections.abc import Callable

import orjson
import pytest

from seatrial.harness.clusters.faulty import FaultyTransport, bindings, every, writes
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
