"""Asking the scheduler under test on its debug and services port, wherever it runs."""

import http.server
import socket
import threading
from collections.abc import Iterator
from itertools import chain

import orjson
import pytest

from seatrial.harness.clusters.embedded import EmbeddedBackend
from seatrial.harness.clusters.virtual import VirtualBackend
from seatrial.harness.errors import UsageError
from seatrial.harness.subject.process import ProcessSubject
from seatrial.harness.subject.protocol import IN_PROCESS, OURS, open_subject
from seatrial.harness.subject.services import ask, check_services, free_port

SET = b"successfully set debugTopNScores to 3\n"


class Echo(http.server.BaseHTTPRequestHandler):
    """Says what it was asked."""

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(418)
        self.send_header("Content-Type", "text/x-echo")
        self.end_headers()
        self.wfile.write(self.path.encode() + b" " + body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def echo() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("prefix", ["", "/", "/proxy/"])
def test_a_request_arrives_as_it_was_meant(echo: str, prefix: str) -> None:
    answer = ask(echo + prefix, "PUT", "/debug/flags/s", b"3")
    assert (answer.code, answer.headers["Content-Type"]) == (418, "text/x-echo")
    assert answer.body == prefix.rstrip("/").encode() + b"/debug/flags/s 3"


def test_nobody_there_is_no_answer() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # bound and not listening: the port stays taken
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        answer = ask(url, "GET", "/healthz")
    assert answer.code == 0
    assert url.encode() in answer.body


@pytest.mark.parametrize(
    ("url", "subject", "words"),
    [
        pytest.param("127.0.0.1:10251", "deployed", "expected http://HOST:PORT", id="no-scheme"),
        pytest.param("https://host:10259", "deployed", "expected http://HOST:PORT", id="tls"),
        pytest.param("http://host:x", "deployed", "expected http://HOST:PORT", id="no-number"),
        pytest.param("http://host:1/?a=b", "deployed", "expected http://HOST:PORT", id="a-query"),
        pytest.param("http://host:1", OURS, "that of 'seatrial' is known", id="ours"),
    ],
)
def test_addresses_that_are_refused(url: str, subject: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_services(url, subject)


@pytest.mark.parametrize("url", ["http://127.0.0.1:10251", "http://host:{port}", "http://[::1]:1/proxy"])
def test_addresses_that_are_taken(url: str) -> None:
    check_services(url, "./koord-scheduler")


def test_ours_in_this_process() -> None:
    with VirtualBackend().start() as cluster, open_subject(IN_PROCESS, cluster) as subject:
        assert subject is not None
        answer = subject.ask("PUT", "/debug/flags/s", b"3")
        assert answer is not None
        assert (answer.code, answer.body) == (200, SET)
        subject.kill()
        ended = subject.ask("GET", "/healthz")
        assert ended is not None
        assert ended.code == 0
        subject.start_again()
        again = subject.ask("GET", "/readyz")
        assert again is not None
        assert again.code == 200


def test_ours_as_a_process_answers_on_a_port_of_its_own_also_when_started_again() -> None:
    with (
        EmbeddedBackend().start() as cluster,
        open_subject(OURS, cluster) as subject,
        open_subject(OURS, cluster) as other,
    ):
        assert subject is not None
        assert other is not None
        for scheduler in (subject, other):
            answer = scheduler.ask("PUT", "/debug/flags/s", b"3")
            assert answer is not None
            assert answer.body == SET
        subject.kill()
        ended = subject.ask("GET", "/healthz")
        assert ended is not None
        assert ended.code == 0
        subject.start_again()
        again = subject.ask("GET", "/apis/v1/__services__")
        assert again is not None
        assert "/apis/v1/nodes/:nodeName" in orjson.loads(again.body)["GET"]


def test_ours_is_started_again_where_somebody_was_quicker_at_the_port(
    echo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = int(echo.rpartition(":")[2])
    result = chain([taken], iter(free_port, taken))
    monkeypatch.setattr("seatrial.harness.subject.process.free_port", lambda: next(result))
    with EmbeddedBackend().start() as cluster, open_subject(OURS, cluster) as subject:
        assert subject is not None
        answer = subject.ask("GET", "/healthz")
        assert answer is not None
        assert (answer.code, answer.body) == (200, b"ok")
        assert f"--port {taken}: cannot listen" in subject.log()


def test_a_binary_of_which_nobody_said_where_it_answers() -> None:
    with ProcessSubject("true", ["/bin/true"]) as subject:
        assert subject.ask("GET", "/healthz") is None
