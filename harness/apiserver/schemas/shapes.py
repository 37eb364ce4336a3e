"""Whether what a client sent has the shape of its kind: the decoding step that everything behind it relies on.

Defaults, admission and validation look into objects without asking first whether a list is a list. Here, once for each
write, the fields that a request carries are held against the types in the API's own documents, as Go's JSON decoder
does for kube-apiserver: a wrong type is refused in Go's words, an unknown field is dropped and reported, and a null
means that the field was not given. Only what is there is looked at; a plain pod costs about 10 µs.
"""

# ruff: noqa: ARG002 every shape is asked with the same arguments, needed or not
import binascii
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from harness.apiserver import errors
from harness.apiserver.schemas.schema_nodes import JsonObject, builtin

Where = tuple[Any, str] | None  # the way to a field: (way to its parent, name or [index])

_REF = "#/$defs/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_TIMES = frozenset({"io.k8s.apimachinery.pkg.apis.meta.v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"})
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_WORDS: dict[type, str] = {
    dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number", type(None): "null",
}  # fmt: skip
_LIMITS = {"int32": 2**31, "int64": 2**63}


class Misshapen(Exception):
    """Something has another type than its field; the way to it is filled in on the way up."""

    def __init__(self, said: str, go_type: str = "") -> None:
        self.said, self.go_type = said, go_type  # go_type: the message wants field and type behind it
        self.struct = ""
        self.path: list[str] = []
        super().__init__(said)

    def message(self) -> str:
        """In the words of Go's decoder, which names no indices and no map keys."""
        if not self.go_type:
            return self.said
        if not self.path:
            return f"{self.said} into Go value of type {self.go_type}"
        return f"{self.said} into Go struct field {self.struct}.{'.'.join(self.path)} of type {self.go_type}"


class Shape:
    """The type of one field."""

    __slots__ = ("go_type", "plain")

    def __init__(self, go_type: str, plain: type | None = None) -> None:
        self.go_type = go_type
        self.plain = plain  # a value of exactly this type needs no further look

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        """The value as it should be; the same object where nothing had to change.

        Raises:
            Misshapen: it has another type.
        """
        if self.plain is not None and type(value) is not self.plain:
            raise self.refuse(value)
        return value

    def empty(self) -> Any:
        """What a null in a list or a map stands for."""
        return "" if self.plain is str else False if self.plain is bool else 0

    def refuse(self, value: Any) -> Misshapen:
        word = _WORDS.get(type(value), "value")
        if word == "number" and self.go_type in _LIMITS:
            word = f"number {value}"
        return Misshapen(f"json: cannot unmarshal {word}", self.go_type)


class _Anything(Shape):
    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        return value

    def empty(self) -> Any:
        return None


class _FreeObject(_Anything):
    """An object of which only that is known."""

    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise self.refuse(value)
        return value


class _Integer(Shape):
    __slots__ = ("_limit",)

    def __init__(self, go_type: str) -> None:
        super().__init__(go_type)
        self._limit = _LIMITS[go_type]

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not int or not -self._limit <= value < self._limit:
            raise self.refuse(value)
        return value


class _Number(Shape):
    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not float and type(value) is not int:
            raise self.refuse(value)
        return value


class _IntOrString(Shape):
    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not str and (type(value) is not int or not -(2**31) <= value < 2**31):
            raise self.refuse(value)
        return value


