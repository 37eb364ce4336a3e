"""Limits: no request can order an unbounded computation (patterns, CEL rules, YAML aliases, quantities, replicas)."""

import logging
from typing import Any

import pytest

from seatrial.harness.apiserver.cel import expressions
from seatrial.harness.apiserver.request.bodies import VALUES_LIMIT, YAML_LIMIT
from seatrial.harness.apiserver.schemas import custom_schemas
from seatrial.harness.apiserver.schemas.custom_schemas import MAX_COST, CustomSchema
from seatrial.harness.apiserver.schemas.tests.test_structural import DEFINITIONS, definition
from seatrial.harness.apiserver.server import MAX_PARAMETERS, _parameters
from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, pod
from seatrial.harness.apiserver.text_cache import LONGEST
from seatrial.scheduler.api.transport import JSON_PATCH, MERGE_PATCH, Request, Response

CONTAINER = {"name": "main", "image": "busybox:1"}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.mark.parametrize(
    ("quantity", "message"),
    [
        pytest.param("1e99999999999999999999", "unable to parse quantity's suffix", id="large-exponent"),
        pytest.param("9" * 5000, "more than 512 characters", id="many-digits"),
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


def wide(count: int, **field: object) -> dict[str, object]:
    """The schema of a list whose items have that many properties."""
    properties = {f"p{number}": {"type": "string", **field} for number in range(count)}
    return {"type": "array", "items": {"type": "object", "properties": properties}}


def test_defaults_are_counted_before_they_are_filled_in(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 items of 500 properties with defaults of 1,000 characters would be 5 GB."""
    copied: list[object] = []

    def copy(value: object) -> object:
        copied.append(value)
        return value

    monkeypatch.setattr(custom_schemas, "deepcopy", copy)
    api.do("POST", DEFINITIONS, definition(wide(500, default="x" * 1000)))
    code, status = api.ask("POST", SAMPLES, sample([{}] * 10_000))
    assert (code, status["reason"]) == (422, "Invalid")
    assert "fewer or shorter defaults" in status["message"]
    assert len(copied) <= MAX_COST // 1000
    assert api.ask("POST", SAMPLES, sample([{}]))[0] == 201


def test_items_times_properties_take_no_time_without_defaults(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The properties of a schema are looked up, and not walked through for each item."""
    walked: list[object] = []

    class Walked(dict[str, Any]):
        def items(self) -> Any:
            walked.append(self)
            return super().items()

    schema = CustomSchema({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": wide(1000)}}}})
    items = schema._root.properties["spec"].items
    assert items is not None
    items.properties = Walked(items.properties)
    assert not schema.complete({"spec": [{"p1": ""}] * 10_000})
    assert not walked


def test_required_fields_and_long_names_are_counted(api: Api) -> None:
    schema = wide(1000)
    schema["items"]["required"] = [f"p{number}" for number in range(1000)]  # type: ignore[index]
    api.do("POST", DEFINITIONS, definition(schema))
    code, status = api.ask("POST", SAMPLES, sample([{}] * 10_000))
    assert (code, status["reason"], len(status["details"]["causes"])) == (422, "Invalid", 1)


def test_a_long_name_is_not_copied_for_each_value_below_it(api: Api) -> None:
    below = {"type": "array", "items": {"type": "object"}}
    api.do("POST", DEFINITIONS, definition({"type": "object", "additionalProperties": below}))
    code, status = api.ask("POST", SAMPLES, sample({"x" * 1_000_000: [{}] * 10_000}))
    assert (code, status["reason"]) == (422, "Invalid")


MERGES = b"a0: &a0 {x: 1, y: 2}\n" + b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (level, level, b",".join([b"*a%d" % (level - 1)] * 9)) for level in range(1, 9)
)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"a: " + b"1:" * 100_000 + b"1", "a number that is too long", id="base-sixty"),
        pytest.param(MERGES, "expands too far", id="merge-keys"),
        pytest.param(MERGES.replace(b"{<<: [", b"[").replace(b"]}", b"]"), "expands too far", id="aliases"),
        pytest.param(b"x: [" + b"1," * YAML_LIMIT + b"1]", "too many values for YAML", id="many-values"),
        pytest.param(b'x: "\\ud800"', "cannot be read", id="not-unicode"),
    ],
)
def test_yaml_beyond_the_limits_is_a_bad_request(api: Api, body: bytes, message: str) -> None:
    code, status = api.ask("POST", CONFIGS, body, "application/yaml")
    assert (code, status["reason"]) == (400, "BadRequest")
    assert message in status["message"]


def test_a_patch_that_nests_an_object_too_deep_is_a_bad_request(api: Api) -> None:
    api.do("POST", DEFINITIONS, definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True}))
    api.do("POST", SAMPLES, sample({}))
    deep: dict[str, object] = {}
    for _ in range(150):
        deep = {"a": deep}
    operations = [{"op": "add", "path": "/spec" + "/a" * at, "value": deep} for at in (1, 140)]
    code, status = api.ask("PATCH", f"{SAMPLES}/a", operations, JSON_PATCH)
    assert (code, status["reason"]) == (400, "BadRequest")


