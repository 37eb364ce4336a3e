"""Limits: no request can order an unbounded computation (patterns, CEL rules, YAML aliases, quantities, replicas)."""

import pytest

from seatrial.harness.apiserver.schemas.custom_schemas import MAX_COST
from seatrial.harness.apiserver.schemas.tests.test_structural import DEFINITIONS, definition
from seatrial.harness.apiserver.tests.asking import PODS, Api, pod

CONTAINER = {"name": "main", "image": "busybox:1"}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.mark.parametrize(
    ("quantity", "message"),
    [
        pytest.param("1e1000000", "an exponent beyond 1000", id="large-exponent"),
        pytest.param("9" * 5000, "more than 512 digits", id="many-digits"),
        pytest.param("abc", "quantities must match the regular expression", id="not-a-quantity"),
    ],
)
def test_a_quantity_beyond_the_limits_is_a_bad_request(api: Api, quantity: str, message: str) -> None:
    container = {**CONTAINER, "resources": {"limits": {"cpu": quantity}}}
    code, status = api.ask("POST", PODS, pod("p", containers=[container]))
    assert (code, status["reason"]) == (400, "BadRequest")
    assert message in status["message"]


SAMPLES = "/apis/x.io/v1/namespaces/default/samples"


def sample(spec: object) -> dict[str, object]:
    return {"apiVersion": "x.io/v1", "kind": "Samples", "metadata": {"name": "a"}, "spec": spec}


def test_a_pattern_is_matched_without_backtracking(api: Api) -> None:
    """A backtracking engine needs 2^60 steps for this text."""
    api.do("POST", DEFINITIONS, definition({"type": "string", "pattern": "^(a+)+$"}))
    code, status = api.ask("POST", SAMPLES, sample("a" * 60 + "b"))
    assert (code, status["reason"]) == (422, "Invalid")
    assert "spec in body should match '^(a+)+$'" in status["message"]
    api.do("POST", SAMPLES, sample("a" * 60))


def test_an_object_that_is_too_large_for_its_patterns_is_invalid(api: Api) -> None:
    api.do("POST", DEFINITIONS, definition({"type": "string", "pattern": "(a|b)*a(a|b){500}"}))
    code, status = api.ask("POST", SAMPLES, sample("ab" * (MAX_COST // 1000)))
    assert (code, status["reason"]) == (422, "Invalid")
    assert "too large for its schema" in status["message"]
