"""The comparison with kube-apiserver, from its recorded answers."""

import orjson
import pytest

from seatrial.harness.apiserver.access.identity import ANONYMOUS as NOBODY
from seatrial.harness.apiserver.differential.comparison import (
    ANONYMOUS,
    BAD_TOKEN,
    Call,
    Outcome,
    calls,
    compare,
    known_differences,
    outcome,
)
from seatrial.harness.apiserver.differential.page import PAGE, written
from seatrial.harness.apiserver.differential.recorded import NAMESPACE, NOT_RECORDED, recorded
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.tests.asking import Api
from seatrial.scheduler.api.transport import Request

_REFUSED = Outcome(403, "Forbidden", (("a", "b"),))


class InProcess:
    """Sends calls to a server of this process; what controllers do meanwhile is done before the next call."""

    def __init__(self) -> None:
        self.api = Api()
        self.api.do("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def __call__(self, call: Call) -> Outcome:
        if call.sender == BAD_TOKEN:  # the transport refuses it: see access/tests/test_impersonation.py
            return Outcome(401, "Unauthorized")
        self.api.clock.advance(call.wait)
        headers = dict(call.headers)
        if call.sender not in {"", ANONYMOUS}:
            headers["impersonate-user"] = call.sender
        request = Request(call.method, call.path, call.body, call.content_type, headers)
        server = self.api.server
        response = server.handle(request, NOBODY) if call.sender == ANONYMOUS else server.handle(request)
        self.api.clock.settle()
        if isinstance(response, Streaming):
            return Outcome(200)
        return outcome(response.code, response.body, response.headers.get("warning", ""), call.show)


def test_no_answer_differs_from_kube_apiserver_without_a_reason() -> None:
    ours = InProcess()
    comparison = list(compare(ours, recorded(), calls(NAMESPACE), known_differences()))
    assert len(comparison) > 1900
    assert [row.text for row in comparison if row is not None and not row.reason] == []
    assert not ours.api.server.clock.faults.counts


def test_every_known_difference_is_one() -> None:
    """A reason for a difference that is gone hides the next one."""
    known = known_differences()
    rows = [row for row in compare(InProcess(), recorded(), calls(NAMESPACE), known) if row is not None]
    unused = [entry.pattern.pattern for entry in known if not any(entry.pattern.search(row.text) for row in rows)]
    assert unused == []


def test_the_page_lists_the_known_differences() -> None:
    """A failure means: run `python -m seatrial.harness.apiserver.differential.page`."""
    page = PAGE.read_text()
    assert written(page) == page


def test_a_difference_is_told_with_its_reason_if_it_is_known() -> None:
    targets = [call for call in calls("n") if "kube-node-lease" in call.path or call.path == "/none"][:2]
    rows = list(compare(lambda _: _REFUSED, lambda _: Outcome(200), iter(targets), known_differences()))
    assert [bool(row and row.reason) for row in rows] == [False, True]
    assert rows[0] is not None
    assert rows[0].text == "GET /none  application/json: 403 Forbidden [a b] | 200"


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        pytest.param(
            422,
            {"reason": "Invalid", "details": {"causes": [{"field": "spec", "reason": "R"}]}},
            Outcome(422, "Invalid", (("spec", "R"),)),
            id="causes",
        ),
        pytest.param(404, "404 page not found", Outcome(404), id="text"),
        pytest.param(200, {"reason": "Invalid"}, Outcome(200), id="a-success-has-no-reason"),
    ],
)
def test_an_outcome_has_code_reason_and_causes(code: int, body: object, expected: Outcome) -> None:
    assert outcome(code, orjson.dumps(body)) == expected


def test_a_warning_is_part_of_the_outcome() -> None:
    assert outcome(201, b"{}", '299 - "deprecated"') != outcome(201, b"{}")


def test_a_changed_request_is_not_compared_with_an_old_answer() -> None:
    first = next(calls(NAMESPACE))
    assert recorded()(first) != NOT_RECORDED
    assert recorded()(first._replace(path="/other")) == NOT_RECORDED
