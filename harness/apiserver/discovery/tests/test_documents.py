"""Health, versions, both forms of discovery, OpenAPI documents."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.discovery.resources import BUILT_IN
from seatrial.harness.apiserver.server import ApiServer
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Request, Response

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture(scope="module")
def server() -> ApiServer:
    return build_server(SimClock())


def get(server: ApiServer, path: str, **headers: str) -> Response:
    answer = server.handle(
        Request("GET", path, b"", "", {name.replace("_", "-"): text for name, text in headers.items()})
    )
    assert isinstance(answer, Response)
    return answer


def document(server: ApiServer, path: str, **headers: str) -> dict[str, Any]:
    answer = get(server, path, **headers)
    assert answer.code == 200, answer.body
    body: dict[str, Any] = orjson.loads(answer.body)
    return body


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health(server: ApiServer, path: str) -> None:
    assert get(server, path).body == b"ok"
    assert b"check passed" in get(server, f"{path}?verbose").body


def test_version_and_metrics(server: ApiServer) -> None:
    assert document(server, "/version")["gitVersion"].startswith("v1.")
    assert b"# TYPE apiserver_requests_total counter\n" in get(server, "/metrics").body


@pytest.mark.parametrize("path", ["/nowhere", "/api/v2", "/apis/none.example.com", "/apis/apps/v9", "/openapi/v9"])
def test_unknown_paths(server: ApiServer, path: str) -> None:
    answer = get(server, path)
    assert answer.code == 404
    assert orjson.loads(answer.body)["reason"] == "NotFound"


def test_an_old_client_gets_the_list(server: ApiServer) -> None:
    """A client that knows aggregated discovery as v2beta1 only, as koord-descheduler 1.7, reads the list of groups."""
    accept = f"{AGGREGATED.replace('v=v2;', 'v=v2beta1;')},application/json"
    assert document(server, "/apis", accept=accept)["kind"] == "APIGroupList"
    assert document(server, "/apis", accept=f"{AGGREGATED},{accept}")["kind"] == "APIGroupDiscoveryList"


def test_both_forms_of_discovery_agree(server: ApiServer) -> None:
    """Every resource of the lists is in the aggregated documents, with the same verbs and subresources."""
    lists: dict[tuple[str, str], tuple[str, ...]] = {}
    groups = ["/api/v1"] + [
        f"/apis/{row['groupVersion']}" for group in document(server, "/apis")["groups"] for row in group["versions"]
    ]
    for path in groups:
        results = document(server, path)
        for row in results["resources"]:
            lists[results["groupVersion"], row["name"]] = tuple(row["verbs"])
    aggregated: dict[tuple[str, str], tuple[str, ...]] = {}
    for path in ("/api", "/apis"):
        for group in document(server, path, accept=AGGREGATED)["items"]:
            name = group["metadata"]["name"]
            for version in group["versions"]:
                where = f"{name}/{version['version']}" if name else version["version"]
                for row in version["resources"]:
                    aggregated[where, row["resource"]] = tuple(row["verbs"])
                    for sub in row.get("subresources", ()):
                        aggregated[where, f"{row['resource']}/{sub['subresource']}"] = tuple(sub["verbs"])
    assert lists == aggregated
    assert len(lists) > len(BUILT_IN)


def test_aggregated_discovery_is_not_sent_twice(server: ApiServer) -> None:
    first = get(server, "/apis", accept=AGGREGATED)
    again = get(server, "/apis", accept=AGGREGATED, if_none_match=first.headers["etag"])
    assert (again.code, again.body) == (304, b"")
    assert get(server, "/apis", accept=AGGREGATED, if_none_match='"old"').code == 200


def test_a_definition_changes_the_documents() -> None:
    server = build_server(SimClock())
    before = get(server, "/apis", accept=AGGREGATED).headers["etag"]
    index = document(server, "/openapi/v3")["paths"]
    schema = {"type": "object", "properties": {"spec": {"type": "object", "description": "What it is."}}}
    body = {
        "metadata": {"name": "boats.sea.example.com"},
        "spec": {
            "group": "sea.example.com",
            "scope": "Namespaced",
            "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    made = server.handle(Request("POST", path, orjson.dumps(body), "application/json", {}))
    assert isinstance(made, Response)
    assert made.code == 201, made.body
    assert get(server, "/apis", accept=AGGREGATED).headers["etag"] != before
    assert document(server, "/openapi/v3")["paths"].keys() - index.keys() == {"apis/sea.example.com/v1"}
    schemas = document(server, "/openapi/v3/apis/sea.example.com/v1")["components"]["schemas"]
    assert schemas["com.example.sea.v1.Boat"]["properties"]["spec"]["description"] == "What it is."


# -- OpenAPI -----------------------------------------------------------------------------------------------------------


def schemas(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema within a schema, with the way to it."""
    yield path, value
    for name, child in value.get("properties", {}).items():
        yield from schemas(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(value.get(name), dict):
            yield from schemas(value[name], f"{path}.{name}")


def problems(components: dict[str, Any], prefix: str) -> list[str]:
    """What a client of OpenAPI cannot read."""
    messages = []
    for name, component in components.items():
        for path, schema in schemas(component, name):
            if not isinstance(schema.get("type", ""), str):
                messages.append(f"{path}: type {schema['type']}")
            for part in (schema, *schema.get("allOf", ())):
                reference = part.get("$ref")
                if reference and reference.removeprefix(prefix) not in components:
                    messages.append(f"{path}: {reference}")
    return messages


def test_documents_of_version_three_hold_what_they_refer_to(server: ApiServer) -> None:
    for path, place in document(server, "/openapi/v3")["paths"].items():
        results = document(server, place["serverRelativeURL"])
        assert problems(results["components"]["schemas"], "#/components/schemas/") == [], path
        assert results["paths"], path


def test_the_document_of_version_two_holds_what_it_refers_to(server: ApiServer) -> None:
    results = document(server, "/openapi/v2")
    assert problems(results["definitions"], "#/definitions/") == []
    quantity = results["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity["type"] == "string"


def test_paths_of_version_two(server: ApiServer) -> None:
    """Every resource has its operations, described as upstream does; all references exist."""
    results = document(server, "/openapi/v2")
    paths = results["paths"]
    services = paths["/api/v1/namespaces/{namespace}/services"]
    assert services["get"]["description"] == "list or watch objects of kind Service"
    assert services["get"]["operationId"] == "listCoreV1NamespacedService"
    listed = services["get"]["responses"]["200"]["schema"]["$ref"].removeprefix("#/definitions/")
    assert results["definitions"][listed]["properties"]["items"]["description"] == "List of services"
    assert "delete" not in paths["/api/v1/namespaces"]  # namespaces are deleted singly
    assert set(paths["/api/v1/namespaces/{namespace}/bindings"]) == {"post", "parameters"}
    for row in BUILT_IN:
        operations = [path for path in paths if f"/{row.version}/" in path and path.endswith(f"/{row.plural}")]
        assert operations, row
    known = {f"#/definitions/{name}" for name in results["definitions"]}
    known |= {f"#/parameters/{name}" for name in results["parameters"]}
    assert references(paths) <= known
    assert "Watch for changes to the described resources" in results["parameters"]["watch"]["description"]


def references(value: Any) -> set[str]:
    """All references in a document."""
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(part) for part in value.values()))
    return set[str]().union(*(references(part) for part in value)) if isinstance(value, list) else set()


