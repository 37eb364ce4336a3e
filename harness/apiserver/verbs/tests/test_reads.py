"""Lists: pages, revisions, selectors, response formats (API-A11, API-A5)."""

from typing import Any
from urllib.parse import quote

import pytest

from seatrial.harness.apiserver.storage.store import Snapshots
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, Lines, config, pod
from seatrial.scheduler.api.transport import Request


@pytest.fixture
def api() -> Api:
    return Api(bare=True)


def names(name: Any) -> list[str]:
    return [item["metadata"]["name"] for item in name["items"]]


def ten(api: Api) -> None:
    for number in range(10):
        api.do("POST", CONFIGS, config(f"c{number}", labels={"odd": str(number % 2)}))


def test_a_list_is_sorted_and_carries_the_newest_revision(api: Api) -> None:
    for name in ("b", "c", "a"):
        api.do("POST", CONFIGS, config(name))
    response = api.do("GET", CONFIGS)
    assert names(response) == ["a", "b", "c"]
    assert (response["kind"], response["apiVersion"]) == ("ConfigMapList", "v1")
    assert response["metadata"] == {"resourceVersion": str(api.version)}


def test_pages_show_one_snapshot(api: Api) -> None:
    ten(api)
    first = api.do("GET", f"{CONFIGS}?limit=4")
    assert first["metadata"]["remainingItemCount"] == 6
    api.do("DELETE", f"{CONFIGS}/c5")
    api.do("POST", CONFIGS, config("c45"))
    second = api.do("GET", f"{CONFIGS}?limit=4&continue={first['metadata']['continue']}")
    third = api.do("GET", f"{CONFIGS}?limit=4&continue={second['metadata']['continue']}")
    assert [names(page) for page in (first, second, third)] == [
        ["c0", "c1", "c2", "c3"],
        ["c4", "c5", "c6", "c7"],
        ["c8", "c9"],
    ]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert second["metadata"]["remainingItemCount"] == 2
    assert "continue" not in third["metadata"]


def test_two_readers_of_one_list_do_not_disturb_each_other(api: Api) -> None:
    ten(api)
    first = api.do("GET", f"{CONFIGS}?limit=5")["metadata"]["continue"]
    again = api.do("GET", f"{CONFIGS}?limit=5")["metadata"]["continue"]
    assert names(api.do("GET", f"{CONFIGS}?limit=5&continue={first}")) == ["c5", "c6", "c7", "c8", "c9"]
    assert names(api.do("GET", f"{CONFIGS}?limit=5&continue={again}")) == ["c5", "c6", "c7", "c8", "c9"]


def test_pages_of_a_selection_do_not_count_what_remains(api: Api) -> None:
    ten(api)
    query = "labelSelector=odd%3D1&limit=2"
    first = api.do("GET", f"{CONFIGS}?{query}")
    assert "remainingItemCount" not in first["metadata"]
    second = api.do("GET", f"{CONFIGS}?{query}&continue={first['metadata']['continue']}")
    assert names(first) + names(second) == ["c1", "c3", "c5", "c7"]


