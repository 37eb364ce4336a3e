"""A way to a real API server, through the proxy process: what the client sees, and what was done all the same."""

import base64
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest
import yaml

from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.clusters.fault_injection.proxy_process import TroubledWay
from seatrial.harness.clusters.fault_injection.transport import BindingsOf, bindings, writes
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.errors import ClusterError
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import Request, Response

PODS = "/api/v1/namespaces/default/pods"


class Scene:
    """The cluster itself, and the same cluster at the end of the way."""

    def __init__(self, direct: EmbeddedCluster, way: TroubledWay, far: EmbeddedCluster) -> None:
        self.direct, self.way, self.far = direct, way, far
        self.lines: list[bytes] = []
        self.ended: list[Response] = []

    def create(self, name: str) -> Response:
        return self.far.call(Request("POST", PODS, orjson.dumps(pod(name).manifest)))

    def watch(self) -> None:
        self.far.transport.stream(Request("GET", f"{PODS}?watch=1"), self.lines.append, self.ended.append)

    def there(self, name: str) -> bool:
        """Whether the pod was created, as the server's store shows."""
        return self.direct.call(Request("GET", f"{PODS}/{name}")).ok


@pytest.fixture(scope="module")
def direct() -> Iterator[EmbeddedCluster]:
    with EmbeddedBackend().start() as cluster:
        yield cluster


@pytest.fixture
def scene(direct: EmbeddedCluster) -> Iterator[Scene]:
    assert direct.endpoint is not None
    with TroubledWay(direct.endpoint.kubeconfig) as way:
        far = EmbeddedCluster("far", load_access(way.offered), way.offered)
        yield Scene(direct, way, far)
        far.close()
    direct.call(Request("DELETE", f"{PODS}?gracePeriodSeconds=0"))


def test_everything_goes_through_at_first(scene: Scene) -> None:
    scene.watch()
    assert [scene.create(f"p{number}").code for number in range(3)] == [201] * 3
    assert scene.far.wait(lambda: len(scene.lines) == 3, within=60)
    assert scene.way.answers[201] == 3
    assert (scene.way.refused, scene.way.lost) == (0, 0)
    assert scene.way.offered.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("code", [429, 500, 503])
def test_what_is_refused_never_reaches_the_server(scene: Scene, code: int) -> None:
    scene.way.refuse(code, writes)
    refused = scene.create("p")
    assert refused.code == code
    assert orjson.loads(refused.body)["kind"] == "Status"
    assert scene.far.call(Request("GET", PODS)).ok, "reading is no writing"
    assert not scene.there("p")
    scene.way.heal()
    assert scene.create("p").ok
    assert scene.way.refused == 1


def test_what_is_lost_was_carried_out(scene: Scene) -> None:
    scene.way.lose_answers(bindings)
    assert scene.create("p").ok, "that is no binding"
    scene.way.lose_answers(writes)
    with pytest.raises(ClusterError, match="no answer to POST"):
        scene.create("q")
    assert scene.there("q")
    assert scene.way.lost == 1


@pytest.mark.parametrize(
    ("trouble", "goes_on"),
    [pytest.param(TroubledWay.break_streams, True, id="broken"), pytest.param(TroubledWay.cut, False, id="cut")],
)
def test_streams_break(scene: Scene, trouble: Callable[[TroubledWay], None], goes_on: bool) -> None:
    scene.watch()
    assert scene.create("p").ok
    assert scene.far.wait(lambda: bool(scene.lines), within=60)
    trouble(scene.way)
    assert scene.far.wait(lambda: bool(scene.ended), within=60)
    if goes_on:
        assert scene.create("q").ok
        return
    with pytest.raises(ClusterError):
        scene.create("q")
    assert not scene.there("q")
    scene.way.heal()
    assert scene.create("q").ok


def test_what_streams_have_to_say_is_kept_back(scene: Scene) -> None:
    scene.watch()
    assert scene.create("p").ok
    assert scene.far.wait(lambda: len(scene.lines) == 1, within=60)
    scene.way.hold_streams()
    assert scene.create("q").ok
    assert not scene.far.wait(lambda: len(scene.lines) > 1, within=0.5)
    scene.way.heal()
    assert scene.far.wait(lambda: len(scene.lines) == 2, within=60)


def test_a_watch_is_told_that_it_is_too_old_until_its_collection_is_listed(scene: Scene) -> None:
    scene.way.expire_watches()
    scene.watch()
    assert scene.far.wait(lambda: len(scene.ended) == 1, within=60)
    (event,) = map(orjson.loads, scene.lines)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert scene.way.answers[410] == 1
    assert scene.far.call(Request("GET", PODS)).ok
    scene.watch()
    assert scene.create("p").ok
    assert scene.far.wait(lambda: len(scene.lines) == 2, within=60)


def test_strangers_are_not_let_through(scene: Scene, tmp_path: Path) -> None:
    access = load_access(scene.way.offered)
    assert access.tls is not None

    written = yaml.safe_load(scene.way.offered.read_bytes())["clusters"][0]["cluster"]
    authority = base64.b64decode(written["certificate-authority-data"]).decode()
    stranger = ssl.create_default_context(cadata=authority)  # it trusts the proxy, and shows nothing
    far = EmbeddedCluster("stranger", type(access)(access.url, stranger), tmp_path)
    assert far.call(Request("GET", PODS)).code == 401
    far.close()


def test_a_kubeconfig_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="expected a file, found none"), TroubledWay(tmp_path / "nope"):
        pass


def test_a_fault_with_a_parameter(scene: Scene) -> None:
    scene.way.refuse(500, BindingsOf("first"))
    for name in ("first", "second"):
        scene.far.call(Request("POST", f"{PODS}/{name}/binding", b"{}"))
    assert (scene.way.refused, scene.way.answers[500]) == (1, 1)
    with pytest.raises(ValueError, match="expected the name of a pod, found 'a/b'"):
        scene.way.refuse(500, BindingsOf("a/b"))
