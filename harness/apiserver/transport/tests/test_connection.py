"""HTTP over TLS with slow, malformed and many clients: each gets its response, other clients are not affected."""

import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import orjson
import pytest

from seatrial.harness.apiserver.request.bodies import BODY_LIMIT
from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, config, pod
from seatrial.harness.apiserver.tests.serving import PATIENCE, Served, Wire, served
from seatrial.harness.apiserver.transport import connection, watch_stream
from seatrial.harness.apiserver.transport.connection import ANONYMOUS_LIMIT, HEADERS_LIMIT, IDENTITY_KEPT
from seatrial.harness.apiserver.transport.header_cache import ParsedRequest
from seatrial.harness.apiserver.transport.large_requests import LargeRequests
from seatrial.scheduler.api.clock import SimClock

VERSION = "/version"


@pytest.fixture(scope="module")
def place() -> Iterator[Served]:
    with served() as api:
        yield api


@pytest.fixture(autouse=True)
def short_farewells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER", 0.2)


@pytest.fixture
def wire(place: Served) -> Iterator[Wire]:
    with place.connect() as wire:
        yield wire


def soon(holds: Callable[[], bool]) -> bool:
    """Whether it comes to hold."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def settled(place: Served, connections: int, watches: int | None = None) -> bool:
    """Whether the server gets down to that many connections (and watches)."""
    return soon(
        lambda: place.http.connections <= connections and (watches is None or place.api.reads.watches <= watches)
    )


def test_an_object_is_created_and_read(wire: Wire) -> None:
    assert wire.ask("POST", CONFIGS, config("in-and-out", a="b"))[0] == 201
    code, body = wire.ask("GET", f"{CONFIGS}/in-and-out")
    assert (code, body["data"]) == (200, {"a": "b"})


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "code", "words"),
    [
        pytest.param("POST", PODS, b'{"metadata": {"na', {}, 400, "unexpected end of JSON input", id="truncated-json"),
        pytest.param("POST", PODS, b"", {}, 400, "must be of type Pod): couldn't get", id="no-body"),
        pytest.param("POST", PODS, b"kind: Pod", {}, 400, "invalid character 'k' looking for", id="yaml-as-json"),
        pytest.param("POST", PODS, b'{"a":"\xff\xfe"}', {}, 422, "Required value", id="not-utf-8"),
        pytest.param("POST", PODS, b"[" * 10_000 + b"]" * 10_000, {}, 400, "", id="ten-thousand-levels"),
        pytest.param("POST", PODS, b'{"a":' * 900 + b"1" + b"}" * 900, {}, 400, "nested too deep", id="900-levels"),
        pytest.param("POST", PODS, b'{"metadata": 1e999}', {}, 400, "", id="a-number-too-large"),
        pytest.param("POST", PODS, b"null", {}, 400, "expected an object", id="null"),
        pytest.param("POST", PODS, b"{}", {"content_type": "text/xml"}, 415, "unknown format", id="xml"),
        pytest.param(
            "POST",
            PODS,
            b"a: &a [x]\nb: [*a, *a]\n",
            {"content_type": "application/yaml"},
            422,
            "Required value",
            id="yaml-with-aliases",
        ),
        pytest.param(
            "POST",
            PODS,
            b"a: &a [x,x,x,x,x,x,x,x,x]\n"
            + b"".join(
                b"%c: &%c [" % (c, c) + b",".join([b"*%c" % (c - 1)] * 9) + b"]\n" for c in range(ord("b"), ord("k"))
            ),
            {"content_type": "application/yaml"},
            400,
            "expands too far",
            id="a-billion-laughs",
        ),
        pytest.param(
            "POST", PODS, b"a: &a [*a]", {"content_type": "application/yaml"}, 400, "", id="yaml-that-holds-itself"
        ),
        pytest.param(
            "POST", PODS, b"[" * 100_000, {"content_type": "application/yaml"}, 400, "nested too deep", id="deep-yaml"
        ),
        pytest.param("GET", "/api/v1/pods/%zz", b"", {}, 400, "invalid URL escape", id="bad-percent-encoding"),
        pytest.param("GET", f"{PODS}/%ff%fe", b"", {}, 404, "not found", id="percent-encoding-of-no-text"),
        pytest.param("GET", "/nowhere", b"", {}, 404, "could not find", id="unknown-path"),
        pytest.param("PROPFIND", PODS, b"", {}, 405, "does not allow", id="unknown-verb"),
        pytest.param("GET", PODS, b"", {"accept": "image/png"}, 406, "media types", id="picture-wanted"),
        pytest.param("GET", PODS, b"", {"authorization": "Bearer wrong"}, 401, "Unauthorized", id="wrong-token"),
        pytest.param("GET", PODS, b"", {"authorization": "Basic YTpi"}, 403, "system:anonymous", id="no-such-scheme"),
        pytest.param("GET", PODS, b"", {"authorization": ""}, 403, "system:anonymous", id="no-token"),
    ],
)
def test_a_bad_request_gets_a_status_and_the_connection_stays_open(  # noqa: PLR0917
    wire: Wire, method: str, path: str, body: bytes, headers: dict[str, str], code: int, words: str
) -> None:
    value, status = wire.ask(method, path, body, **headers)
    assert (value, status["kind"], status["code"]) == (code, "Status", code)
    assert words in status["message"]
    assert wire.ask("GET", VERSION)[0] == 200


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"nonsense\r\n\r\n", 400, id="no-http"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\nbroken header\r\n\r\n", 400, id="a-header-without-a-colon"),
        pytest.param(b"GET /version HTTP/1.1\r\nx: " + b"y" * 300_000 + b"\r\n\r\n", 431, id="a-huge-header"),
        pytest.param(b"GET /version HTTP/1.1\r\nx: " + b"y" * 300_000, 431, id="a-header-without-end"),
        pytest.param(b"GET /" + b"y" * 300_000, 431, id="a-path-without-end"),
        pytest.param(
            b"GET /version HTTP/1.1\r\n" + b"".join(b"h%d: %d\r\n" % (n, n) for n in range(20_000)) + b"\r\n",
            431,
            id="twenty-thousand-headers",
        ),
        pytest.param(
            b"POST /api/v1/nodes HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (BODY_LIMIT + 1), 413, id="too-much"
        ),
        pytest.param(
            b"POST /api/v1/nodes HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n", 400, id="absurd-length"
        ),
        pytest.param(
            b"POST /api/v1/nodes HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
            b"100000\r\n"
            + b" " * 0x100000
            + b"\r\n"
            + b"100000\r\n"
            + b" " * 0x100000
            + b"\r\n"
            + b"100001\r\n"
            + b" " * 0x100001
            + b"\r\n0\r\n\r\n",
            413,
            id="3-MiB-and-one-in-chunks",
        ),
    ],
)
def test_malformed_http_gets_a_status_and_the_connection_is_closed(
    wire: Wire, data: bytes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Input that is refused before all of it was sent needs a server that reads on until the client has the answer."""
    large = len(data) > HEADERS_LIMIT
    if large:
        monkeypatch.setattr(connection, "LINGER", PATIENCE)
    wire.send(data)
    value, status = wire.answer()
    assert (value, status["kind"]) == (code, "Status")
    assert large or wire.closed()


