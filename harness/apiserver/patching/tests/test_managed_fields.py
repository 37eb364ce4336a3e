"""Field ownership, tested with requests to a server."""

from typing import Any

import orjson
import pytest
import yaml

from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.server import ApiServer
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Request, Response

PODS = "/api/v1/namespaces/default/pods"
CONTAINER = {"name": "c", "image": "nginx"}
NODE = "/api/v1/nodes"


@pytest.fixture
def server() -> ApiServer:
    return build_server(SimClock())


def ask(server: ApiServer, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
    data = b"" if body is None else orjson.dumps(body)
    answer = server.handle(Request(method, path, data, kind, {"user-agent": "tester/v1 (linux)", "content-type": kind}))
    assert isinstance(answer, Response)
    document: dict[str, Any] = orjson.loads(answer.body)
    assert answer.code < 300, document
    return document


def create(server: ApiServer, *, manager: str = "") -> dict[str, Any]:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [dict(CONTAINER)]}}
    return ask(server, "POST", PODS + (f"?fieldManager={manager}" if manager else ""), pod)


def owners(server: ApiServer, path: str = f"{PODS}/p") -> dict[tuple[str, str, str], dict[str, Any]]:
    """(manager, operation, subresource) → what it owns, as the object read alone says."""
    entries = ask(server, "GET", path)["metadata"].get("managedFields", [])
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"] for entry in entries
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "tester", id="the-user-agent-where-no-manager-is-named"),
        pytest.param("me", "me", id="the-field-manager-that-is-named"),
    ],
)
def test_a_creator_owns_what_it_sent(server: ApiServer, text: str, expected: str) -> None:
    create(server, manager=text)
    results = owners(server)
    assert list(results) == [(expected, "Update", "")]
    spec = results[expected, "Update", ""]["f:spec"]
    assert spec["f:containers"]['k:{"name":"c"}']["f:image"] == {}
    assert "f:restartPolicy" in spec, "defaults are the creator's, as upstream"
    assert "f:tolerations" not in spec, "no manager owns what admission adds"
    assert "f:status" not in results[expected, "Update", ""]


def test_an_updater_takes_over_what_it_changes(server: ApiServer) -> None:
    create(server, manager="one")
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "other"}]}}
    ask(server, "PATCH", f"{PODS}/p?fieldManager=two", change, "application/strategic-merge-patch+json")
    results = owners(server)
    assert "f:image" not in results["one", "Update", ""]["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert results["two", "Update", ""]["f:spec"]["f:containers"]['k:{"name":"c"}'] == {"f:image": {}}
    assert results["two", "Update", ""]["f:metadata"]["f:labels"] == {".": {}, "f:a": {}}


def test_a_status_has_an_owner_of_its_own(server: ApiServer) -> None:
    create(server, manager="one")
    for phase in ("Running", "Succeeded"):
        ask(server, "PATCH", f"{PODS}/p/status?fieldManager=kubelet", {"status": {"phase": phase}}, MERGE_PATCH)
    results = owners(server)
    assert results["kubelet", "Update", "status"] == {"f:status": {"f:phase": {}}}
    assert "f:status" not in results["one", "Update", ""]


def test_many_writers_are_all_remembered(server: ApiServer) -> None:
    create(server, manager="one")
    for number in range(8):  # more than a ledger keeps unsettled
        change = {"metadata": {"labels": {f"l{number}": "x"}}}
        ask(server, "PATCH", f"{PODS}/p?fieldManager=m{number}", change, MERGE_PATCH)
    results = owners(server)
    for number in range(8):
        assert f"f:l{number}" in results[f"m{number}", "Update", ""]["f:metadata"]["f:labels"]


def test_a_write_that_changes_nothing_leaves_the_owners(server: ApiServer) -> None:
    create(server, manager="one")
    before = ask(server, "GET", f"{PODS}/p")
    after = ask(server, "PUT", f"{PODS}/p?fieldManager=two", before)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert ask(server, "GET", f"{PODS}/p") == before


def test_a_patch_of_the_owners_themselves(server: ApiServer) -> None:
    create(server, manager="one")
    entries = ask(server, "GET", f"{PODS}/p")["metadata"]["managedFields"]
    entries[0] |= {"manager": "renamed", "operation": "Apply"}
    step = {"op": "replace", "path": "/metadata/managedFields", "value": entries}
    ask(server, "PATCH", f"{PODS}/p?fieldManager=two", [step], JSON_PATCH)
    assert list(owners(server)) == [("renamed", "Apply", "")]
    ask(server, "PATCH", f"{PODS}/p", {"metadata": {"managedFields": [{}]}}, MERGE_PATCH)
    assert not owners(server)


def test_an_applier_beside_an_updater(server: ApiServer) -> None:
    create(server, manager="one")
    mine = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}}
    answer = ask(server, "PATCH", f"{PODS}/p?fieldManager=me", mine, APPLY_PATCH)
    assert answer["metadata"]["managedFields"] == ask(server, "GET", f"{PODS}/p")["metadata"]["managedFields"]
    assert owners(server)["me", "Apply", ""] == {"f:metadata": {"f:labels": {"f:a": {}}}}
    mine["metadata"].pop("labels")  # type: ignore[attr-defined]
    ask(server, "PATCH", f"{PODS}/p?fieldManager=me", mine, APPLY_PATCH)
    assert "labels" not in ask(server, "GET", f"{PODS}/p")["metadata"]
    assert ask(server, "GET", f"{PODS}/p")["spec"]["tolerations"], "fields without an owner stay"