class _Quantity(Shape):
    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is str or type(value) is int or type(value) is float:
            return value
        raise Misshapen(r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")

    def empty(self) -> Any:
        return "0"


class _Time(Shape):
    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not str:
            raise self.refuse(value)
        if value and not _TIME.fullmatch(value):
            raise Misshapen(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}"')
        return value


class _Bytes(Shape):
    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not str:
            raise self.refuse(value)
        try:
            binascii.a2b_base64(value.replace("\n", "").replace("\r", ""), strict_mode=True)
        except ValueError as error:
            raise Misshapen(f"illegal base64 data: {error}") from error
        return value


class _List(Shape):
    __slots__ = ("_item",)

    def __init__(self, item: Shape, go_type: str) -> None:
        super().__init__(go_type)
        self._item = item

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise self.refuse(value)
        item = self._item
        plain = item.plain
        changed: list[Any] | None = None
        for at, old in enumerate(value):
            if type(old) is plain:
                continue
            new = item.empty() if old is None else item.conform(old, (where, f"[{at}]"), unknown)
            if new is not old:
                if changed is None:
                    changed = list(value)
                changed[at] = new
        return value if changed is None else changed

    def empty(self) -> Any:
        return []


class _Map(Shape):
    __slots__ = ("_value",)

    def __init__(self, value: Shape, go_type: str) -> None:
        super().__init__(go_type)
        self._value = value

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise self.refuse(value)
        inner = self._value
        plain = inner.plain
        changed: JsonObject | None = None
        for name, old in value.items():
            if type(old) is plain:
                continue
            new = inner.empty() if old is None else inner.conform(old, (where, name), unknown)
            if new is not old:
                if changed is None:
                    changed = dict(value)
                changed[name] = new
        return value if changed is None else changed

    def empty(self) -> Any:
        return {}


class Struct(Shape):
    """A type with named fields."""

    __slots__ = ("_build", "_fields", "_name")

    def __init__(self, go_type: str, build: Callable[[], dict[str, Shape]]) -> None:
        super().__init__(go_type)
        self._name = go_type.rpartition(".")[2]
        self._build: Callable[[], dict[str, Shape]] | None = build  # types may hold themselves: built when first met
        self._fields: dict[str, Shape] = {}

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise self.refuse(value)
        if self._build is not None:
            self._fields, self._build = self._build(), None
        fields = self._fields
        changed: JsonObject | None = None
        name = ""
        try:
            for name, old in value.items():
                shape = fields.get(name)
                if shape is None:
                    unknown.append(_dotted((where, name)))
                elif type(old) is shape.plain or (old is None and type(shape) is _Time):
                    continue  # upstream prints times that are not set as null, and clients send them back
                elif old is not None:
                    new = shape.conform(old, (where, name), unknown)
                    if new is not old:
                        if changed is None:
                            changed = dict(value)
                        changed[name] = new
                    continue
                if changed is None:
                    changed = dict(value)
                del changed[name]
        except Misshapen as error:
            if error.go_type:
                error.path.insert(0, name)
                error.struct = error.struct or self._name
            raise
        return value if changed is None else changed

    def empty(self) -> Any:
        return {}


def conform(
    api_version: str, kind: str, body: Any, *, custom: bool = False, trusted: JsonObject | None = None
) -> tuple[Any, list[str]]:
    """The object as its kind wants it, and the paths of the fields that the kind does not know, which are left out.

    `body` is not changed; what needs no change is shared with it. Of a custom kind only what all objects have is
    looked at: its own schema has its own words for the rest. `trusted` is an object that went through here before:
    fields that `body` shares with it are not looked at again.

    Raises:
        ApiStatusError: 400, a field has another type.
    """
    group, _, version = api_version.rpartition("/")
    shape = _custom_root(kind) if custom else shape_of(group, version, kind)
    if shape is None:
        return body, []
    unknown: list[str] = []
    mark = b""
    if type(body) is dict:
        known = {} if trusted is None else {name: one for name, one in body.items() if one is trusted.get(name)}
        if kind == "Pod" and not custom and "spec" not in known and type(body.get("spec")) is dict:
            mark = orjson.dumps(body["spec"])
            if mark in _good_specs:
                known["spec"], mark = body["spec"], b""
        if known:
            rest = {name: one for name, one in body.items() if name not in known}
            conformed = _conformed(shape, rest, api_version, kind, unknown)
            return (body if conformed is rest else {**conformed, **known}), unknown
    conformed = _conformed(shape, body, api_version, kind, unknown)
    if mark and not unknown and conformed["spec"] is body["spec"]:
        if len(_good_specs) >= _GOOD_SPECS:
            _good_specs.clear()
        _good_specs.add(mark)
    return conformed, unknown


_GOOD_SPECS = 2048
_good_specs: set[bytes] = set()  # of pods, as JSON: the replicas of a workload send the same one again and again


def _conformed(shape: Shape, body: Any, api_version: str, kind: str, unknown: list[str]) -> Any:
    try:
        return shape.conform(body, None, unknown)
    except Misshapen as error:
        version = api_version.rpartition("/")[2]
        raise errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: {error.message()}'
        ) from error