def test_a_body_of_3_mib_is_accepted_and_a_larger_one_refused(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER", PATIENCE)  # the refusal comes while the client still sends
    empty = orjson.dumps(config("large", a=""))
    body = orjson.dumps(config("large", a="x" * (BODY_LIMIT - len(empty))))
    code, status = wire.ask("POST", f"{CONFIGS}?dryRun=All", body)
    assert code in {201, 422}, status  # a config map has a limit of its own, below ours
    code, status = wire.ask("POST", CONFIGS, body + b" ")
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")


def test_pipelined_requests_are_answered_in_their_order(wire: Wire) -> None:
    count = 500
    for number in range(count):
        wire.send(wire.request("GET", f"{PODS}/p-{number}"))
    assert [wire.answer()[1]["details"]["name"] for _ in range(count)] == [f"p-{number}" for number in range(count)]


def test_requests_behind_a_watch_wait_for_its_end(wire: Wire) -> None:
    wire.send(wire.request("GET", f"{CONFIGS}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=none"))
    wire.send(wire.request("GET", VERSION))
    assert wire.answer()[0] == 200
    assert wire.chunk() == b""
    assert wire.answer()[1]["major"]


def test_requests_behind_a_refused_one_are_discarded(wire: Wire, place: Served) -> None:
    wire.send(b"nonsense\r\n\r\n" + wire.request("POST", CONFIGS, orjson.dumps(config("never"))))
    assert wire.answer()[0] == 400
    assert wire.closed()
    with place.connect() as other:
        assert other.ask("GET", f"{CONFIGS}/never")[0] == 404


def test_an_upgrade_is_answered_once(wire: Wire) -> None:
    code, _ = wire.ask("GET", VERSION, connection="Upgrade", upgrade="websocket")
    assert code == 200
    assert wire.answer() == (0, None)


def test_no_requests_are_read_while_responses_are_not_read(place: Served, wire: Wire) -> None:
    """Its requests wait in its own socket, not in our memory; another client is served meanwhile."""
    with place.connect() as other:
        other.ask("POST", CONFIGS, config("bulk", a="x" * 500_000))
    request = wire.request("GET", f"{CONFIGS}/bulk") * 50
    wire.plug.settimeout(0.5)
    sent = 0
    try:
        while sent < 100_000:
            wire.send(request)
            sent += 50
    except TimeoutError:
        pass
    assert sent < 100_000

    def waiting() -> list[connection.Connection]:
        return [each for each in list(place.http._connections) if each._write_paused]

    assert soon(lambda: len(waiting()) == 1)
    transport = waiting()[0]._transport
    assert transport is not None
    assert transport.get_write_buffer_size() < 4_000_000
    with place.connect() as other:
        assert other.ask("GET", VERSION)[0] == 200


def test_an_incomplete_request_times_out_and_blocks_nobody(place: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_WITHIN", 0.5)
    before = place.http.connections
    slow = [place.connect() for _ in range(50)]
    try:
        for wire in slow:
            wire.send(b"POST /api/v1/nodes HTTP/1.1\r\nhost: x\r\nx-slow: ")
        with place.connect() as other:
            assert other.ask("GET", VERSION)[0] == 200

        def ended() -> bool:
            for wire in slow:  # one byte at a time does not buy more time
                with suppress(OSError):
                    wire.send(b"y")
            return place.http.connections <= before

        assert soon(ended)
    finally:
        for wire in slow:
            wire.plug.close()


def test_an_idle_connection_is_closed(place: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE", 0.3)
    with place.connect() as silent:
        assert silent.closed()


def test_a_lost_connection_ends_its_watch(place: Served) -> None:
    before, watches = place.http.connections, place.api.reads.watches
    for number in range(20):
        wire = place.connect()
        wire.send(wire.request("GET", f"{CONFIGS}?watch=1&fieldSelector=metadata.name=n{number}"))
        assert wire.answer()[0] == 200
        wire.plug.unwrap() if number % 2 else wire.plug.close()
        wire.plug.close()
    assert settled(place, before, watches)
    assert place.api.reads.watches == watches


def test_a_thousand_idle_watches_do_not_delay_requests(place: Served) -> None:
    before = place.http.connections
    watchers = [place.connect() for _ in range(1000)]
    try:
        for wire in watchers:
            wire.send(wire.request("GET", f"{CONFIGS}?watch=1&resourceVersion={place.api.store.version}"))
        for wire in watchers:
            assert wire.answer()[0] == 200
        with place.connect() as other:
            assert other.ask("POST", PODS, pod("beside"))[0] == 201
            assert other.ask("POST", CONFIGS, config("seen-by-all"))[0] == 201
        for wire in watchers:
            (event,) = wire.events(1)
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "seen-by-all")
    finally:
        for wire in watchers:
            wire.plug.close()
    assert settled(place, before)


def test_ten_thousand_events_arrive_once_and_in_order(place: Served, wire: Wire) -> None:
    count = 10_000
    query = "labelSelector=run%3Dten-thousand"
    wire.send(wire.request("GET", f"{CONFIGS}?watch=1&{query}"))
    assert wire.answer()[0] == 200
    with place.connect() as writer:
        for start in range(0, count, 100):
            for number in range(start, start + 100):
                body = orjson.dumps(config(f"n-{number}", labels={"run": "ten-thousand"}))
                writer.send(writer.request("POST", CONFIGS, body))
            assert all(writer.answer()[0] == 201 for _ in range(100))
    events = wire.events(count)
    assert [event["object"]["metadata"]["name"] for event in events] == [f"n-{number}" for number in range(count)]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


def test_a_watch_that_is_not_read_gets_an_error_and_is_closed(
    place: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_stream, "SLOW_READER", 200_000)
    wire.send(wire.request("GET", f"{CONFIGS}?watch=1&resourceVersion={place.api.store.version}"))
    assert wire.answer()[0] == 200
    with place.connect() as writer:
        for number in range(40):
            assert writer.ask("POST", CONFIGS, config(f"flood-{number}", a="x" * 500_000))[0] == 201
    types = []
    while data := wire.chunk():
        types += [(event["type"], event["object"].get("code")) for event in map(orjson.loads, data.splitlines())]
    assert types[-1] == ("ERROR", 410)
    assert set(types[:-1]) == {("ADDED", None)}
    assert len(types) < 41
    assert wire.closed()


def test_a_client_that_never_reads_the_response_is_cut_off(place: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED", 0.3)
    before = place.http.connections
    with place.connect() as other:
        other.ask("POST", CONFIGS, config("bulk-2", a="x" * 900_000))
    wire = place.connect()
    wire.send(wire.request("GET", f"{CONFIGS}/bulk-2") * 60)
    assert settled(place, before)
    wire.plug.close()


def test_a_large_response_is_compressed_if_the_client_accepts_gzip(place: Served, wire: Wire) -> None:
    wire.ask("POST", CONFIGS, config("compressed", a="x" * 900_000))
    code, body = wire.ask("GET", f"{CONFIGS}/compressed")
    assert (code, wire.fields.get("content-encoding")) == (200, None)
    wire.send(wire.request("GET", f"{CONFIGS}?fieldSelector=metadata.name%3Dcompressed", accept_encoding="gzip"))
    head = wire._until(b"\r\n\r\n").decode()
    assert "content-encoding: gzip" in head
    size = int(head.partition("content-length: ")[2].split("\r\n")[0])
    while len(wire._left) < size:
        wire._left += wire._receive()
    assert orjson.loads(gzip.decompress(wire._left[:size]))["items"][0]["data"] == body["data"]


def test_curl_gets_line_breaks(wire: Wire) -> None:
    code, body = wire.ask("GET", "/api", user_agent="curl/8.5")
    assert (code, body["kind"]) == (200, "APIVersions")
    indented_size = int(wire.fields["content-length"])
    wire.ask("GET", "/api")
    assert indented_size > int(wire.fields["content-length"])


def test_a_client_that_may_impersonate_may_name_many_groups(place: Served) -> None:
    review = orjson.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    lines = b"impersonate-user: jane\r\nimpersonate-group: crew\r\nimpersonate-group: ,,cooks\r\n"
    with place.connect() as wire:
        request = wire.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        wire.send(request.replace(b"host: x\r\n", b"host: x\r\n" + lines))
        code, body = wire.answer()

    assert code == 201
    assert body["status"]["userInfo"] == {"username": "jane", "groups": ["crew", ",,cooks", "system:authenticated"]}


def test_a_revoked_token_ends_on_an_open_connection(place: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Identities are kept for a while, as upstream keeps them; then the deleted account's token is looked up again."""
    clock = SimClock()
    monkeypatch.setattr(place.api, "clock", clock)
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert wire.ask("POST", accounts, {"metadata": {"name": "robot"}})[0] == 201
    token = wire.ask("POST", f"{accounts}/robot/token", {"spec": {}})[1]["status"]["token"]
    with place.connect() as robot:
        bearer = {"authorization": f"Bearer {token}"}
        assert robot.ask("GET", VERSION, **bearer)[0] == 200
        assert wire.ask("DELETE", f"{accounts}/robot")[0] == 200
        clock.advance(IDENTITY_KEPT - 1)
        assert robot.ask("GET", VERSION, **bearer)[0] == 200
        clock.advance(1)
        assert robot.ask("GET", VERSION, **bearer)[0] == 401


def test_a_client_without_credentials_sends_small_bodies_only(place: Served) -> None:
    """So that their number, not their bodies, is what takes memory."""
    for length in (ANONYMOUS_LIMIT, ANONYMOUS_LIMIT + 1):
        with place.connect() as stranger:
            code, status = stranger.ask("POST", CONFIGS, b" " * length, authorization="")
            assert code == (403 if length <= ANONYMOUS_LIMIT else 413), status


def test_large_bodies_do_not_wait_in_memory(place: Served, wire: Wire) -> None:
    """A client pipelines large bodies and reads no response: the server stops to read."""
    body = orjson.dumps(config("x", large="x" * 1_000_000))
    with suppress(TimeoutError):
        wire.plug.settimeout(1.0)
        for _ in range(64):
            wire.send(wire.request("POST", f"{CONFIGS}?dryRun=All", body))
    for item in list(place.http._connections):
        bodies = [queued.body for queued in item._queue if isinstance(queued, ParsedRequest)]
        assert sum(map(len, bodies)) <= 2 * len(body)


def test_bodies_are_read_after_access_has_been_checked(
    place: Served, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither decoded in the thread nor waiting for their turn, if the client may not send them."""
    read: list[object] = []

    def decoded(body: bytes) -> bytes:
        read.append(body)
        return body

    def added(_: object, turn: Callable[[], None]) -> None:
        read.append(turn)
        turn()

    monkeypatch.setattr(connection, "as_json", decoded)
    monkeypatch.setattr(LargeRequests, "add", added)
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert wire.ask("POST", accounts, {"metadata": {"name": "nobody"}})[0] == 201
    bearer = {
        "authorization": f"Bearer {wire.ask('POST', f'{accounts}/nobody/token', {'spec': {}})[1]['status']['token']}"
    }
    body = b'{"metadata": {"name": "large"}, "data": {"a": "' + b"x" * 200_000 + b'"}}'
    with place.connect() as nobody:
        for kind in ("application/yaml", "application/json"):
            assert nobody.ask("POST", CONFIGS, body, content_type=kind, **bearer)[0] == 403
        assert not read
    for kind in ("application/yaml", "application/json"):
        assert wire.ask("POST", f"{CONFIGS}?dryRun=All", body, content_type=kind)[0] == 201
    assert len(read) == 3