def test_enumerations_are_listed_with_their_texts(server: ApiServer) -> None:
    """As kube-apiserver does, in both versions; a list has them in its items."""
    for definition in (
        document(server, "/openapi/v2")["definitions"],
        document(server, "/openapi/v3/api/v1")["components"]["schemas"],
    ):
        policy = definition["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"]
        assert policy["enum"] == ["Always", "IfNotPresent", "Never"]
        assert 'Possible enum values:\n - `"Always"` means that kubelet always attempts' in policy["description"]
        modes = definition["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]["properties"]["accessModes"]
        assert modes["items"]["enum"] == ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]


def test_fields_of_a_kind_that_keeps_unknown_ones_are_not_listed_in_version_two(server: ApiServer) -> None:
    """kubectl refuses fields beside listed ones."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "string"}}}
    definition = {
        "metadata": {"name": "boats.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Cluster",
            "names": {"plural": "boats", "kind": "Boat"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    answer = server.handle(Request("POST", path, orjson.dumps(definition)))
    assert isinstance(answer, Response)
    assert answer.code == 201, answer.body
    result = document(server, "/openapi/v2")["definitions"]["io.x.v1.Boat"]
    assert result["type"] == "object"
    assert "properties" not in result
    listed = document(server, "/openapi/v3/apis/x.io/v1")["components"]["schemas"]["io.x.v1.Boat"]
    assert set(listed["properties"]) == {"a", "apiVersion", "kind", "metadata"}


def test_malformed_protocol_buffers_are_a_bad_request(server: ApiServer) -> None:
    for body in (b"k8s\x00\x0a\xff", b"nonsense", b"k8s\x00\x0a\x02\x0a\x7f"):
        answer = server.handle(Request("POST", "/api/v1/namespaces", body, "application/vnd.kubernetes.protobuf", {}))
        assert isinstance(answer, Response)
        assert (answer.code, orjson.loads(answer.body)["reason"]) == (400, "BadRequest")
