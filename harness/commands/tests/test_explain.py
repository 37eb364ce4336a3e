"""`seatrial explain` against a server that answers as the scheduler does, and against what is no scheduler."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from seatrial.harness import cli
from seatrial.harness.errors import HarnessError, SubjectError, UsageError

PENDING: dict[str, Any] = {
    "pod": {"namespace": "team", "name": "p", "uid": "u"},
    "node": "",
    "queue": "unschedulable",
    "feasible": [],
    "rejected": [
        {"node": "a", "plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"], "preemptionMightHelp": True},
        {"node": "b", "plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"], "preemptionMightHelp": True},
        {"node": "c", "plugin": "NodeAffinity", "reasons": ["node(s) didn't match"], "preemptionMightHelp": False},
    ],
}
PLACED: dict[str, Any] = {
    "pod": {"namespace": "default", "name": "p", "uid": "u"},
    "node": "b",
    "queue": "",
    "notes": ["annotation mode: expected Strict or NonStrict, found 'x'; Strict is used"],
    "feasible": [
        {"node": "b", "score": 392, "byPlugin": {"TaintToleration": 300, "NodeResourcesFit": 92}},
        {"node": "a", "score": 371, "byPlugin": {"TaintToleration": 300, "NodeResourcesFit": 71}},
    ],
    "rejected": [],
}
LARGE: dict[str, Any] = PENDING | {
    "pod": {"namespace": "default", "name": "large", "uid": "u"},
    "rejected": [
        {"node": f"n{number}", "plugin": "P", "reasons": ["full", f"r{number % 30:02}"], "preemptionMightHelp": False}
        for number in range(5000)
    ],
}
ANSWERS: dict[str, tuple[int, object]] = {
    "/apis/v1/explain/team/p": (200, PENDING),
    "/apis/v1/explain/default/p": (200, PLACED),
    "/apis/v1/explain/default/large": (200, LARGE),
    "/apis/v1/explain/default/gone": (404, {"message": "cannot find pod default/gone"}),
    "/apis/v1/explain/default/strange": (200, ["not", "ours"]),
}


class Boundary(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        code, body = ANSWERS.get(self.path, (404, None))
        data = json.dumps(body).encode() if body is not None else b"404 page not found\n"
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 likewise
        pass


@pytest.fixture
def explain() -> Iterator[Callable[..., None]]:
    with HTTPServer(("127.0.0.1", 0), Boundary) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            yield lambda pod, *more: cli.app(["explain", pod, "--server", url, *more])
        finally:
            server.shutdown()
            thread.join()


def test_a_pending_pod_is_explained_by_reason(explain: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    explain("team/p")
    assert capsys.readouterr().out.splitlines() == [
        "team/p: pending, in queue 'unschedulable'; 0 of 3 nodes fit now",
        "",
        "nodes  plugin            reason                preemption",
        "2      NodeResourcesFit  Insufficient cpu      might help",
        "1      NodeAffinity      node(s) didn't match  no help",
    ]


def test_thousands_of_nodes_are_a_page(explain: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """The most frequent reasons come first, and how many more there are is said."""
    explain("large")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[3:6]] == [
        ["5000", "P", "full"],
        ["167", "P", "r00"],
        ["167", "P", "r01"],
    ]
    assert lines[-1] == "and 11 more reasons for at most as many nodes each; see --json"
    assert len(lines) == 24


def test_notes_and_the_best_nodes_are_listed(explain: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    explain("p", "--top", "1")
    assert capsys.readouterr().out.splitlines() == [
        "default/p: on node b; 2 of 2 nodes fit now",
        "note: annotation mode: expected Strict or NonStrict, found 'x'; Strict is used",
        "",
        "node  score  NodeResourcesFit  TaintToleration",
        "b     392    92                300",
    ]


def test_json_is_the_whole_answer(explain: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    explain("team/p", "--json")
    assert json.loads(capsys.readouterr().out) == PENDING


@pytest.mark.parametrize(
    ("pod", "kind", "words"),
    [
        pytest.param("a/b/c", UsageError, "expected NAME or NAMESPACE/NAME, found 'a/b/c'", id="no-name"),
        pytest.param("gone", UsageError, "answered: cannot find pod default/gone", id="unknown-pod"),
        pytest.param("strange", SubjectError, "something else than an explanation", id="another-programs-answer"),
        pytest.param("x", SubjectError, "answered 404 '404 page not found'; is that our scheduler?", id="no-such-page"),
    ],
)
def test_what_cannot_be_explained(explain: Callable[..., None], pod: str, kind: type[HarnessError], words: str) -> None:
    with pytest.raises(kind) as refused:
        explain(pod)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("server", "kind", "words"),
    [
        pytest.param("file:///etc/hosts", UsageError, "expected a URL as http://", id="no-url"),
        pytest.param("http://127.0.0.1:9", SubjectError, "no scheduler answers at http://127.0.0.1:9", id="none"),
    ],
)
def test_servers_that_cannot_be_asked(server: str, kind: type[HarnessError], words: str) -> None:
    with pytest.raises(kind) as refused:
        cli.app(["explain", "p", "--server", server])
    assert words in str(refused.value)
