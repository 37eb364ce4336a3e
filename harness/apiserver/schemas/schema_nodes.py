"""Schemas of fields from Kubernetes' OpenAPI documents: which fields exist, how lists and maps merge and are owned.

The documents come with the package `kubernetes-validate` (newest release); custom resources have the schema of their
CRD. Nodes are resolved one child at a time and cached, so that each step of a walk is a dictionary look-up. Values
(types, ranges, patterns) are not validated here.
"""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import orjson

JsonObject = dict[str, Any]

_REF = "#/$defs/"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_EMBEDDED: JsonObject = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"$ref": _REF + _OBJECT_META},
}
# Upstream's documents have these as `default`. The packaged ones omit defaults, which list keys need.
_KEY_DEFAULTS = {"protocol": "TCP"}


class SchemaNode:
    """The schema of one field, shared by all objects of the kind.

    `custom` is true for fields that the schema of a CRD describes.
    `raw` is the OpenAPI dictionary; a `$ref` is resolved and merged with its siblings.
    """

    __slots__ = (
        "_children",
        "_definitions",
        "_items",
        "_properties",
        "_values",
        "custom",
        "int_or_string",
        "list_map_keys",
        "list_type",
        "map_type",
        "merge_key",
        "patch_strategy",
        "raw",
        "type",
    )

    def __init__(self, raw: JsonObject, definitions: JsonObject, *, custom: bool) -> None:
        reference = raw.get("$ref")
        if reference is not None:
            raw = {**definitions[reference.removeprefix(_REF)], **raw}
            del raw["$ref"]
            # The metadata of a custom resource is a built-in type with a built-in type's rules.
            custom = False
        self.raw = raw
        self._definitions = definitions
        self.custom = custom
        kind = raw.get("type")
        self.type: str = next((k for k in kind if k != "null"), "") if isinstance(kind, list) else kind or ""
        self.int_or_string = bool(raw.get("x-kubernetes-int-or-string")) or (not self.type and "oneOf" in raw)
        properties = raw.get("properties")
        values = raw.get("additionalProperties")
        if raw.get("x-kubernetes-embedded-resource"):
            properties = {**_EMBEDDED, **(properties or {})}
        self._properties: JsonObject = properties or {}
        # In built-in documents a free-form value is an object without fields, or has no type at all.
        free_form = not custom and not properties and values is None and self.type in {"object", ""}
        if custom and values is True:
            free_form = True
        self._values: JsonObject | None = values if isinstance(values, dict) else None
        self.patch_strategy = frozenset((raw.get("x-kubernetes-patch-strategy") or "").split(",")) - {""}
        self.merge_key: str = raw.get("x-kubernetes-patch-merge-key", "")
        self.list_type: str = raw.get("x-kubernetes-list-type", "atomic")
        self.list_map_keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys", ()))
        self.map_type: str = raw.get("x-kubernetes-map-type", "atomic" if free_form else "granular")
        self._children: dict[str, SchemaNode | None] = {}
        self._items: SchemaNode | None = None

    @property
    def items(self) -> "SchemaNode | None":
        """The schema of a list's items; None if this is not a list."""
        if self._items is None and isinstance(self.raw.get("items"), dict):
            self._items = self._node(self.raw["items"])
        return self._items

    def child(self, name: str) -> "SchemaNode | None":
        """The schema of field or map key `name`; None if there is no such field."""
        try:
            return self._children[name]
        except KeyError:
            pass
        raw = self._properties.get(name)
        if raw is not None:
            node = self._children[name] = self._node(raw)
            return node
        if self._values is None:
            return None  # not cached: the number of unknown names is unbounded
        values = self._children.get("")
        if values is None:
            values = self._children[""] = self._node(self._values)
        return values

    def key_default(self, key: str) -> Any:
        """The default of key field `key` of a list item; None if it has none."""
        items = self.items
        node = items.child(key) if items is not None else None
        default = node.raw.get("default") if node is not None else None
        if default is None and node is not None and not self.custom:
            return _KEY_DEFAULTS.get(key)
        return default

    @property
    def has_fields(self) -> bool:
        """Whether this is an object with named fields and no others."""
        return bool(self._properties) and self._values is None

    def names(self, name: str) -> bool:
        """Whether `name` is a named field of the schema and not a key of a map."""
        return name in self._properties

    def _node(self, raw: JsonObject) -> "SchemaNode":
        return SchemaNode(raw, self._definitions, custom=self.custom)

    def __repr__(self) -> str:
        return f"SchemaNode({self.type or '?'}, {sorted(self._properties)[:8]})"


