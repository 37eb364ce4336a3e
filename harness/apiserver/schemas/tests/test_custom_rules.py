"""CEL rules of custom resources, and match conditions of webhooks."""

from typing import Any

import pytest

from seatrial.harness.apiserver.schemas.custom_rules import rule_causes
from seatrial.harness.apiserver.tests.asking import PODS, Api, Object, pod
from seatrial.harness.apiserver.webhooks.tests.answering import Witness, register
from seatrial.scheduler.api.transport import MERGE_PATCH

pytest.importorskip("celpy", reason="cel-python is not installed yet: make the environment anew")


def spec(rule: str, *, more: Object | None = None, **properties: Any) -> Object:
    """A schema whose spec has one rule."""
    shape = {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule, **(more or {})}]}
    return {"type": "object", "properties": {"spec": shape}}


INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
TIME, DURATION = {"type": "string", "format": "date-time"}, {"type": "string", "format": "duration"}
WORDS = {"type": "array", "items": TEXT}


@pytest.mark.parametrize(
    ("schema", "value", "old", "expected"),
    [
        pytest.param(spec("self.a <= self.b", a=INTEGER, b=INTEGER), {"a": 1, "b": 2}, None, [], id="it-holds"),
        pytest.param(
            spec("self.a <= self.b", a=INTEGER, b=INTEGER),
            {"a": 3, "b": 2},
            None,
            ['spec: Invalid value: "object": failed rule: self.a <= self.b'],
            id="it-does-not",
        ),
        pytest.param(
            spec("self.a < 2", more={"message": "too many"}, a=INTEGER),
            {"a": 3},
            None,
            ['spec: Invalid value: "object": too many'],
            id="in-words",
        ),
        pytest.param(
            spec("self.a < 2", more={"messageExpression": "'found ' + string(self.a)"}, a=INTEGER),
            {"a": 3},
            None,
            ['spec: Invalid value: "object": found 3'],
            id="in-words-that-are-worked-out",
        ),
        pytest.param(
            spec("self.a < 2", more={"message": "no", "reason": "FieldValueForbidden", "fieldPath": ".a"}, a=INTEGER),
            {"a": 3},
            None,
            ["spec.a: Forbidden: no"],
            id="at-another-field-for-another-reason",
        ),
        pytest.param(spec("self.a == oldSelf.a", a=TEXT), {"a": "x"}, None, [], id="a-change-needs-a-before"),
        pytest.param(
            spec("self.a == oldSelf.a", more={"message": "immutable"}, a=TEXT),
            {"a": "x"},
            {"a": "y"},
            ['spec: Invalid value: "object": immutable'],
            id="an-immutable-field",
        ),
        pytest.param(
            spec("self.w.all(x, x.startsWith('k'))", w=WORDS),
            {"w": ["k1", "l"]},
            None,
            ["spec: Invalid value: \"object\": failed rule: self.w.all(x, x.startsWith('k'))"],
            id="of-every-item",
        ),
        pytest.param(spec("!has(self.a) || self.a > 1", a=INTEGER), {}, None, [], id="a-field-that-is-not-there"),
        pytest.param(spec("self.a < 1.5", a={"type": "number"}), {"a": 1}, None, [], id="a-whole-number-as-a-fraction"),
        pytest.param(
            spec("quantity(self.a).isGreaterThan(quantity('1Gi'))", a=TEXT),
            {"a": "1G"},
            None,
            ["spec: Invalid value: \"object\": failed rule: quantity(self.a).isGreaterThan(quantity('1Gi'))"],
            id="a-quantity",
        ),
        pytest.param(
            spec("!oldSelf.hasValue() || oldSelf.value().a <= self.a", more={"optionalOldSelf": True}, a=INTEGER),
            {"a": 1},
            None,
            [],
            id="an-optional-before-that-is-not-there",
        ),
        pytest.param(
            spec("oldSelf.?a.orValue(0) <= self.a", more={"optionalOldSelf": True, "message": "less"}, a=INTEGER),
            {"a": 1},
            {"a": 2},
            ['spec: Invalid value: "object": less'],
            id="an-optional-before-that-is",
        ),
        pytest.param(
            spec("self.__namespace__ == 'x' && self.a__dash__b > 0", **{"namespace": TEXT, "a-b": INTEGER}),
            {"namespace": "x", "a-b": 1},
            None,
            [],
            id="names-that-cel-does-not-allow",
        ),
        pytest.param(
            spec("self.until > self.from_ && self.until - self.from_ == self.d", until=TIME, from_=TIME, d=DURATION),
            {"from_": "2026-01-01T00:00:00Z", "until": "2026-01-01T01:30:00Z", "d": "1h30m"},
            None,
            [],
            id="times-and-durations",
        ),
    ],
)
def test_rules(schema: Object, value: Any, old: Any, expected: list[str]) -> None:
    before = {"spec": old} if old is not None else None

    causes = rule_causes(schema, {"metadata": {"name": "x"}, "spec": value}, before)

    assert [f"{cause.field}: {cause.message}" for cause in causes] == expected


