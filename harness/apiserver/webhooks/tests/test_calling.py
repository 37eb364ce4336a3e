"""Webhooks over HTTPS, with real sockets on both sides."""

import asyncio
import base64
import gc
import http.server
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from seatrial.harness.apiserver.access.credentials import make_credentials, server_context
from seatrial.harness.apiserver.attempts import Answer, Call
from seatrial.harness.apiserver.tests.asking import PODS, Object, pod
from seatrial.harness.apiserver.tests.serving import PATIENCE, Served, Wire, served
from seatrial.harness.apiserver.webhooks.calling import HttpsCaller
from seatrial.harness.apiserver.webhooks.tests.answering import CONFIGURATIONS, labelled, reviewed, webhook
from seatrial.scheduler.api.clock import WallClock

MUTATING = f"{CONFIGURATIONS}/mutatingwebhookconfigurations"


class Door:
    """A webhook server."""

    def __init__(self, port: int, bundle: str) -> None:
        self.port, self.bundle = port, bundle
        self.connections = self.requests = 0

    @property
    def client(self) -> Object:
        return {"url": f"https://127.0.0.1:{self.port}/review", "caBundle": self.bundle}


@contextmanager
def door(answer: Callable[[Object], Object], folder: Path) -> Iterator[Door]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            place.connections += 1

        def do_POST(self) -> None:
            place.requests += 1
            review = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
            body = orjson.dumps(answer(review))
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class has it so
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client that does not trust us says so by going away

    credentials = make_credentials(["door.default.svc"], WallClock().now())
    server = Server(("127.0.0.1", 0), Handler)
    context = server_context(credentials, folder)
    context.verify_mode = ssl.CERT_NONE
    server.socket = context.wrap_socket(server.socket, server_side=True)
    place = Door(server.server_address[1], base64.b64encode(credentials.authority).decode())
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield place
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


@contextmanager
def calling() -> Iterator[Served]:
    """An API server that calls webhooks over the network."""
    with served() as api:
        api.api.admission.webhooks.caller = caller = HttpsCaller()
        yield api
        asyncio.run_coroutine_threadsafe(caller.close(), api.loop).result(PATIENCE)


@pytest.fixture
def api() -> Iterator[Served]:
    with calling() as api:
        yield api


def register(wire: Wire, name: str, client: Object, **more: object) -> None:
    body = {"metadata": {"name": name}, "webhooks": [webhook(name, **{"clientConfig": client, **more})]}
    code, answer = wire.ask("POST", MUTATING, body)
    assert code == 201, answer


def test_a_webhooks_patch_is_applied(api: Served, tmp_path: Path) -> None:
    with door(labelled("by", "a"), tmp_path) as place, api.connect() as wire:
        register(wire, "a", place.client)

        code, made = wire.ask("POST", PODS, {**pod("p"), "metadata": {"generateName": "p-"}})

        assert (code, made["metadata"]["labels"]) == (201, {"by": "a"})
        assert place.requests == 1


def test_connections_are_reused(api: Served, tmp_path: Path) -> None:
    with door(labelled("by", "a"), tmp_path) as place, api.connect() as wire:
        register(wire, "a", place.client)

        for number in range(5):
            assert wire.ask("POST", PODS, pod(f"p{number}"))[0] == 201

        assert (place.connections, place.requests) == (1, 5)


def test_a_foreign_certificate_is_not_trusted(api: Served, tmp_path: Path) -> None:
    with door(labelled("by", "a"), tmp_path) as place, api.connect() as wire:
        stranger = base64.b64encode(make_credentials(["x"], WallClock().now()).authority).decode()
        register(wire, "a", {**place.client, "caBundle": stranger})

        code, refused = wire.ask("POST", PODS, pod("p"))

        assert code == 500
        assert 'failed calling webhook "a.seatrial.dev": failed to call webhook: Post "https://' in refused["message"]
        assert "tls: failed to verify certificate" in refused["message"]
        assert place.requests == 0


@pytest.mark.parametrize(("policy", "expected"), [("Fail", 500), ("Ignore", 201)])
def test_connection_refused(api: Served, policy: str, expected: int) -> None:
    with socket.socket() as unheard, api.connect() as wire:
        unheard.bind(("127.0.0.1", 0))  # bound and not listening: the port stays taken
        port = unheard.getsockname()[1]
        register(wire, "a", {"url": f"https://127.0.0.1:{port}/"}, failurePolicy=policy)

        code, body = wire.ask("POST", PODS, pod("p"))

        assert code == expected
        if expected == 500:
            where = f"127.0.0.1:{port}"
            assert body["message"] == (
                'Internal error occurred: failed calling webhook "a.seatrial.dev": failed to call webhook: '
                f'Post "https://{where}/?timeout=10s": dial tcp {where}: connect: connection refused'
            )