@functools.cache
def shape_of(group: str, version: str, kind: str) -> Shape | None:
    """The shape of a built-in kind; None if the documents do not have it."""
    wanted = {"group": group, "version": version, "kind": kind}
    for name, raw in builtin().definitions.items():
        if wanted in raw.get("x-kubernetes-group-version-kind", ()):
            return _named(name)
    return None


class _CustomRoot(Struct):
    """Fields beside the common ones are left alone."""

    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise self.refuse(value)
        common = {name: value[name] for name in ("apiVersion", "kind", "metadata") if name in value}
        conformed = super().conform(common, where, unknown)
        if conformed is common:
            return value
        return {**{name: field for name, field in value.items() if name not in common}, **conformed}


@functools.cache
def _custom_root(kind: str) -> Shape:
    text = Shape("string", str)
    return _CustomRoot(f"unstructured.{kind}", lambda: {"apiVersion": text, "kind": text, "metadata": _named(_META)})


@functools.cache
def _named(name: str) -> Shape:
    """The shape of a definition."""
    go_type = ".".join(name.split(".")[-2:])
    if name == _QUANTITY:
        return _Quantity("resource.Quantity")
    if name == _INT_OR_STRING:
        return _IntOrString("int32")
    if name in _TIMES:
        return _Time("string")
    raw = builtin().definitions[name]
    properties = raw.get("properties")
    if properties:
        return Struct(go_type, lambda: {field: _shape(sub) for field, sub in properties.items()})
    if not raw.get("type"):
        return _Anything(go_type)
    return _shape(raw, go_type)


def _shape(raw: JsonObject, go_type: str = "") -> Shape:
    reference = raw.get("$ref")
    if reference is not None:
        return _named(reference.removeprefix(_REF))
    kinds = raw.get("type")
    kind = next((one for one in kinds if one != "null"), "") if isinstance(kinds, list) else kinds or ""
    form = raw.get("format", "")
    match kind:
        case "string" if form == "byte":
            return _Bytes(go_type or "[]uint8")
        case "string" if form == "date-time":
            return _Time(go_type or "string")
        case "string":
            return Shape(go_type or "string", str)
        case "boolean":
            return Shape(go_type or "bool", bool)
        case "integer":
            return _Integer("int32" if form == "int32" else "int64")
        case "number":
            return _Number(go_type or "float64")
        case "array":
            item = _shape(raw.get("items") or {})
            return _List(item, go_type or f"[]{item.go_type}")
        case "object" if isinstance(raw.get("additionalProperties"), dict):
            value = _shape(raw["additionalProperties"])
            return _Map(value, go_type or f"map[string]{value.go_type}")
        case "object":
            return _FreeObject(go_type or "map[string]interface {}")
        case _:
            return _Anything(go_type or "interface {}")


def _dotted(where: Where) -> str:
    """`spec.containers[0].foo`"""
    parts: list[str] = []
    while where is not None:
        where, name = where
        parts.append(name)
    return "".join(part if part.startswith("[") else f".{part}" for part in reversed(parts)).lstrip(".")


def tell_unknown(kind: str, version: str, paths: Sequence[str], strictness: str, warnings: list[str]) -> None:
    """Report fields that were left out, as `fieldValidation` wants it.

    Raises:
        ApiStatusError: 400, they are not to be tolerated.
    """
    if strictness == "Ignore":
        return
    texts = [f'unknown field "{path}"' for path in paths]
    if strictness == "Strict":
        joined = ", ".join(texts)
        raise errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {joined}'
        )
    warnings.extend(texts)