class Schemas:
    """The built-in types of one Kubernetes release."""

    def __init__(self, definitions: JsonObject, *, version: str = "") -> None:
        self.version = version
        self.definitions = definitions
        self._names: dict[tuple[str, str, str], str] = {}
        for name, raw in definitions.items():
            kinds = raw.get("x-kubernetes-group-version-kind", ())
            for kind in kinds:
                self._names.setdefault((kind["group"], kind["version"], kind["kind"]), name)
        self._roots: dict[tuple[str, str, str], SchemaNode] = {}

    @classmethod
    def load(cls) -> "Schemas":
        """Load the newest release in the installed package `kubernetes-validate`."""
        folder = _newest_release()
        document = orjson.loads((folder / "_definitions.json").read_bytes())
        return cls(document["$defs"], version=folder.name.removeprefix("v").removesuffix("-local"))

    def schema_for(self, group: str, version: str, kind: str) -> SchemaNode | None:
        """The schema of a built-in kind; `group` is empty for the core group. None if there is no such kind."""
        key = (group, version, kind)
        node = self._roots.get(key)
        if node is None:
            name = self._names.get(key)
            if name is None:
                return None
            node = self._roots[key] = SchemaNode(self.definitions[name], self.definitions, custom=False)
        return node

    def field(self, gvk: tuple[str, str, str], *path: str) -> SchemaNode | None:
        """The schema of the field at `path` of a built-in kind; lists are replaced by their items."""
        node = self.schema_for(*gvk)
        for name in path:
            if node is not None and node.items is not None:
                node = node.items
            if node is None:
                return None
            node = node.child(name)
        return node

    def schema_of_crd(self, schema: JsonObject) -> SchemaNode:
        """The schema of a custom resource, from the `openAPIV3Schema` of a version; `metadata` is the built-in type."""
        root = {**schema, "properties": {**schema.get("properties", {}), **_EMBEDDED}}
        root.setdefault("type", "object")
        return SchemaNode(root, self.definitions, custom=True)


@functools.cache
def builtin() -> Schemas:
    """The schemas of the installed release, read once per process (about 15 ms)."""
    return Schemas.load()


def schema_for(group: str, version: str, kind: str) -> SchemaNode | None:
    """`Schemas.schema_for` of the installed release."""
    return builtin().schema_for(group, version, kind)


def schema_of_crd(schema: JsonObject) -> SchemaNode:
    """`Schemas.schema_of_crd` of the installed release."""
    return builtin().schema_of_crd(schema)


def _newest_release() -> Path:
    spec = importlib.util.find_spec("kubernetes_validate")
    places = spec.submodule_search_locations if spec is not None else None
    folders = [
        folder
        for place in places or ()
        for folder in (Path(place) / "kubernetes-json-schema").glob("v*-local")
        if (folder / "_definitions.json").is_file()
    ]
    if not folders:
        raise FileNotFoundError(
            "the OpenAPI definitions of Kubernetes: expected kubernetes-json-schema/vX.Y.Z-local "
            "in the package kubernetes-validate, found none; reinstall kubernetes-validate"
        )
    return max(folders, key=lambda folder: [int(part) for part in folder.name[1:].removesuffix("-local").split(".")])