def test_a_rule_that_cannot_be_evaluated_says_why() -> None:
    (cause,) = rule_causes(spec("self.b > 1", a=INTEGER), {"spec": {"a": 1}}, None)

    assert cause.field == "spec"
    assert cause.message.endswith("evaluating rule: self.b > 1")


def test_items_of_a_map_list_have_an_old_value() -> None:
    row = {
        "type": "object",
        "properties": {"name": TEXT, "v": INTEGER},
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "never less"}],
    }
    rows = {"type": "array", "items": row, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    schema = {"type": "object", "properties": {"rows": rows}}

    causes = rule_causes(
        schema, {"rows": [{"name": "b", "v": 1}, {"name": "a", "v": 1}]}, {"rows": [{"name": "a", "v": 2}]}
    )

    assert [(cause.field, cause.message) for cause in causes] == [("rows[1]", 'Invalid value: "object": never less')]


def test_the_server_evaluates_rules() -> None:
    api = Api()
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": spec("self.a == oldSelf.a", more={"message": "a is immutable"}, a=TEXT, b=TEXT)},
    }
    names = {"plural": "boats", "singular": "boat", "kind": "Boat"}
    definition = {
        "metadata": {"name": "boats.sea.dev"},
        "spec": {"group": "sea.dev", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    api.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    boats = "/apis/sea.dev/v1/namespaces/default/boats"
    body = {"apiVersion": "sea.dev/v1", "kind": "Boat", "metadata": {"name": "x"}, "spec": {"a": "1"}}
    api.do("POST", boats, body)

    code, answer = api.ask("PATCH", f"{boats}/x", {"spec": {"a": "2"}}, MERGE_PATCH)

    assert code == 422
    assert answer["message"] == 'Boat.sea.dev "x" is invalid: spec: Invalid value: "object": a is immutable'
    api.do("PATCH", f"{boats}/x", {"spec": {"b": "2"}}, MERGE_PATCH)


def definition(schema: Object, **more: Object) -> Object:
    """A CRD with this schema, and further versions with theirs."""
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": item}}
        for name, item in {"v1": schema, **more}.items()
    ]
    names = {"plural": "boats", "singular": "boat", "kind": "Boat"}
    return {
        "metadata": {"name": "boats.sea.dev"},
        "spec": {"group": "sea.dev", "scope": "Namespaced", "names": names, "versions": versions},
    }


RULES = "x-kubernetes-validations"
PLACE = "spec.validation.openAPIV3Schema.properties[spec]"
SHARED = f"{PLACE}.{RULES}[0]"


@pytest.mark.parametrize(
    ("body", "field", "why"),
    [
        pytest.param(
            definition(spec("self.b > 1", a=INTEGER)),
            f"{SHARED}.rule",
            "compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 1\n | ....^",
            id="unknown-field",
        ),
        pytest.param(
            definition(spec("sel.a > 1", a=INTEGER)),
            f"{SHARED}.rule",
            "ERROR: <input>:1:1: undeclared reference to 'sel' (in container '')\n | sel.a > 1\n | ^",
            id="unknown-name",
        ),
        pytest.param(
            definition(spec("sail(self.a)", a=INTEGER)),
            f"{SHARED}.rule",
            "ERROR: <input>:1:5: undeclared reference to 'sail' (in container '')\n | sail(self.a)\n | ....^",
            id="unknown-function",
        ),
        pytest.param(
            definition(spec("self.a.sail()", a=INTEGER)),
            f"{SHARED}.rule",
            "undeclared reference to 'sail'",
            id="unknown-method",
        ),
        pytest.param(
            definition(spec("quantity('1').sign() == self.a", a=INTEGER)),
            f"{SHARED}.rule",
            "found no matching overload for 'sign'",
            id="a-function-as-a-method",
        ),
        pytest.param(
            definition(spec("isInteger(quantity('1'))", a=INTEGER)),
            f"{SHARED}.rule",
            "found no matching overload for 'isInteger'",
            id="a-method-as-a-function",
        ),
        pytest.param(definition(spec("self.a >", a=INTEGER)), f"{SHARED}.rule", "Syntax error", id="half-of-one"),
        pytest.param(
            definition(spec("self.a > 1", more={"messageExpression": "'x' +"}, a=INTEGER)),
            f"{SHARED}.messageExpression",
            "Syntax error",
            id="half-of-a-message",
        ),
        pytest.param(
            definition(spec("", a=INTEGER)), f"{SHARED}.rule", "Required value: rule is not specified", id="none"
        ),
        pytest.param(
            definition(spec("true", a=INTEGER), v2=spec("self.b > 1", a=INTEGER)),
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule",
            "undefined field 'b'",
            id="in-the-second-version",
        ),
    ],
)
def test_a_rule_that_cannot_be_compiled_is_refused_with_its_definition(body: Object, field: str, why: str) -> None:
    api = Api(bare=True)
    code, answer = api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    assert code == 422, answer
    (cause,) = answer["details"]["causes"]
    assert cause["field"] == field
    assert why in cause["message"]


ALL_PAIRS = "self.a.all(x, self.a.all(y, x != y))"
COSTLY = "self.matches('^[a-z]+abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmn$')"
OVER = "exceeds budget by factor of"


def strings(most: int | None = None, length: int = 100, rules: tuple[str, ...] = ()) -> Object:
    limit = {} if most is None else {"maxItems": most}
    checks = {RULES: [{"rule": rule} for rule in rules]}
    return {"type": "array", **limit, "items": {"type": "string", "maxLength": length, **checks}}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(spec(ALL_PAIRS, a=strings(10)), [], id="limits-of-size"),
        pytest.param(
            spec(ALL_PAIRS, a=strings(1000)), [f"{SHARED}.rule", f"estimated rule cost {OVER} 4.5x"], id="all-pairs"
        ),
        pytest.param(
            spec("true", more={"messageExpression": "self.a.map(x, x + x).join(',')"}, a=strings(99, 400_000)),
            [f"{SHARED}.messageExpression", f"estimated messageExpression cost {OVER}"],
            id="message",
        ),
        pytest.param(
            spec("true", a=strings(rules=(COSTLY,))),
            [f"{PLACE}.properties[a].items.{RULES}[0].rule", f"estimated rule cost {OVER} "],
            id="in-a-list-without-limit",
        ),
    ],
)
def test_the_cost_of_a_rule_is_estimated_when_it_is_stored(schema: Object, expected: list[str]) -> None:
    api = Api(bare=True)
    code, body = api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(schema))
    if not expected:
        assert code == 201, body
        return
    field, why = expected
    (cause,) = [cause for cause in body["details"]["causes"] if why in cause["message"]]
    assert (cause["field"], cause["reason"]) == (field, "FieldValueForbidden")


