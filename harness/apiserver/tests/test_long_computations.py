"""Long CEL computations: the request waits for a thread, and other requests are served meanwhile."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver import long_computations
from seatrial.harness.apiserver.schemas.tests.test_structural import DEFINITIONS, definition
from seatrial.harness.apiserver.server import REQUEST
from seatrial.harness.apiserver.tests.asking import CONFIGS, Api, Object
from seatrial.harness.apiserver.tests.test_limits import SAMPLES, sample
from seatrial.harness.apiserver.webhooks.tests.test_policies import bound, policy
from seatrial.scheduler.api.transport import JSON, Request

PAIRS = {"rule": "self.all(x, self.all(y, x + y > 0))"}
FIELD = {"type": "array", "maxItems": 99, "items": {"type": "integer"}, "x-kubernetes-validations": [PAIRS]}


class Thread:
    """Computations that wait until the test runs them."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
        api.server.admission.long.start = lambda work, then: self.waiting.append((work, then))

    def run(self) -> int:
        """Run the waiting computations; returns their number."""
        count = 0
        while self.waiting:
            work, then = self.waiting.pop(0)
            work()
            then()
            count += 1
        return count


def send(api: Api, method: str, path: str, body: Object) -> list[tuple[int, Object]]:
    """The list gets the response, at once or later."""
    from seatrial.harness.apiserver.access.identity import ADMIN
    from seatrial.scheduler.api.transport import Response

    answers: list[tuple[int, Object]] = []

    def done(response: object) -> None:
        assert isinstance(response, Response)
        answers.append((response.code, orjson.loads(response.body)))

    api.server.carry_out(Request(method, path, orjson.dumps(body), JSON), ADMIN, done)
    return answers


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def thread(api: Api) -> Thread:
    return Thread(api)


@pytest.mark.parametrize(("numbers", "code"), [([1] * 40, 201), ([1] * 39 + [-1], 422)])
def test_an_object_waits_for_its_rules(api: Api, thread: Thread, numbers: list[int], code: int) -> None:
    """1,600 pairs take more steps than the event loop may take."""
    api.do("POST", DEFINITIONS, definition(FIELD))
    answers = send(api, "POST", SAMPLES, {**sample(numbers), "metadata": {"generateName": "a-"}})
    assert answers == []
    assert api.ask("GET", SAMPLES)[1]["items"] == []  # another request is served
    assert thread.run() == 1
    ((result, body),) = answers
    assert result == code
    if code == 201:
        assert api.do("GET", f"{SAMPLES}/{body['metadata']['name']}")["spec"] == numbers
    else:
        assert "failed rule" in body["message"]


def test_small_objects_do_not_wait(api: Api, thread: Thread) -> None:
    api.do("POST", DEFINITIONS, definition(FIELD))
    assert send(api, "POST", SAMPLES, sample([1, 2]))[0][0] == 201
    assert thread.run() == 0


def test_an_object_that_changes_meanwhile_is_evaluated_again(api: Api, thread: Thread) -> None:
    api.do("POST", DEFINITIONS, definition({**FIELD, "x-kubernetes-validations": [{"rule": "size(self) > 0"}, PAIRS]}))
    made = api.do("POST", SAMPLES, sample([1]))
    body = {**sample([1] * 40), "metadata": {"name": "a", "resourceVersion": made["metadata"]["resourceVersion"]}}
    answers = send(api, "PUT", f"{SAMPLES}/a", body)
    api.do("PATCH", f"{SAMPLES}/a", {"spec": [2]}, "application/merge-patch+json")
    thread.run()
    assert [code for code, _ in answers] == [409]


def test_a_definition_with_long_expressions_waits_for_their_compilation(api: Api, thread: Thread) -> None:
    rules = [{"rule": " && ".join([f"self != '{at}'"] * 30)} for at in range(3)]
    made = definition({"type": "string", "maxLength": 9, "x-kubernetes-validations": rules})
    answers = send(api, "POST", DEFINITIONS, made)
    assert answers == []
    assert thread.run() == 1
    assert answers[0][0] == 201


def test_a_definition_with_too_many_expressions_is_refused(api: Api) -> None:
    rules = [{"rule": " && ".join([f"self != '{at}'"] * 500)} for at in range(20)]
    field = {"type": "string", "maxLength": 9, "x-kubernetes-validations": rules}
    code, status = api.ask("POST", DEFINITIONS, definition(field))
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
    assert "100000 characters of all CEL expressions" in status["message"]


def test_a_write_waits_for_a_policy(api: Api, thread: Thread) -> None:
    costly = {"expression": "object.data.all(a, object.data.all(b, a + b != 'x'))"}
    bound(api, policy(costly))
    data = {f"k{at}": "v" for at in range(40)}
    answers = send(api, "POST", CONFIGS, {"metadata": {"name": "x"}, "data": data})
    assert answers == []
    assert thread.run() == 1
    assert answers[0][0] == 201


def test_all_expressions_of_a_policy_share_one_limit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from seatrial.harness.apiserver.cel import expressions

    monkeypatch.setattr(expressions, "MAX_STEPS", 10_000)
    costly = {"expression": "object.data.all(a, object.data.all(b, a + b != 'x'))"}
    bound(api, policy(*[costly] * 10))
    data = {f"k{at}": "v" for at in range(20)}
    code, status = api.ask("POST", CONFIGS, {"metadata": {"name": "x"}, "data": data})
    assert code == 422
    assert "actual cost limit exceeded" in status["message"]


def test_an_error_of_the_computation_is_a_fault_of_its_request(
    api: Api, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seatrial.harness.apiserver.schemas import custom_rules, custom_schemas

    api.do("POST", DEFINITIONS, definition(FIELD))
    right = custom_rules.rule_causes

    def broken(*value: Any, on_loop: bool) -> object:
        if on_loop:
            return right(*value, on_loop=on_loop)
        raise TypeError("a fault")

    monkeypatch.setattr(custom_schemas, "rule_causes", broken)
    answers = send(api, "POST", SAMPLES, sample([1] * 40))
    thread.run()
    assert answers[0][0] == 500
    assert api.server.clock.faults.counts == {REQUEST: 1}


def test_the_steps_on_the_event_loop_are_few() -> None:
    """A step takes up to 50 µs, and other clients wait for 100 ms at most."""
    assert long_computations.LOOP_STEPS * 50e-6 <= 0.1