def test_a_fault_of_the_server_is_a_500_with_an_id_that_the_log_has(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise TypeError("a fault")

    monkeypatch.setattr(api.server.objects, "find", broken)
    with caplog.at_level(logging.ERROR):
        response = api.server.handle(Request("GET", f"{PODS}/a"))
    assert isinstance(response, Response)
    assert response.code == 500
    (record,) = caplog.records
    fault_id = record.getMessage().split("id=")[1].split()[0]
    assert f"fault {fault_id} of the server".encode() in response.body
    assert record.exc_info is not None


def test_all_rules_of_an_object_share_one_limit_of_steps(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of ten rules takes less than the limit; together they exceed it."""
    rule = "self.all(x, self.all(y, x + y > 0))"
    field = {"type": "array", "maxItems": 20, "items": {"type": "integer"}}
    api.do("POST", DEFINITIONS, definition({**field, "x-kubernetes-validations": [{"rule": rule}] * 10}))
    monkeypatch.setattr(expressions, "MAX_STEPS", 10_000)
    api.do("POST", SAMPLES, sample([1] * 4))
    code, status = api.ask("POST", SAMPLES, {**sample([1] * 16), "metadata": {"name": "b"}})
    assert (code, status["reason"]) == (422, "Invalid")
    assert "actual cost limit exceeded" in status["message"]
    assert len(status["details"]["causes"]) == 1  # no further rule is evaluated


def test_a_rule_matches_patterns_without_backtracking(api: Api) -> None:
    rule = {"rule": "self.find('^(a+)+$') == '' && !self.matches('^(a+)+$')"}
    api.do("POST", DEFINITIONS, definition({"type": "string", "maxLength": 99, "x-kubernetes-validations": [rule]}))
    api.do("POST", SAMPLES, sample("a" * 60 + "b"))


def test_a_rule_that_is_too_long_is_refused_with_its_definition(api: Api) -> None:
    rule = " && ".join(["self == 'a'"] * 1000)
    field = {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": rule}]}
    code, status = api.ask("POST", DEFINITIONS, definition(field))
    assert (code, status["reason"]) == (422, "Invalid")
    assert "expression code point size exceeds limit" in status["message"]


def test_a_body_with_too_many_values_is_refused(api: Api) -> None:
    containers = [{"name": f"c{number}", "image": "a:1"} for number in range(40_000)]
    code, status = api.ask("POST", PODS, pod("p", containers=containers))
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
    assert status["message"] == f"Request entity too large: limit is {VALUES_LIMIT} values"
    api.do("POST", PODS, pod("p", containers=containers[:5000]))


def test_a_patch_cannot_make_an_object_larger_than_etcd_stores(api: Api) -> None:
    api.do("POST", DEFINITIONS, definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True}))
    api.do("POST", SAMPLES, sample({"a": "x" * 1_000_000}))
    code, status = api.ask("PATCH", f"{SAMPLES}/a", {"spec": {"b": "x" * 900_000}}, MERGE_PATCH)
    assert (code, status["message"]) == (413, "Request entity too large: limit is 1572864")
    assert "b" not in api.do("GET", f"{SAMPLES}/a")["spec"]


def test_an_enumeration_is_not_repeated_for_each_value(api: Api) -> None:
    """Each of 5,000 values is compared with 3,000 choices, which the message of each would list."""
    choices = [f"choice-{number}" for number in range(3000)]
    items = {"type": "string", "enum": choices}
    api.do("POST", DEFINITIONS, definition({"type": "array", "items": items}))
    code, status = api.ask("POST", SAMPLES, sample(["x"] * 5000))
    assert code == 422
    assert "too large for its schema" in status["message"]


def test_a_long_value_is_shortened_in_messages(api: Api) -> None:
    code, status = api.ask("POST", PODS, pod("A" * 100_000))
    assert code == 422
    assert "... (100000 characters)" in status["message"]
    assert "must be no more than 253 characters" in status["message"]


def test_large_answers_are_not_encoded_as_yaml(api: Api) -> None:
    api.do("POST", CONFIGS, {"metadata": {"name": "a"}, "data": {"a": "x" * 70_000}})
    response = api.server.handle(Request("GET", CONFIGS, headers={"accept": "application/yaml"}))
    assert isinstance(response, Response)
    assert response.code == 406
    assert b"as YAML up to 65536 bytes" in response.body


def test_queries_are_not_kept_if_they_are_long_and_have_a_limit(api: Api) -> None:
    for number in range(3):
        assert api.ask("GET", f"/version?{number}{'&a=' * (MAX_PARAMETERS - 1)}")[0] == 200
        assert api.ask("GET", f"/version?{number}{'&a=' * MAX_PARAMETERS}")[0] == 400
    kept: dict[str, object] = getattr(_parameters, "__self__")  # noqa: B009 a bound method of the cache
    assert max(map(len, kept)) <= LONGEST
