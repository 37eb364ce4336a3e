"""`seatrial explain` against a server that answers as the scheduler does, and against what is no scheduler."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from seatrial.harness import cli
from seatrial.harness.commands.explain import lines_for
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


DECISION: dict[str, Any] = {
    "pod": {"namespace": "default", "name": "p", "uid": "u"},
    "time": "2026-01-01T00:00:07Z",
    "secondsSinceCreation": 2.5,
    "node": "b",
    "message": "",
    "plugins": [
        {"plugin": "NodeResourcesFit", "weight": 1},
        {"plugin": "ImageLocality", "weight": 1},
        {"plugin": "TaintToleration", "weight": 3},
    ],
    "best": [
        {"node": "b", "score": 92, "exact": True, "scores": [[62, 62], [0, 0], [4, 10]]},
        {"node": "a", "score": 71, "exact": True, "scores": [[71, 71], [0, 0], [0, 0]]},
    ],
    "rejected": [{"plugins": "TaintToleration", "nodes": 3}, {"plugins": "NodeResourcesFit, DeviceShare", "nodes": 12}],
}
BOUND: dict[str, Any] = {
    **PLACED,
    "notes": [],
    "decision": DECISION,
    "keptDecisions": 10_000,
    "lacking": [],
    "feasible": [],
    "rejected": [{"node": "a", "plugin": "NodeName", "reasons": ["other node"], "preemptionMightHelp": False}],
}


def test_a_bound_pod_is_explained_by_the_decision_that_was_made() -> None:
    """The present state says of all other nodes that they are not the one of spec.nodeName."""
    assert lines_for(BOUND, 5) == [
        "default/p: on node b, decided 2026-01-01T00:00:07Z, 2.5 s after the pod's creation",
        "",
        "node  score",
        "b     92     selected",
        "a     71",
        "",
        "plugin            weight  b       a",
        "NodeResourcesFit  1       62      71",
        "TaintToleration   3       4 → 10  0",
        "",
        "rejected  by one of",
        "3         TaintToleration",
        "12        NodeResourcesFit, DeviceShare",
    ]


def test_a_decision_in_a_burst_has_only_its_totals() -> None:
    best = [
        {"node": "b", "score": 92, "exact": True, "scores": []},
        {"node": "c", "score": 70, "exact": False, "scores": []},
    ]
    lines = lines_for({**BOUND, "decision": {**DECISION, "plugins": None, "best": best}}, 5)
    assert lines[2:7] == [
        "node  score",
        "b     92          selected",
        "c     at most 70",
        "",
        "the scores by plugin are not kept: too many pods were placed at once",
    ]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        pytest.param(
            10_000, "the decision is not kept: not made by this scheduler, or not one of its last 10,000", id="too-old"
        ),
        pytest.param(0, "the scheduler keeps no decisions (--kept-decisions 0)", id="off"),
    ],
)
def test_a_decision_that_is_not_kept(size: int, words: str) -> None:
    """It says so, and shows the present state."""
    lines = lines_for({**BOUND, "decision": None, "keptDecisions": size}, 5)
    assert lines[0] == "default/p: on node b; 0 of 1 nodes fit now"
    assert lines[1].startswith(words)
    assert lines[-1].split() == ["1", "NodeName", "other", "node", "no", "help"]


def test_a_member_with_a_place_that_waits_for_its_group_has_no_decision_yet() -> None:
    lines = lines_for({**BOUND, "decision": None, "heldBack": "has a place on node b and waits"}, 5)
    assert lines[1] == "held back: has a place on node b and waits"


def test_what_a_pending_pod_lacks_is_named() -> None:
    cards = {"resource": "nvidia.com/gpu", "asked": "12", "mostFree": "8", "mostFreeOn": "h100-0"}
    lacking = [{**cards, "nearest": "h100-0", "free": "8"}, {**cards, "nearest": "h100-1", "free": "7"}]
    assert lines_for({**PENDING, "lacking": lacking}, 5)[1:3] == [
        "nvidia.com/gpu: asks 12, most free is 8 on h100-0",
        "nvidia.com/gpu: asks 12, most free is 8 on h100-0; h100-1, which comes nearest, has 7",
    ]


@pytest.mark.parametrize("named", ["deploy/nginx", "deployments.apps/nginx", "rs/nginx", "jobs/nginx"])
def test_what_makes_pods_is_no_pod(named: str) -> None:
    with pytest.raises(UsageError, match=f"expected a pod, found '{named}'; `kubectl get pods` lists its pods"):
        cli.app(["explain", named])


def test_a_namespace_may_be_named_as_a_kind(
    explain: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --namespace it is no kind."""
    monkeypatch.setitem(ANSWERS, "/apis/v1/explain/deploy/p", (200, PLACED))
    explain("p", "--namespace", "deploy")
    assert capsys.readouterr().out.startswith("default/p: on node b")
