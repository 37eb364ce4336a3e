"""Limits: no request can order an unbounded computation (patterns, CEL rules, YAML aliases, quantities, replicas)."""

import pytest

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