def test_other_requests_are_answered_while_a_webhook_is_slow(api: Served, tmp_path: Path) -> None:
    request, enough = threading.Event(), threading.Event()

    def slow(review: Object) -> Object:
        request.set()
        enough.wait(PATIENCE)
        return reviewed(review)

    with door(slow, tmp_path) as place, api.connect() as wire, api.connect() as other:
        register(wire, "a", place.client, timeoutSeconds=30, objectSelector={"matchLabels": {"slow": "yes"}})
        wire.send(wire.request("POST", PODS, orjson.dumps(pod("p", labels={"slow": "yes"}))))
        assert request.wait(PATIENCE)
        assert other.ask("POST", PODS, pod("q"))[0] == 201
        assert not enough.is_set(), "the webhook has not answered yet"
        enough.set()
        assert wire.answer()[0] == 201


def test_a_webhook_that_takes_longer_than_its_timeout_refuses_the_request(api: Served, tmp_path: Path) -> None:
    enough = threading.Event()

    def slow(review: Object) -> Object:
        enough.wait(PATIENCE)
        return reviewed(review)

    with door(slow, tmp_path) as place, api.connect() as wire:
        register(wire, "a", place.client, timeoutSeconds=1)
        code, refused = wire.ask("POST", PODS, pod("p"))
        enough.set()
        assert code == 500
        assert refused["message"].endswith('/review?timeout=1s": context deadline exceeded')


def test_a_service_with_an_endpoint_on_this_machine(api: Served, tmp_path: Path) -> None:
    with door(labelled("by", "a"), tmp_path) as place, api.connect() as wire:
        service = {"metadata": {"name": "door"}, "spec": {"ports": [{"port": 443}]}}
        assert wire.ask("POST", "/api/v1/namespaces/default/services", service)[0] == 201
        named = {"service": {"name": "door", "namespace": "default", "path": "/x"}, "caBundle": place.bundle}
        register(wire, "a", named)
        _, refused = wire.ask("POST", PODS, pod("p"))
        assert 'no endpoints available for service "door"' in refused["message"]
        subset = {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": place.port}]}
        endpoints = {"metadata": {"name": "door"}, "subsets": [subset]}
        assert wire.ask("POST", "/api/v1/namespaces/default/endpoints", endpoints)[0] == 201

        assert wire.ask("POST", PODS, pod("p"))[1]["metadata"]["labels"] == {"by": "a"}


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        pytest.param("apps/v1/namespaces/default/replicasets", {"replicas": 5}, id="replica-set"),
        pytest.param("apps/v1/namespaces/default/deployments", {"replicas": 5}, id="deployment"),
        pytest.param(
            "apps/v1/namespaces/default/statefulsets",
            {"replicas": 5, "serviceName": "w", "podManagementPolicy": "Parallel"},
            id="stateful-set",
        ),
        pytest.param("batch/v1/namespaces/default/jobs", {"parallelism": 5, "completions": 5}, id="job"),
    ],
)
def test_webhooks_are_called_for_pods_of_a_workload(api: Served, tmp_path: Path, path: str, spec: Object) -> None:
    """Controllers cannot wait: their creates continue in the background, and nothing is created twice."""
    with door(labelled("by", "a"), tmp_path) as place, api.connect() as wire:
        register(wire, "a", place.client)
        template = {"metadata": {"labels": {"app": "w"}}, "spec": {**pod("x")["spec"]}}
        whole = {**spec, "template": template}
        if "jobs" in path:
            template["spec"]["restartPolicy"] = "Never"
        else:
            whole["selector"] = {"matchLabels": {"app": "w"}}
        code, made = wire.ask("POST", f"/apis/{path}", {"metadata": {"name": "w"}, "spec": whole})
        assert code == 201, made

        deadline = time.monotonic() + PATIENCE
        pods: list[Object] = []
        while len(pods) < 5 and time.monotonic() < deadline:
            pods = wire.ask("GET", f"{PODS}?labelSelector=by%3Da")[1]["items"]
        time.sleep(0.5)

        assert len(pods) == 5
        assert len(wire.ask("GET", PODS)[1]["items"]) == 5


def test_a_denied_pod_is_recorded_on_its_owner(api: Served, tmp_path: Path) -> None:
    def no(review: Object) -> Object:
        return reviewed(review, allowed=False, status={"message": "not here"})

    with door(no, tmp_path) as place, api.connect() as wire:
        register(wire, "a", place.client)
        template = {"metadata": {"labels": {"app": "w"}}, "spec": pod("x")["spec"]}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": template}
        path = "/apis/apps/v1/namespaces/default/replicasets"
        assert wire.ask("POST", path, {"metadata": {"name": "w"}, "spec": spec})[0] == 201

        deadline = time.monotonic() + PATIENCE
        messages: list[str] = []
        while not messages and time.monotonic() < deadline:
            events = wire.ask("GET", "/api/v1/namespaces/default/events")[1]["items"]
            messages = [event["message"] for event in events if event["reason"] == "FailedCreate"]

        assert messages == ['Error creating: admission webhook "a.seatrial.dev" denied the request: not here']


