"""Values that Python reads differently from Go, or not at all: answers are kube-apiserver's, and none is a fault."""

from typing import Any

import pytest

from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, config, pod
from seatrial.scheduler.api.transport import MERGE_PATCH

LONG = "9" * 5000
HUGE = 1 << 62
DISRUPTIONS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LIMITS = "/api/v1/namespaces/default/limitranges"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


@pytest.fixture
def api() -> Api:
    return Api()


def costly(name: str, amount: str) -> dict[str, Any]:
    resources = {"limits": {"cpu": amount}, "requests": {"cpu": amount}}
    return pod(name, containers=[{"name": "main", "image": "busybox:1", "resources": resources}])


def test_a_large_exponent_is_an_amount(api: Api) -> None:
    assert api.ask("POST", PODS, costly("p", "1e1000"))[0] == 201
    assert api.ask("GET", f"{PODS}/p")[0] == 200


def test_a_large_exponent_as_a_limit_does_not_stop_the_namespace(api: Api) -> None:
    limit = {"type": "Container", "max": {"cpu": "1e1000"}, "min": {"cpu": "1e-1000"}}
    assert api.ask("POST", LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})[0] == 201
    assert api.ask("POST", PODS, costly("p", "1"))[0] == 201
    assert api.ask("GET", f"{LIMITS}/l")[1]["spec"]["limits"][0]["type"] == "Container"


def test_sums_of_large_amounts_can_be_read_again(api: Api) -> None:
    """A quota counts claims whose sum is larger than any amount that a client may send."""
    hard = {"requests.storage": "1", "persistentvolumeclaims": "5"}
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"persistentvolumeclaims": "5"}}}
    assert api.ask("POST", QUOTAS, quota)[0] == 201
    for number in range(2):
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "9" * 500}}}
        assert api.ask("POST", CLAIMS, {"metadata": {"name": f"c{number}"}, "spec": spec})[0] == 201
    assert api.ask("POST", QUOTAS, {"metadata": {"name": "s"}, "spec": {"hard": hard}})[0] == 201
    api.clock.advance(5)
    status = api.ask("GET", f"{QUOTAS}/s")[1]["status"]
    assert status["used"]["persistentvolumeclaims"] == "2"
    assert api.ask("PUT", f"{QUOTAS}/s", api.ask("GET", f"{QUOTAS}/s")[1])[0] == 200


@pytest.mark.parametrize("by", ["pod", "body", "query"])
def test_a_grace_period_longer_than_the_calendar(api: Api, by: str) -> None:
    more: dict[str, Any] = {"terminationGracePeriodSeconds": HUGE} if by == "pod" else {}
    assert api.ask("POST", PODS, pod("p", nodeName="n1", **more))[0] == 201
    path = f"{PODS}/p?gracePeriodSeconds={HUGE}" if by == "query" else f"{PODS}/p"
    body = {"gracePeriodSeconds": HUGE} if by == "body" else None
    code, answer = api.ask("DELETE", path, body)
    assert code == 200
    assert answer["metadata"]["deletionTimestamp"] == "9999-12-31T23:59:59Z"
    assert answer["metadata"]["deletionGracePeriodSeconds"] == HUGE
    assert api.ask("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 1})[0] == 200


@pytest.mark.parametrize("grace", [LONG, "\u00b2", "1_0", "x"])
def test_a_grace_period_that_is_no_number_is_a_bad_request(api: Api, grace: str) -> None:
    assert api.ask("POST", PODS, pod("p"))[0] == 201
    assert api.ask("DELETE", f"{PODS}/p?gracePeriodSeconds={grace.replace(chr(0xB2), '%C2%B2')}")[0] == 400


@pytest.mark.parametrize("field", ["minAvailable", "maxUnavailable"])
@pytest.mark.parametrize(("percent", "code"), [(f"{LONG}%", 422), ("101%", 422), ("\u00b2%", 422), ("000100%", 201)])
def test_percentages_of_disruption_budgets(api: Api, field: str, percent: str, code: int) -> None:
    body = {"metadata": {"name": "b"}, "spec": {field: percent, "selector": {"matchLabels": {"a": "b"}}}}
    assert api.ask("POST", DISRUPTIONS, body)[0] == code


@pytest.mark.parametrize(
    "fields",
    [
        {"f:data": 5},
        {"f:data": {"f:a": None}},
        {"k:x": {}},
        {"v:": {}},
        {"k:[]": {}},
        {"i:\u00b2": {}},
        {"data": {}},
        {"": {}},
    ],
)
def test_managed_fields_that_cannot_be_read_are_replaced_by_the_stored_ones(api: Api, fields: dict[str, Any]) -> None:
    """As `fieldManager.Update` upstream; on a create there are none, and the writer owns its fields."""
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}
    sent = config("c", a="1")
    sent["metadata"]["managedFields"] = [entry]
    assert api.ask("POST", f"{CONFIGS}?fieldManager=me", sent)[0] == 201
    sent["data"]["b"] = "2"
    assert api.ask("PUT", f"{CONFIGS}/c?fieldManager=other", sent)[0] == 200
    code, body = api.ask("PATCH", f"{CONFIGS}/c?fieldManager=me", {"data": {"c": "3"}}, MERGE_PATCH)
    assert code == 200
    assert sorted(entry["manager"] for entry in body["metadata"]["managedFields"]) == ["me", "other"]


@pytest.mark.parametrize("number", [LONG, "-" + LONG, "\u00b2", "1_0", "--5"])
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("{pods}?limit={}", 400),
        ("{pods}?resourceVersion={}", 400),
        ("{pods}?labelSelector=a%3E{}", 400),
        ("{pods}/p?resourceVersion={}", 200),
    ],
)
def test_numbers_in_the_query(api: Api, path: str, number: str, code: int) -> None:
    api.do("POST", PODS, pod("p"))
    sent = number.replace(chr(0xB2), "%C2%B2")
    assert api.ask("GET", path.format(sent, pods=PODS))[0] == code


@pytest.mark.parametrize("duration", ["0" * 60_000 + "x", "9" * 60_000, "1s" * 30_000, "." * 60_000, "1h1.x", "s"])
def test_a_timeout_is_read_in_time_for_its_length(api: Api, duration: str) -> None:
    code, status = api.ask("GET", f"{PODS}?timeout={duration}")
    assert code == 400
    assert len(status["message"]) < 11_000
