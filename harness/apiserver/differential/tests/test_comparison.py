"""The comparison of two servers."""

import orjson

from seatrial.harness.apiserver.differential.comparison import Outcome, calls, compare, known_differences, outcome
from seatrial.harness.apiserver.tests.asking import Api
from seatrial.scheduler.api.transport import Request, Response


def answer(api: Api, method: str, path: str, body: bytes, content_type: str) -> tuple[int, bytes]:
    found = api.server.handle(Request(method, path, body, content_type))
    assert isinstance(found, Response)
    api.clock.settle()
    return found.code, found.body


def test_two_equal_servers_do_not_differ_and_have_no_faults() -> None:
    """All requests are sent; none is a fault of the server."""
    servers = [Api(), Api()]
    for api in servers:
        api.do("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    ours, theirs = (lambda *call, api=api: answer(api, *call) for api in servers)
    found = list(compare(ours, theirs, calls("n"), known_differences()))
    assert len(found) > 700
    assert not any(found)
    assert servers[0].server.faults == 0


def test_a_difference_is_told_with_its_reason_if_it_is_known() -> None:
    refused = orjson.dumps({"reason": "Forbidden", "details": {"causes": [{"field": "a", "reason": "b"}]}})
    wanted = [call for call in calls("n") if "kube-node-lease" in call.path or call.path == "/none"]
    rows = list(compare(lambda *_: (403, refused), lambda *_: (200, b""), iter(wanted), known_differences()))
    assert [bool(row and row.reason) for row in rows] == [False, True]
    assert rows[0] is not None
    assert rows[0].text == "GET /none  application/json: 403 Forbidden [a b] | 200"


def test_an_outcome_has_code_reason_and_causes() -> None:
    body = orjson.dumps(
        {"reason": "Invalid", "details": {"causes": [{"field": "spec", "reason": "FieldValueInvalid"}]}}
    )
    assert outcome(422, body) == Outcome(422, "Invalid", (("spec", "FieldValueInvalid"),))
    assert outcome(404, b"404 page not found") == Outcome(404)