def test_pages_go_on_across_namespaces(api: Api) -> None:
    for namespace in ("alpha", "beta"):
        api.do("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        api.do("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": "s"}})
    first = api.do("GET", "/api/v1/secrets?limit=1")
    second = api.do("GET", f"/api/v1/secrets?limit=1&continue={first['metadata']['continue']}")
    namespaces = [page["items"][0]["metadata"]["namespace"] for page in (first, second)]
    assert namespaces == ["alpha", "beta"]


def test_an_unused_continue_token_expires(api: Api) -> None:
    ten(api)
    token = api.do("GET", f"{CONFIGS}?limit=5")["metadata"]["continue"]
    api.clock.advance(Snapshots.UNREAD + 1)
    code, status = api.ask("GET", f"{CONFIGS}?limit=5&continue={token}")
    assert (code, status["reason"]) == (410, "Expired")
    assert status["message"].startswith("The provided continue parameter is too old")


def test_snapshots_are_bounded(api: Api) -> None:
    ten(api)
    token = api.do("GET", f"{CONFIGS}?limit=5")["metadata"]["continue"]
    for number in range(Snapshots.LIMIT + 10):
        api.do("GET", f"{CONFIGS}?limit=1&labelSelector={quote(f'n!={number}')}")
    assert len(api.server.store.snapshots) == Snapshots.LIMIT
    assert api.ask("GET", f"{CONFIGS}?limit=5&continue={token}")[0] == 410


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        pytest.param("resourceVersion=0", 200, "", id="any"),
        pytest.param("resourceVersion={now}", 200, "", id="now"),
        pytest.param("resourceVersion=1", 200, "", id="not-older-than-long-ago"),
        pytest.param("resourceVersion=1&resourceVersionMatch=NotOlderThan", 200, "", id="said-so"),
        pytest.param("resourceVersion={now}&resourceVersionMatch=Exact", 200, "", id="exactly-now"),
        pytest.param("resourceVersion=1&resourceVersionMatch=Exact", 200, "", id="exactly-long-ago"),
        pytest.param("resourceVersion=9999", 504, "Too large resource version: 9999", id="the-future"),
        pytest.param("resourceVersion=x", 400, "invalid syntax", id="no-revision"),
        pytest.param("resourceVersionMatch=Exact", 422, "forbidden unless resourceVersion", id="nothing-to-match"),
        pytest.param("resourceVersion=1&resourceVersionMatch=Most", 422, "Unsupported value", id="no-such-match"),
        pytest.param("resourceVersion=0&resourceVersionMatch=Exact", 422, 'resourceVersion "0"', id="exactly-any"),
        pytest.param("sendInitialEvents=true", 422, "forbidden for list", id="initial-events-in-a-list"),
        pytest.param("limit=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax', id="no-limit"),
        pytest.param("timeoutSeconds=x", 400, 'parsing "x": invalid syntax', id="no-timeout"),
        pytest.param("timeoutSeconds=9999999999999999999", 400, "value out of range", id="too-large-a-timeout"),
        pytest.param("limit=1e3", 400, 'parsing "1e3": invalid syntax', id="a-limit-with-an-exponent"),
        pytest.param("continue=x", 400, "continue key is not valid", id="no-token"),
        pytest.param("continue=W10&limit=1", 400, "continue key is not valid", id="a-token-of-another-server"),
        pytest.param("labelSelector=a%3Db%3Dc", 400, "unable to parse requirement", id="no-selector"),
        pytest.param("fieldSelector=spec.x%3D1", 400, "is not a known field selector", id="no-such-field"),
        pytest.param("watch=perhaps&continue=x", 422, "forbidden for watch", id="whatever-is-not-false-is-true"),
    ],
)
def test_parameters(api: Api, query: str, code: int, words: str) -> None:
    api.do("POST", CONFIGS, config("a"))
    status, answer = api.ask("GET", f"{CONFIGS}?{query.format(now=api.version)}")
    assert status == code, answer
    if words:
        assert words in answer["message"]


def test_an_exact_list_without_later_changes_has_its_revision(api: Api) -> None:
    then = api.do("POST", CONFIGS, config("a"))["metadata"]["resourceVersion"]
    api.do("POST", PODS, pod("p"))
    response = api.do("GET", f"{CONFIGS}?resourceVersion={then}&resourceVersionMatch=Exact")
    assert response["metadata"]["resourceVersion"] == then


def test_an_exact_list_shows_the_objects_of_its_revision(api: Api) -> None:
    api.do("POST", CONFIGS, config("a", labels={"app": "x"}, k="1"))
    first = api.do("GET", CONFIGS)
    api.do("PUT", f"{CONFIGS}/a", config("a", labels={"app": "y"}, k="2"))
    api.do("POST", CONFIGS, config("b"))
    api.do("DELETE", f"{CONFIGS}/a")
    then = first["metadata"]["resourceVersion"]
    exact = f"resourceVersion={then}&resourceVersionMatch=Exact"
    assert api.do("GET", f"{CONFIGS}?{exact}") == first
    assert names(api.do("GET", f"{CONFIGS}?{exact}&labelSelector=app%3Dy")) == []
    assert names(api.do("GET", f"{CONFIGS}?{exact}&labelSelector=app%3Dx")) == ["a"]
    page = api.do("GET", f"{CONFIGS}?resourceVersion={then}&limit=1")  # with a limit the old way to say exactly
    assert page["metadata"]["resourceVersion"] == then
    rest = page["metadata"].get("continue")
    while rest:
        more = api.do("GET", f"{CONFIGS}?limit=1&continue={rest}")
        page["items"] += more["items"]
        rest = more["metadata"].get("continue")
    assert page["items"] == first["items"]