def test_delete_collection_calls_webhooks_for_all_objects_first(api: Served, tmp_path: Path) -> None:
    kept = "c7"

    def keeps(review: Object) -> Object:
        return reviewed(review, allowed=review["request"]["name"] != kept, status={"message": "keep it"})

    path = "/api/v1/namespaces/default/configmaps"
    rules = [{**webhook("x")["rules"][0], "operations": ["DELETE"], "resources": ["configmaps"]}]
    with door(keeps, tmp_path) as place, api.connect() as wire:
        register(wire, "a", place.client, rules=rules)
        for number in range(80):
            body = {"metadata": {"name": f"c{number}", "labels": {"mine": "yes"}}}
            assert wire.ask("POST", path, body)[0] == 201

        assert wire.ask("DELETE", f"{path}?labelSelector=mine%3Dyes")[0] == 400
        assert len(wire.ask("GET", f"{path}?labelSelector=mine%3Dyes")[1]["items"]) == 80
        kept = ""
        assert wire.ask("DELETE", f"{path}?labelSelector=mine%3Dyes")[0] == 200
        assert wire.ask("GET", f"{path}?labelSelector=mine%3Dyes")[1]["items"] == []


def test_nothing_is_stored_for_a_disconnected_client(api: Served, tmp_path: Path) -> None:
    request, enough, answered = threading.Event(), threading.Event(), threading.Event()

    def slow(review: Object) -> Object:
        request.set()
        enough.wait(PATIENCE)
        answered.set()
        return reviewed(review)

    with door(slow, tmp_path) as place, api.connect() as other:
        with api.connect() as wire:
            register(wire, "a", place.client, objectSelector={"matchLabels": {"slow": "yes"}})
            wire.send(wire.request("POST", PODS, orjson.dumps(pod("p", labels={"slow": "yes"}))))
            assert request.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while api.http.connections > 1 and time.monotonic() < deadline:
            other.ask("GET", "/healthz")
        enough.set()
        assert answered.wait(PATIENCE)
        time.sleep(0.1)

        assert other.ask("GET", f"{PODS}/p")[0] == 404


def test_requests_of_one_connection_keep_their_order(api: Served, tmp_path: Path) -> None:
    with door(labelled("by", "a"), tmp_path) as place, api.connect() as wire:
        register(wire, "a", place.client)
        wire.send(
            wire.request("POST", PODS, orjson.dumps(pod("p")))
            + wire.request("GET", f"{PODS}/p")
            + wire.request("DELETE", f"{PODS}/p")
        )

        answers = [wire.answer() for _ in range(3)]

        assert [code for code, _ in answers] == [201, 200, 200]
        assert answers[1][1]["metadata"]["labels"] == {"by": "a"}


def test_a_call_that_waits_for_a_place_times_out_like_the_others(tmp_path: Path) -> None:
    """The timeout starts with the call: those for which there was no place are never sent."""
    silent = threading.Event()

    async def call_all(place: Door) -> list[Answer]:
        caller = HttpsCaller()
        bundle = base64.b64decode(place.bundle).decode()
        url = f"https://127.0.0.1:{place.port}/"
        seconds = [2.0] * 16 + [1.0] * 4  # the last ones get no place before their time is up
        try:
            return await asyncio.gather(*(caller.send(Call("a", url, bundle, b"{}", each)) for each in seconds))
        finally:
            await caller.close()

    def answer(review: Object) -> Object:
        silent.wait(PATIENCE)
        return review

    with door(answer, tmp_path) as place:
        process = asyncio.run(call_all(place))
        silent.set()
        assert {answer.why for answer in process} == {"context deadline exceeded"}
        assert place.requests <= 16


def test_a_call_that_ends_within_the_handshake_leaves_no_socket(tmp_path: Path) -> None:
    """Calls end at each moment of the handshake; a socket that is left warns when it is collected."""

    async def call(place: Door, seconds: float) -> None:
        caller = HttpsCaller()
        bundle = base64.b64decode(place.bundle).decode()
        await caller.send(Call("a", f"https://127.0.0.1:{place.port}/", bundle, b"{}", seconds))
        await caller.close()

    gc.collect()
    with door(lambda review: review, tmp_path) as place, warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        for number in range(200):
            asyncio.run(call(place, 0.00005 * number))
        gc.collect()

    assert [text for text in (str(each.message) for each in left) if "transport" in text] == []


def test_endpoints_that_are_called_no_more_are_forgotten() -> None:
    async def call_many() -> HttpsCaller:
        caller = HttpsCaller()
        for port in range(1, 200):
            await caller.send(Call("a", f"https://127.0.0.1:{port}/", "", b"{}", 5.0, host="127.0.0.1", port=1))
            await caller.send(Call("a", f"https://127.0.0.1:{port}/", "", b"{}", 5.0, host=f"127.0.0.{port}", port=1))
        return caller

    assert len(asyncio.run(call_many())._gates) <= 64
