"""Answers with line breaks: who gets them."""

import orjson
import pytest

from seatrial.harness.apiserver.transport.pretty import MAX_SIZE, indented, is_wanted
from seatrial.scheduler.api.transport import Response


@pytest.mark.parametrize(
    ("path", "agent", "expected"),
    [
        pytest.param("/api/v1/pods", "kubectl/v1.34", False, id="kubectl"),
        pytest.param("/api/v1/pods", "", False, id="no-agent"),
        pytest.param("/api/v1/pods", "curl/8.5", True, id="curl"),
        pytest.param("/api/v1/pods", "Mozilla/5.0 (X11)", True, id="browser"),
        pytest.param("/api/v1/pods?pretty=true", "kubectl/v1.34", True, id="asked-for"),
        pytest.param("/api/v1/pods?pretty=false", "curl/8.5", False, id="declined"),
        pytest.param("/api/v1/pods?labelSelector=pretty=1", "kubectl/v1.34", False, id="a-label"),
    ],
)
def test_who_gets_line_breaks(path: str, agent: str, expected: bool) -> None:
    assert is_wanted(path, {"user-agent": agent} if agent else {}) is expected


def test_json_of_a_moderate_size_is_indented() -> None:
    response = indented(Response(200, b'{"allowed":true,"rows":[]}', {"content-type": "application/json"}))
    assert response.body == b'{\n  "allowed": true,\n  "rows": []\n}'


@pytest.mark.parametrize(
    "response",
    [
        pytest.param(Response(200, b"ok", {"content-type": "text/plain"}), id="text"),
        pytest.param(Response(200, b"", {"content-type": "application/json"}), id="empty"),
        pytest.param(
            Response(200, orjson.dumps(["x" * MAX_SIZE]), {"content-type": "application/json"}),
            id="more-than-the-limit",
        ),
    ],
)
def test_other_answers_stay_as_they_are(response: Response) -> None:
    assert indented(response) is response