def test_an_exact_list_from_before_the_history_is_refused() -> None:
    api = Api(history=2, bare=True)
    for name in ("a", "b", "c", "d"):
        api.do("POST", CONFIGS, config(name))
    code, body = api.ask("GET", f"{CONFIGS}?resourceVersion=1&resourceVersionMatch=Exact")
    assert (code, body["reason"]) == (410, "Expired")
    assert "too old resource version: 1" in body["message"]


def test_field_and_label_selectors_both_hold(api: Api) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        api.do("POST", PODS, pod(name, labels={"app": app}))
    api.do("POST", f"{PODS}/a/binding", {"metadata": {"name": "a"}, "target": {"name": "n"}})
    api.do("POST", f"{PODS}/c/binding", {"metadata": {"name": "c"}, "target": {"name": "n"}})
    assert names(api.do("GET", f"{PODS}?fieldSelector=spec.nodeName%3Dn&labelSelector=app%3Dx")) == ["a"]
    assert names(api.do("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D")) == ["b"]


@pytest.mark.parametrize(
    ("accept", "kind", "item"),
    [
        pytest.param("application/cbor, application/json", "ConfigMapList", "", id="json-after-an-unknown-type"),
        pytest.param("application/json;as=Table;v=v1;g=meta.k8s.io", "Table", "", id="table"),
        pytest.param(
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
            "PartialObjectMetadataList",
            "PartialObjectMetadata",
            id="metadata",
        ),
    ],
)
def test_response_formats(api: Api, accept: str, kind: str, item: str) -> None:
    api.do("POST", CONFIGS, config("a"))
    _, body = api.ask("GET", CONFIGS, headers={"accept": accept})
    assert body["kind"] == kind
    if item:
        assert {listed["kind"] for listed in body["items"]} == {item}
        assert "data" not in body["items"][0]


def test_the_old_paths_of_watches(api: Api) -> None:
    """`/api/v1/watch/…` is a watch whatever the query says; other methods are not allowed."""
    api.do("POST", CONFIGS, config("a"))
    for path in ("/api/v1/watch/configmaps", "/api/v1/watch/namespaces/default/configmaps/a"):
        response = api.server.handle(Request("GET", path))
        assert isinstance(response, Streaming)
        reader = Lines()
        response.start(reader)
        api.clock.settle()
        assert reader.short() == ["ADDED a"]
    assert api.ask("POST", "/api/v1/watch/configmaps", config("b"))[0] == 405
    assert api.ask("GET", "/api/v1/watch/none")[0] == 404


def test_an_object_at_a_revision_that_does_not_exist_yet(api: Api) -> None:
    api.do("POST", CONFIGS, config("a"))
    code, body = api.ask("GET", f"{CONFIGS}/a?resourceVersion={api.version + 1}")
    assert (code, body["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
    assert api.ask("GET", f"{CONFIGS}/a?resourceVersion={api.version}")[0] == 200


def test_services_are_selected_by_type_and_address(api: Api) -> None:
    path = "/api/v1/namespaces/default/services"
    for name, spec in (("a", {"clusterIP": "None"}), ("b", {"type": "ExternalName", "externalName": "x.y"})):
        api.do("POST", path, {"metadata": {"name": name}, "spec": {"ports": [{"port": 1}], **spec}})
    for selector, expected in (("spec.clusterIP%3DNone", "a"), ("spec.type%3DExternalName", "b")):
        response = api.do("GET", f"{path}?fieldSelector={selector}")
        assert [item["metadata"]["name"] for item in response["items"]] == [expected]