def test_applying_the_same_again_writes_nothing(server: ApiServer) -> None:
    mine = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [dict(CONTAINER)]}}
    first = ask(server, "PATCH", f"{PODS}/p?fieldManager=me", mine, APPLY_PATCH)
    again = ask(server, "PATCH", f"{PODS}/p?fieldManager=me", mine, APPLY_PATCH)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_what_the_server_adds_to_a_node_has_no_owner(server: ApiServer) -> None:
    ask(server, "POST", f"{NODE}?fieldManager=kubelet", {"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"}})
    assert owners(server, f"{NODE}/n") == {("kubelet", "Update", ""): {"f:spec": {"f:podCIDR": {}}}}


LISTS = {
    "json": {},
    "yaml": {"accept": "application/yaml"},
    "metadata-alone": {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"},
}


def listed(server: ApiServer, path: str, headers: dict[str, str]) -> list[dict[str, Any]]:
    answer = server.handle(Request("GET", path, headers=headers))
    assert isinstance(answer, Response)
    items: list[dict[str, Any]] = yaml.safe_load(answer.body)["items"]  # JSON is YAML
    return items


@pytest.mark.parametrize("shape", [pytest.param(shape, id=name) for name, shape in LISTS.items()])
def test_lists_have_managed_fields(server: ApiServer, shape: dict[str, str]) -> None:
    create(server, manager="one")
    ask(server, "PATCH", f"{PODS}/p?fieldManager=two", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
    alone = ask(server, "GET", f"{PODS}/p")
    for _ in range(2):  # worked out, then remembered
        listing = listed(server, PODS, {"user-agent": "kubectl/v1", **shape})
        assert [item["metadata"]["managedFields"] for item in listing] == [alone["metadata"]["managedFields"]]
        assert listing[0].get("spec", alone["spec"]) == alone["spec"]


def test_clients_without_a_name_get_no_managed_fields(server: ApiServer) -> None:
    create(server, manager="one")
    assert "managedFields" not in listed(server, PODS, {})[0]["metadata"]


def test_a_list_with_an_object_that_quotes_its_own_uid(server: ApiServer) -> None:
    uid = create(server, manager="one")["metadata"]["uid"]
    ref = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}
    ask(server, "PATCH", f"{PODS}/p?fieldManager=two", {"metadata": {"ownerReferences": [ref]}}, MERGE_PATCH)
    alone = ask(server, "GET", f"{PODS}/p")
    assert listed(server, PODS, {"user-agent": "kubectl/v1"}) == [alone]


def test_lists_of_an_old_revision_have_the_owners_of_then(server: ApiServer) -> None:
    create(server, manager="one")
    first = ask(server, "GET", f"{PODS}/p")
    token = listed_page(server)
    ask(server, "PATCH", f"{PODS}/p?fieldManager=two", {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH)
    listing = listed(server, f"{PODS}?limit=1&continue={token}", {"user-agent": "kubectl/v1"})
    assert listing[0]["metadata"]["name"] == "p"
    assert listing[0]["metadata"]["managedFields"] == first["metadata"]["managedFields"]


def listed_page(server: ApiServer) -> str:
    """The token for the page that begins with the pod p."""
    other = {"metadata": {"name": "a"}, "spec": {"containers": [dict(CONTAINER)]}}
    ask(server, "POST", PODS, other)
    token: str = ask(server, "GET", f"{PODS}?limit=1")["metadata"]["continue"]
    return token
