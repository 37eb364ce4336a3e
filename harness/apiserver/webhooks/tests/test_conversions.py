"""Conversion webhooks of custom resources, called in process and over HTTPS."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.apiserver.tests.asking import Api, Object
from seatrial.harness.apiserver.webhooks.tests.answering import Witness, register, reviewed
from seatrial.harness.apiserver.webhooks.tests.test_calling import calling, door
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
URL = "https://shipyard.test/convert"
OLD, NEW = (f"/apis/sea.example.com/{version}/namespaces/default/boats" for version in ("v1", "v2"))
OLD_TYPE = {"apiVersion": "sea.example.com/v1", "kind": "Boat"}
NEW_TYPE = {"apiVersion": "sea.example.com/v2", "kind": "Boat"}
BOAT = {**OLD_TYPE, "metadata": {"name": "b"}, "spec": {"sails": "3"}}
Answering = Callable[[Object], Object]


def definition(client: Object | None = None) -> Object:
    """v1 has `spec.sails` as text and is stored; v2 has `spec.rig.sails` as a number."""

    def version(name: str, spec: Object, *, storage: bool) -> Object:
        schema = {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": spec},
                "status": {"type": "object", "properties": {"sails": {"type": "integer"}}},
            },
        }
        scale = {"specReplicasPath": ".spec.crew", "statusReplicasPath": ".status.sails"}
        return {
            "name": name,
            "served": True,
            "storage": storage,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": scale},
        }

    rig = {"type": "object", "properties": {"sails": {"type": "integer", "maximum": 9}}}
    crew = {"type": "integer"}
    return {
        "metadata": {"name": "boats.sea.example.com"},
        "spec": {
            "group": "sea.example.com",
            "scope": "Namespaced",
            "names": {"plural": "boats", "kind": "Boat"},
            "versions": [
                version("v1", {"sails": {"type": "string"}, "crew": crew}, storage=True),
                version("v2", {"rig": rig, "crew": crew}, storage=False),
            ],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client or {"url": URL}, "conversionReviewVersions": ["v1"]},
            },
        },
    }


def refitted(boat: Object, version: str) -> Object:
    boat = copy.deepcopy(boat)
    spec = boat.get("spec", {})
    if version.endswith("v2") and "sails" in spec:
        spec["rig"] = {"sails": int(spec.pop("sails"))}
    if version.endswith("v1") and "rig" in spec:
        spec["sails"] = str(spec.pop("rig")["sails"])
    boat["apiVersion"] = version
    boat["metadata"].setdefault("annotations", {})["yard"] = "seen"
    boat["metadata"]["generation"] = 99  # what it has no say in
    return boat


class Yard:
    """The webhook."""

    def __init__(self) -> None:
        self.review_sizes: list[int] = []  # how many objects in each review
        self.spoil: Answering | None = None

    def __call__(self, review: Object) -> Object:
        request = review["request"]
        self.review_sizes.append(len(request["objects"]))
        response: Object = {
            "uid": request["uid"],
            "result": {"status": "Success"},
            "convertedObjects": [refitted(stored, request["desiredAPIVersion"]) for stored in request["objects"]],
        }
        answer = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}
        return self.spoil(answer) if self.spoil is not None else answer


@pytest.fixture
def yard() -> Yard:
    return Yard()


@pytest.fixture
def api(yard: Yard) -> Api:
    api = Api()
    api.server.admission.webhooks.local[URL] = yard
    api.do("POST", CRDS, definition())
    return api


def test_each_version_is_read_as_itself(api: Api, yard: Yard) -> None:
    made = api.do("POST", OLD, BOAT)
    assert yard.review_sizes == []  # it is stored as it was written
    response = api.do("GET", f"{NEW}/b")
    assert (response["apiVersion"], response["spec"]) == ("sea.example.com/v2", {"rig": {"sails": 3}})
    kept = ("uid", "resourceVersion", "creationTimestamp", "generation")
    assert {name: response["metadata"][name] for name in kept} == {name: made["metadata"][name] for name in kept}
    assert api.do("GET", f"{OLD}/b")["spec"] == {"sails": "3"}


def test_what_is_written_in_another_version_is_stored_in_one(api: Api) -> None:
    made = api.do("POST", NEW, {**NEW_TYPE, "metadata": {"name": "b"}, "spec": {"rig": {"sails": 4}}})
    assert (made["apiVersion"], made["spec"]) == ("sea.example.com/v2", {"rig": {"sails": 4}})
    stored = api.server.store.collection(("sea.example.com", "boats")).get(("default", "b"))
    assert stored is not None
    assert (stored.obj["apiVersion"], stored.obj["spec"]) == ("sea.example.com/v1", {"sails": "4"})
    assert made["metadata"]["resourceVersion"] == str(stored.version)

    made["spec"]["rig"]["sails"] = 5
    replaced = api.do("PUT", f"{NEW}/b", made)
    assert (replaced["spec"], replaced["metadata"]["generation"]) == ({"rig": {"sails": 5}}, 2)
    assert api.do("GET", f"{OLD}/b")["spec"] == {"sails": "5"}
    version = api.version
    api.do("PUT", f"{NEW}/b", api.do("GET", f"{NEW}/b"))
    assert api.version == version, "a write that changes nothing is none"


@pytest.mark.parametrize(
    ("patch", "kind"),
    [
        pytest.param({"spec": {"rig": {"sails": 7}}}, MERGE_PATCH, id="merge"),
        pytest.param([{"op": "replace", "path": "/spec/rig/sails", "value": 7}], JSON_PATCH, id="json"),
        pytest.param(
            {"apiVersion": "sea.example.com/v2", "kind": "Boat", "spec": {"rig": {"sails": 7}}}, APPLY_PATCH, id="apply"
        ),
    ],
)
def test_patches_are_of_the_version_in_their_path(api: Api, patch: Any, kind: str) -> None:
    api.do("POST", OLD, BOAT)
    force = "&force=true" if kind == APPLY_PATCH else ""
    response = api.do("PATCH", f"{NEW}/b?fieldManager=me{force}", patch, kind)
    assert response["spec"] == {"rig": {"sails": 7}}
    assert api.do("GET", f"{OLD}/b")["spec"] == {"sails": "7"}


def test_the_schema_is_that_of_the_version_in_the_path(api: Api) -> None:
    code, body = api.ask("POST", NEW, {**NEW_TYPE, "metadata": {"name": "b"}, "spec": {"rig": {"sails": 10}}})
    assert (code, body["details"]["causes"][0]["field"]) == (422, "spec.rig.sails")


def test_subresources(api: Api) -> None:
    api.do("POST", OLD, BOAT)
    body = {**api.do("GET", f"{NEW}/b"), "status": {"sails": 3}}
    assert api.do("PUT", f"{NEW}/b/status", body)["status"] == {"sails": 3}
    scale = api.do("GET", f"{NEW}/b/scale")
    assert scale["status"]["replicas"] == 3
    api.do("PUT", f"{NEW}/b/scale", {**scale, "spec": {"replicas": 2}})
    assert api.do("GET", f"{OLD}/b")["spec"] == {"sails": "3", "crew": 2}


def test_a_list_is_converted_in_few_reviews(api: Api, yard: Yard) -> None:
    for number in range(300):
        api.do("POST", OLD, {**OLD_TYPE, "metadata": {"name": f"b{number}"}, "spec": {"sails": str(number)}})
    response = api.do("GET", NEW)
    assert {item["metadata"]["name"]: item["spec"]["rig"]["sails"] for item in response["items"]} == {
        f"b{number}": number for number in range(300)
    }
    assert yard.review_sizes == [250, 50]
    assert len(api.do("GET", f"{NEW}?limit=10")["items"]) == 10
    assert yard.review_sizes[2:] == [10]


def test_deletes(api: Api) -> None:
    held = {**OLD_TYPE, "metadata": {"name": "b", "finalizers": ["sea.example.com/hold"]}, "spec": {"sails": "3"}}
    api.do("POST", OLD, held)
    going = api.do("DELETE", f"{NEW}/b")
    assert (going["apiVersion"], going["spec"]) == ("sea.example.com/v2", {"rig": {"sails": 3}})
    assert "deletionTimestamp" in going["metadata"]
    last = api.do("PATCH", f"{NEW}/b", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert last["spec"] == {"rig": {"sails": 3}}
    assert api.ask("GET", f"{NEW}/b")[0] == 404
    for name in ("c", "d"):
        api.do("POST", OLD, {**BOAT, "metadata": {"name": name}})
    gone = api.do("DELETE", NEW)
    assert [item["spec"] for item in gone["items"]] == [{"rig": {"sails": 3}}] * 2


def test_a_watch_sees_its_own_version(api: Api) -> None:
    api.do("POST", OLD, BOAT)
    since = api.do("GET", NEW)["metadata"]["resourceVersion"]
    state, later = api.watch(NEW), api.watch(NEW, resourceVersion=since)
    api.do("PATCH", f"{OLD}/b", {"spec": {"sails": "4"}}, MERGE_PATCH)
    back = api.watch(NEW, resourceVersion=since)
    api.do("DELETE", f"{OLD}/b")
    seen = [(event["type"], event["object"]["apiVersion"], event["object"]["spec"]) for event in state.events()]
    assert seen == [
        ("ADDED", "sea.example.com/v2", {"rig": {"sails": 3}}),
        ("MODIFIED", "sea.example.com/v2", {"rig": {"sails": 4}}),
        ("DELETED", "sea.example.com/v2", {"rig": {"sails": 4}}),
    ]
    assert later.events() == state.events()[1:] == back.events()
    for watch in (state, later, back):
        watch.source.close()
    assert api.server.reads.watches == 0


def test_admission_webhooks_see_the_version_that_they_asked_for(api: Api) -> None:
    seen: list[Object] = []

    def doubled(review: Object) -> Object:
        seen.append(review["request"])
        sails = int(review["request"]["object"]["spec"]["sails"])
        return reviewed(review, {"op": "replace", "path": "/spec/sails", "value": str(sails * 2)})

    rule = {"apiGroups": ["sea.example.com"], "apiVersions": ["v1"], "resources": ["boats"]}
    register(api, "a", doubled, rules=[{**rule, "operations": ["CREATE", "UPDATE"]}])

    made = api.do("POST", NEW, {**NEW_TYPE, "metadata": {"name": "b"}, "spec": {"rig": {"sails": 2}}})
    assert (made["apiVersion"], made["spec"]) == ("sea.example.com/v2", {"rig": {"sails": 4}})
    made["spec"]["rig"]["sails"] = 3
    assert api.do("PUT", f"{NEW}/b", made)["spec"] == {"rig": {"sails": 6}}
    assert [(event["object"]["apiVersion"], event["object"]["spec"]) for event in seen] == [
        ("sea.example.com/v1", {"sails": "2"}),
        ("sea.example.com/v1", {"sails": "3"}),
    ]
    assert seen[1]["oldObject"]["spec"] == {"sails": "4"}
    assert (seen[0]["requestKind"]["version"], seen[0]["kind"]["version"]) == ("v2", "v1")


def test_a_scale_of_a_custom_resource_is_shown_as_one(api: Api) -> None:
    witness = Witness()
    rule = {"apiGroups": ["sea.example.com"], "apiVersions": ["v1"], "resources": ["boats/scale"]}
    register(api, "a", witness, rules=[{**rule, "operations": ["UPDATE"]}])
    api.do("POST", OLD, BOAT)
    api.do("PATCH", f"{NEW}/b/scale", {"spec": {"replicas": 2}}, MERGE_PATCH)
    (request,) = witness.requests
    assert (request["object"]["apiVersion"], request["object"]["kind"]) == ("autoscaling/v1", "Scale")


def spoiled(**response: Any) -> Answering:
    return lambda answer: {**answer, "response": {**answer["response"], **response}}


def renamed(answer: Object) -> Object:
    answer["response"]["convertedObjects"][0]["metadata"]["name"] = "c"
    return answer


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(
            spoiled(result={"status": "Failure", "message": "no such rig"}), "failed: no such rig", id="it-says-no"
        ),
        pytest.param(spoiled(convertedObjects=[]), "returned 0 objects, expected 1", id="too-few"),
        pytest.param(spoiled(uid="x"), 'expected response.uid="', id="the-answer-to-another-question"),
        pytest.param(lambda answer: {**answer, "kind": "Boat"}, "expected webhook response of", id="another-kind"),
        pytest.param(lambda _: {}, "failed: no response provided", id="nothing"),
        pytest.param(
            spoiled(convertedObjects=[{**BOAT, "apiVersion": "sea.example.com/v1", "kind": "Boat"}]),
            "returned invalid converted object at index 0",
            id="not-converted",
        ),
        pytest.param(renamed, "must have the same name: b != c", id="another-object"),
    ],
)
def test_a_conversion_that_fails(api: Api, yard: Yard, spoil: Answering, words: str) -> None:
    api.do("POST", OLD, BOAT)
    watch = api.watch(NEW)
    yard.spoil = spoil
    for method, path, body in (
        ("GET", f"{NEW}/b", None),
        ("GET", NEW, None),
        ("PUT", f"{NEW}/b", {**BOAT, **NEW_TYPE}),
    ):
        code, answer = api.ask(method, path, body)
        assert (code, answer["kind"]) == (500, "Status")
        assert answer["message"].startswith("conversion webhook for sea.example.com/v1, Kind=Boat ")
        assert words in answer["message"]
    assert api.ask("GET", f"{OLD}/b")[0] == 200
    api.do("PATCH", f"{OLD}/b", {"spec": {"crew": 1}}, MERGE_PATCH)
    assert watch.short() == ["ADDED b", "ERROR 500"]
    assert watch.reader.ended


@pytest.mark.parametrize(
    ("conversion", "field"),
    [
        pytest.param({"strategy": "Sail"}, "spec.conversion.strategy", id="no-such-strategy"),
        pytest.param({"strategy": "Webhook"}, "spec.conversion.webhook", id="no-webhook"),
        pytest.param(
            {"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}},
            "spec.conversion.webhook.clientConfig",
            id="nowhere",
        ),
        pytest.param(
            {"strategy": "Webhook", "webhook": {"clientConfig": {"url": URL}, "conversionReviewVersions": ["v7"]}},
            "spec.conversion.webhook.conversionReviewVersions",
            id="no-version-of-ours",
        ),
        pytest.param(
            {"strategy": "None", "webhook": {"clientConfig": {"url": URL}, "conversionReviewVersions": ["v1"]}},
            "spec.conversion.webhook",
            id="webhook-without-strategy",
        ),
    ],
)
def test_a_bad_conversion_is_refused(conversion: Object, field: str) -> None:
    body = definition()
    body["spec"]["conversion"] = conversion
    code, answer = Api().ask("POST", CRDS, body)
    assert (code, [cause["field"] for cause in answer["details"]["causes"]]) == (422, [field])


def test_over_https(tmp_path: Path, yard: Yard) -> None:
    with calling() as place, door(yard, tmp_path) as result, place.connect() as wire, place.connect() as other:
        assert wire.ask("POST", CRDS, definition(result.client))[0] == 201
        other.send(other.request("GET", f"{NEW}?watch=1"))
        assert other.answer()[0] == 200
        code, made = wire.ask(
            "POST", NEW, {**NEW_TYPE, "metadata": {"generateName": "b-"}, "spec": {"rig": {"sails": 4}}}
        )
        assert (code, made["spec"]) == (201, {"rig": {"sails": 4}})
        name = made["metadata"]["name"]
        assert wire.ask("GET", f"{OLD}/{name}")[1]["spec"] == {"sails": "4"}
        for sails in (5, 6, 7):
            code, patched = wire.ask(
                "PATCH", f"{NEW}/{name}", {"spec": {"rig": {"sails": sails}}}, content_type=MERGE_PATCH
            )
            assert (code, patched["spec"]) == (200, {"rig": {"sails": sails}})
        assert wire.ask("GET", NEW)[1]["items"][0]["spec"] == {"rig": {"sails": 7}}
        events = other.events(4)
        assert [event["object"]["spec"]["rig"]["sails"] for event in events] == [4, 5, 6, 7]
        assert wire.ask("DELETE", f"{NEW}/{name}")[0] == 200
        assert other.events(1)[0]["type"] == "DELETED"


def test_connection_refused(tmp_path: Path, yard: Yard) -> None:
    with calling() as place, place.connect() as wire:
        with door(yard, tmp_path) as result:
            client = result.client
        assert wire.ask("POST", CRDS, definition(client))[0] == 201
        assert wire.ask("POST", OLD, BOAT)[0] == 201
        code, status = wire.ask("GET", f"{NEW}/b")
        assert code == 500
        prefix = f'conversion webhook for sea.example.com/v1, Kind=Boat failed: Post "{client["url"]}?timeout=30s": '
        assert status["message"].startswith(prefix)
        assert "connection refused" in status["message"]
