"""The server of the live page: who is let in, and what is handed out."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from seatrial.reports.live import server as module
from seatrial.reports.live.server import MAX_STREAMS, MAX_WAITING, LiveServer, Streams

TOKEN = "T-o_k3n"
WITHIN = 20.0  # seconds


class Served:
    """A page on a free port."""

    def __init__(self) -> None:
        self.streams = Streams()
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.server = LiveServer(listening, TOKEN, "cluster <b>", self.streams, self._answer)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    @staticmethod
    def _answer(parts: list[str]) -> tuple[str, bytes] | None:
        return ("application/json", b"{}") if parts == ["explain", "default", "a/b"] else None

    def get(self, path: str, host: str = "") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN)
        connection.request("GET", path, headers={"host": host or f"127.0.0.1:{self.port}"})
        return connection.getresponse()


def until(condition: Callable[[], bool]) -> None:
    """Threads of the server are real."""
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.server.shutdown()
    served.server.server_close()
    served.thread.join()


@pytest.mark.parametrize("path", ["/", "/stream", "/T-o_k3/", "/T-o_k3n2/", "//", f"/x/{TOKEN}/", "/%ff/"])
def test_without_the_token_there_is_nothing(served: Served, path: str) -> None:
    response = served.get(path)
    assert response.status == 403
    assert TOKEN.encode() not in response.read()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil"])
def test_a_name_that_somebody_else_chose_is_refused_even_with_the_token(served: Served, host: str) -> None:
    response = served.get(f"/{TOKEN}/", host.format(port=served.port))
    assert response.status == 421
    assert b"<html" not in response.read()


@pytest.mark.parametrize("host", ["", "localhost:{port}"])
def test_the_page_runs_its_own_script_alone(served: Served, host: str) -> None:
    response = served.get(f"/{TOKEN}/", host.format(port=served.port))
    text, policy = response.read().decode(), response.headers["content-security-policy"]
    assert response.status == 200
    nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
    assert text.count(f'nonce="{nonce}"') == 2
    assert len(nonce) >= 16
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "access-control-allow-origin" not in response.headers
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "cluster &lt;b&gt;" in text
    assert nonce not in served.get(f"/{TOKEN}/").headers["content-security-policy"]


def test_parts_of_a_path_are_decoded_after_they_are_split(served: Served) -> None:
    assert served.get(f"/{TOKEN}/explain/default/a%2Fb").status == 200
    assert served.get(f"/{TOKEN}/explain/default/a/b").status == 404


def test_a_stream_begins_with_all_rows_and_goes_on_with_changes(served: Served) -> None:
    first = served.get(f"/{TOKEN}/stream")
    served.streams.wait()
    served.streams.publish(b"change-1", lambda: b"all-1")
    assert first.readline() + first.readline() == b"data: all-1\n\n"
    second = served.get(f"/{TOKEN}/stream")
    until(lambda: len(served.streams) == 2)
    served.streams.publish(b"change-2", lambda: b"all-2")
    assert first.readline() + first.readline() == b"data: change-2\n\n"
    assert second.readline() + second.readline() == b"data: all-2\n\n"


def test_the_number_of_streams_is_limited(served: Served) -> None:
    streams = [served.get(f"/{TOKEN}/stream") for _ in range(MAX_STREAMS)]
    assert {stream.status for stream in streams} == {200}
    assert served.get(f"/{TOKEN}/stream").status == 503


def test_who_closes_the_page_is_followed_no_longer(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 0.01)
    served.get(f"/{TOKEN}/stream").close()
    served.streams.wait()
    until(lambda: len(served.streams) == 0)


def test_who_does_not_read_is_dropped() -> None:
    streams = Streams()
    queue = streams.open()
    assert queue is not None
    for number in range(MAX_WAITING):
        streams.publish(b"%d" % number, lambda: b"all")
        assert streams.is_open(queue)
    streams.publish(b"one too many", lambda: b"all")
    assert not streams.is_open(queue)
    assert len(streams) == 0
