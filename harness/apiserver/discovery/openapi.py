"""The OpenAPI documents (v2, v3) that kubectl reads for explain, apply and validation; built on request."""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import orjson

from seatrial.harness.apiserver.discovery import operations
from seatrial.harness.apiserver.discovery.enumerations import with_enums
from seatrial.harness.apiserver.discovery.openapi_protobuf import encoded
from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.schemas.schema_nodes import builtin

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
Object = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_OPTIONS = tuple(f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}" for name in ("DeleteOptions", "Patch", "Status"))
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_GVK = "x-kubernetes-group-version-kind"
_PACKAGED_REF, _V2_REF, _V3_REF = b'"#/$defs/', b'"#/definitions/', b'"#/components/schemas/'
_WRITE_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
_FORCE = {"name": "force", "in": "query", "schema": {"type": "boolean", "uniqueItems": True}}
_VERBS = ("get", "put", "patch", "delete")


class OpenApi:
    """Builds documents for each group version; caches them until the registry changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._documents: dict[str, bytes] = {}
        self._generation = -1

    def v2_protobuf(self) -> bytes:
        """The document at `/openapi/v2` in protocol buffers."""
        return self.document(["v2", "protobuf"]) or b""

    def document(self, parts: list[str]) -> bytes | None:
        """The document at `/openapi/PARTS` in JSON; None if there is none."""
        if self._generation != self._registry.generation:
            self._documents.clear()
            self._generation = self._registry.generation
        path = "/".join(parts)
        data = self._documents.get(path)
        if data is None:
            data = self._make(parts)
            if data is not None:
                self._documents[path] = data
        return data

    def _make(self, parts: list[str]) -> bytes | None:
        match parts:
            case ["v2"]:
                return self._v2(paths=True)
            case ["v2", "protobuf"]:
                return encoded(orjson.loads(self._v2(paths=False)))
            case ["v3"]:
                return self._index()
            case ["v3", "api", version]:
                return self._v3("", version)
            case ["v3", "apis", group, version]:
                return self._v3(group, version)
            case _:
                return None

    def _index(self) -> bytes:
        paths: Object = {}
        for group, versions in self._registry.groups().items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                mark = hashlib.sha256(f"{path} {self._generation}".encode()).hexdigest()[:32].upper()
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
        return orjson.dumps({"paths": paths})

    def _rows(self, group: str, version: str) -> list[Resource]:
        return [row for row in self._registry if row.group == group and row.version == version]

    def _v3(self, group: str, version: str) -> bytes | None:
        rows = self._rows(group, version)
        if not rows:
            return None
        components = {name: _to_v3(schema) for name, schema in self._components(rows)}
        names = {_kind_of(schema): name for name, schema in components.items() if _kind_of(schema)}
        paths: Object = {}
        for row in rows:
            paths |= _paths(row, names.get((row.group, row.version, row.kind), ""))
        body = {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.35.0"},
            "paths": paths,
            "components": {"schemas": components},
        }
        return orjson.dumps(body).replace(_PACKAGED_REF, _V3_REF)

    def _v2(self, *, paths: bool) -> bytes:
        """The document; the paths are wanted by clients of JSON only, see `openapi_protobuf`."""
        results: Object = {}
        for group, versions in self._registry.groups().items():
            for version in versions:
                rows = self._components(self._rows(group, version))
                results.update((name, _to_v2(schema)) for name, schema in rows)
        document: Object = {"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.35.0"}, "paths": {}}
        if paths:
            for name in _OPTIONS:
                results.update((name, _to_v2(schema)) for name, schema in self._referred([name]))
            names = {kind: name for name, schema in results.items() if (kind := _kind_of(schema))}
            for row in self._registry:
                document["paths"] |= operations.paths(row, names)
            document["parameters"] = operations.parameters()
        return orjson.dumps({**document, "definitions": results}).replace(_PACKAGED_REF, _V2_REF)

    def _components(self, rows: list[Resource]) -> Iterator[tuple[str, Object]]:
        """The schemas of these kinds and their lists, and all schemas that they refer to."""
        kinds = {
            (row.group, row.version, kind)
            for row in rows
            if row.custom is None
            for kind in (row.kind, f"{row.kind}List")
        }
        todo = [name for name, schema in builtin().definitions.items() if _kind_of(schema) in kinds]
        for row in rows:
            if row.custom is not None:
                name, schema = _custom(row)
                yield name, schema
                yield f"{name}List", _custom_list(row, name)
                todo += [_META, _LIST_META]
        yield from self._referred(todo)

    @staticmethod
    def _referred(todo: list[str]) -> Iterator[tuple[str, Object]]:
        """These definitions and all that they refer to."""
        known = builtin().definitions
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name in seen or name not in known:
                continue
            seen.add(name)
            schema = known[name]
            yield name, with_enums(name, schema)
            todo += _references(schema)


def _kind_of(schema: Object) -> tuple[str, str, str] | None:
    rows = schema.get(_GVK) or []
    if len(rows) != 1:
        return None
    return rows[0]["group"], rows[0]["version"], rows[0]["kind"]


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield reference.rpartition("/")[2]
        for sub in schema.values():
            yield from _references(sub)
    elif isinstance(schema, list):
        for sub in schema:
            yield from _references(sub)


def _to_v3(schema: Any) -> Any:
    """The schema in OpenAPI v3 as kube-apiserver writes it: a `$ref` with siblings becomes an `allOf`."""
    if isinstance(schema, list):
        return [_to_v3(sub) for sub in schema]
    if not isinstance(schema, dict):
        return schema
    by_key = {key: _to_v3(value) for key, value in _plain(schema).items()}
    if isinstance(by_key.get("$ref"), str) and len(by_key) > 1:
        by_key = {"allOf": [{"$ref": by_key.pop("$ref")}], **by_key}
    return by_key


def _to_v2(schema: Any) -> Any:
    """The schema in OpenAPI v2, which has no `oneOf`: string or number becomes string."""
    if isinstance(schema, list):
        return [_to_v2(sub) for sub in schema]
    if not isinstance(schema, dict):
        return schema
    values = _plain(schema)
    if values.get(_PRESERVE) is True:
        # kubectl would refuse fields beside the properties; `apiextensions-apiserver/pkg/controller/openapi/v2`
        values = {key: value for key, value in values.items() if key not in {"properties", "items", "type"}}
        if _GVK in schema:
            values["type"] = "object"
    if isinstance(values.get("oneOf"), list) and "properties" not in values:
        kept = {key: value for key, value in values.items() if key != "oneOf"}
        values = {**kept, "type": "string"}
    parts = values.get("allOf")
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict) and "$ref" in parts[0]:
        values = {**{key: value for key, value in values.items() if key != "allOf"}, **parts[0]}
    return {key: _to_v2(value) for key, value in values.items()}


def _plain(schema: Object) -> Object:
    """The schema without what the packaged definitions add for JSON schema validators: null types, fixed kinds."""
    kind = schema.get("type")
    if isinstance(kind, list):
        schema = {**schema, "type": next((name for name in kind if name != "null"), "object")}
    properties = schema.get("properties")
    if _GVK in schema and isinstance(properties, dict):
        named = {
            name: {key: value for key, value in properties[name].items() if key != "enum"}
            for name in ("apiVersion", "kind")
            if isinstance(properties.get(name), dict)
        }
        schema = {**schema, "properties": {**properties, **named}}
    alternatives = schema.get("oneOf")
    if isinstance(alternatives, list) and {"type": ["integer", "null"]} in alternatives:
        schema = {**schema, "format": "int-or-string"}
    return schema


def _custom(row: Resource) -> tuple[str, Object]:
    assert row.custom is not None
    schema = dict((row.custom.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"})
    schema["properties"] = {
        **(schema.get("properties") or {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"allOf": [{"$ref": f"#/$defs/{_META}"}], "description": "Standard object's metadata."},
    }
    schema[_GVK] = [{"group": row.group, "version": row.version, "kind": row.kind}]
    reverse = ".".join(reversed(row.group.split(".")))
    return f"{reverse}.{row.version}.{row.kind}", schema


def _custom_list(row: Resource, name: str) -> Object:
    """The schema of a list of custom resources; `apiextensions-apiserver/pkg/controller/openapi/builder`."""
    items = {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}
    return {
        "description": f"{row.kind}List is a list of {row.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {**items, "description": f"List of {row.plural}. More info: {_CONVENTIONS}"},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"#/$defs/{_LIST_META}", "description": "Standard list metadata."},
        },
        _GVK: [{"group": row.group, "version": row.version, "kind": f"{row.kind}List"}],
    }


def _paths(row: Resource, schema: str) -> Object:
    root = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    base = f"{root}/namespaces/{{namespace}}/{row.plural}" if row.namespaced else f"{root}/{row.plural}"
    kind = {"group": row.group, "version": row.version, "kind": row.kind}
    content = {"application/json": {"schema": {"$ref": f"#/$defs/{schema}"}}} if schema else {}

    def operation(verb: str, action: str) -> Object:
        results: Object = {
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": action,
            _GVK: kind,
        }
        if verb in {"post", "put", "patch"}:
            results["parameters"] = [*_WRITE_PARAMETERS, *([_FORCE] if verb == "patch" else [])]
        return results

    paths: Object = {base: {"post": operation("post", "post")}}
    if "get" in row.verbs:
        paths[base]["get"] = operation("get", "list")
        paths[f"{base}/{{name}}"] = {verb: operation(verb, verb) for verb in _VERBS}
    return paths