def test_the_costs_of_all_rules_are_limited_together() -> None:
    """Each rule is below its own limit; the four that cost most are named."""
    rows = strings(4000, rules=(COSTLY,) * 4)
    api = Api(bare=True)
    body = definition(spec("true", **dict.fromkeys("abcdefghijklmnopqrstuvwxyz", rows)))
    code, answer = api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    assert code == 422
    causes = answer["details"]["causes"]
    assert [cause["message"] for cause in causes[:-1]] == [
        "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
    ] * 4
    assert "rule cost total for entire OpenAPIv3 schema exceeds budget by factor of" in causes[-1]["message"]


@pytest.mark.parametrize(
    ("expressions", "code", "called"),
    [
        pytest.param(["object.metadata.name == 'p'"], 201, True, id="it-holds"),
        pytest.param(["object.metadata.name == 'p'", "request.operation == 'DELETE'"], 201, False, id="one-does-not"),
        pytest.param(["object.nothing == 'p'"], 403, False, id="it-cannot-be-evaluated"),
        pytest.param(["object.nothing == 'p'", "false"], 201, False, id="no-matter-if-another-does-not-hold"),
    ],
)
def test_conditions_of_a_webhook(expressions: list[str], code: int, called: bool) -> None:
    api, seen = Api(bare=True), Witness()
    conditions = [
        {"name": f"c{number}.test", "expression": expression} for number, expression in enumerate(expressions)
    ]
    register(api, "a", seen, validating=True, matchConditions=conditions)

    assert api.ask("POST", PODS, pod("p"))[0] == code
    assert bool(seen.requests) is called
