"""The paths and operations of the OpenAPI v2 document.

Each served resource has the operations of its verbs, with upstream's descriptions and parameters
(`apiserver/pkg/endpoints/installer.go`). Not listed, as the v3 documents do not list them either: subresources, and the
deprecated paths below `/watch`.
"""

from collections.abc import Mapping
from typing import Any, Final

from seatrial.harness.apiserver.discovery.enumerations import recorded
from seatrial.harness.apiserver.discovery.resources import Resource

Object = dict[str, Any]
_GVK: Final = "x-kubernetes-group-version-kind"
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PRODUCES: Final = ["application/json", "application/yaml"]
_PATCHES: Final = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
]
_DESCRIPTIONS: Final = {  # action: description, method name in operation IDs
    "list": ("list or watch objects of kind {}", "list"),
    "post": ("create a {}", "create"),
    "deletecollection": ("delete collection of {}", "deleteCollection"),
    "get": ("read the specified {}", "read"),
    "put": ("replace the specified {}", "replace"),
    "patch": ("partially update the specified {}", "patch"),
    "delete": ("delete a {}", "delete"),
}
_COLLECTION: Final = {"get": ("list", "list"), "post": ("post", "create"), "delete": ("deletecollection",) * 2}
_OBJECT: Final = {
    "get": ("get", "get"),
    "put": ("put", "update"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
}
_NAMESPACE: Final[Object] = {
    "description": "object name and auth scope, such as for teams and projects",
    "in": "path",
    "name": "namespace",
    "required": True,
    "type": "string",
    "uniqueItems": True,
}


def parameters() -> Object:
    """The parameters that operations refer to, by name."""
    return {**recorded()["parameters"], "namespace": _NAMESPACE}


def paths(row: Resource, names: Mapping[tuple[str, str, str], str]) -> Object:
    """The paths of a resource. `names` has the definition of each (group, version, kind)."""
    root = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    base = f"{root}/namespaces/{{namespace}}/{row.plural}" if row.namespaced else f"{root}/{row.plural}"
    scope: list[Object] = [{"$ref": "#/parameters/namespace"}] if row.namespaced else []
    named = {
        "description": f"name of the {row.kind}",
        "in": "path",
        "name": "name",
        "required": True,
        "type": "string",
        "uniqueItems": True,
    }
    by_path: Object = {}
    for path, methods, value in ((base, _COLLECTION, scope), (base + "/{name}", _OBJECT, [named, *scope])):
        served = {
            method: _operation(row, action, names) for method, (action, verb) in methods.items() if verb in row.verbs
        }
        if served:
            by_path[path] = {**served, **({"parameters": value} if value else {})}
    if row.namespaced and "list" in row.verbs:
        by_path[f"{root}/{row.plural}"] = {"get": _operation(row, "list", names, suffix="ForAllNamespaces")}
    return by_path


def _operation(row: Resource, action: str, names: Mapping[tuple[str, str, str], str], suffix: str = "") -> Object:
    description, method = _DESCRIPTIONS[action]
    kind = names.get((row.group, row.version, row.kind))
    listed = names.get((row.group, row.version, f"{row.kind}List"))
    deleted = f"{_META}.Status" if action == "deletecollection" else kind
    body = {"put": kind, "post": kind, "patch": f"{_META}.Patch"}.get(action)
    values: list[Object] = [{"$ref": f"#/parameters/{name}"} for name in recorded()["actions"].get(action, ())]
    if body is not None:
        values.insert(0, {"in": "body", "name": "body", "required": True, "schema": _reference(body)["schema"]})
    elif action in {"delete", "deletecollection"}:
        values.insert(0, {"in": "body", "name": "body", "schema": _reference(f"{_META}.DeleteOptions")["schema"]})
    success = {"description": "OK", **_reference(listed if action == "list" else deleted)}
    created = {"201": {**success, "description": "Created"}} if action in {"post", "put", "patch"} else {}
    group = "".join(part.capitalize() for part in (row.group.removesuffix(".k8s.io") or "core").split("."))
    version = row.version[:1].upper() + row.version[1:]
    scope = "Namespaced" if row.namespaced and not suffix else ""
    return {
        "consumes": _PATCHES if action == "patch" else ["*/*"],
        "description": description.format(row.kind),
        "operationId": f"{method}{group}{version}{scope}{row.kind}{suffix}",
        **({"parameters": values} if values else {}),
        "produces": [*_PRODUCES, "application/json;stream=watch"] if action == "list" else _PRODUCES,
        "responses": {"200": success, **created, "401": {"description": "Unauthorized"}},
        "schemes": ["https"],
        "tags": [f"{group[:1].lower()}{group[1:]}_{row.version}"],
        "x-kubernetes-action": action,
        _GVK: {"group": row.group, "kind": row.kind, "version": row.version},
    }


def _reference(name: str | None) -> Object:
    return {"schema": {"$ref": f"#/$defs/{name}"}} if name else {}
