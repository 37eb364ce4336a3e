"""Checks that an object conforms to the types of its kind, as Go's JSON decoder does in kube-apiserver.

Defaults, admission and validation rely on this check and do not test types. It runs once for each write and compares
the fields of the object with the types in the OpenAPI documents: a wrong type is an error with Go's message, an unknown
field is dropped and reported, null means that the field is not set. It visits only fields that are present; a plain pod
takes about 10 µs.
"""

# ruff: noqa: ARG002 all shapes have the same signature
import binascii
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.quantities import QuantityError, exact
from seatrial.harness.apiserver.schemas.schema_nodes import JsonObject, builtin
from seatrial.harness.apiserver.times import TimeError, canonical, canonical_micro

Where = tuple[Any, str] | None  # path of a field: (path of its parent, name or [index])

_REF = "#/$defs/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_NUMBER_AND_SUFFIX = re.compile(r"[+-]?\d*(?:\.\d*)?[eEinumkKMGTP]*[+-]?\d*", re.ASCII)
_NO_QUANTITY = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_MICRO_TIME = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime"
_TYPE_NAMES: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    type(None): "null",
}
_LIMITS = {"int32": 2**31, "int64": 2**63}


class TypeMismatch(Exception):
    """A value has not the type of its field. The path is filled in while the exception propagates."""

    def __init__(self, text: str, go_type: str = "") -> None:
        self.text, self.go_type = text, go_type  # with go_type the message ends in field and type
        self.struct = ""
        self.path: list[str] = []
        super().__init__(text)

    def message(self) -> str:
        """The message of Go's decoder, whose paths have no indices and no map keys."""
        if not self.go_type:
            return self.text
        if not self.path:
            return f"{self.text} into Go value of type {self.go_type}"
        return f"{self.text} into Go struct field {self.struct}.{'.'.join(self.path)} of type {self.go_type}"


class Shape:
    """The type of one field."""

    __slots__ = ("go_type", "plain")

    def __init__(self, go_type: str, plain: type | None = None) -> None:
        self.go_type = go_type
        self.plain = plain  # values of exactly this type conform

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        """The conforming value; the same object if nothing changed. Appends paths of unknown fields to `unknown`.

        Raises:
            TypeMismatch: the value has another type.
        """
        if self.plain is not None and type(value) is not self.plain:
            raise self.refuse(value)
        return value

    def empty(self) -> Any:
        """The zero value, which replaces null in lists and maps."""
        return "" if self.plain is str else False if self.plain is bool else 0

    def refuse(self, value: Any) -> TypeMismatch:
        word = _TYPE_NAMES.get(type(value), "value")
        if word == "number" and self.go_type in _LIMITS:
            word = f"number {value}"
        return TypeMismatch(f"json: cannot unmarshal {word}", self.go_type)


class _Anything(Shape):
    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        return value

    def empty(self) -> Any:
        return None


class _FreeObject(_Anything):
    """An object without a schema for its fields."""

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
        if type(value) is str:
            value = value.strip(" ")
        elif type(value) is not int and type(value) is not float:
            raise TypeMismatch(_NO_QUANTITY)
        try:
            exact(value)
        except QuantityError as error:
            if error.why:  # a limit of ours
                raise TypeMismatch(str(error)) from error
            known = _NUMBER_AND_SUFFIX.fullmatch(str(value))
            raise TypeMismatch("unable to parse quantity's suffix" if known and value else _NO_QUANTITY) from error
        return value

    def empty(self) -> Any:
        return "0"


class _Time(Shape):
    __slots__ = ("_stored",)

    def __init__(self, stored: Callable[[str], str | None]) -> None:
        super().__init__("string")
        self._stored = stored

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not str:
            raise self.refuse(value)
        try:
            stored = self._stored(value)
        except TimeError as error:
            raise TypeMismatch(str(error)) from error
        return value if stored == value else stored

    def empty(self) -> Any:
        return None


class _Bytes(Shape):
    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not str:
            raise self.refuse(value)
        try:
            binascii.a2b_base64(value.replace("\n", "").replace("\r", ""), strict_mode=True)
        except ValueError as error:
            raise TypeMismatch(f"illegal base64 data: {error}") from error
        return value

    def empty(self) -> Any:
        return ""


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
    """An object with named fields."""

    __slots__ = ("_build", "_fields", "_name")

    def __init__(self, go_type: str, build: Callable[[], dict[str, Shape]]) -> None:
        super().__init__(go_type)
        self._name = go_type.rpartition(".")[2]
        self._build: Callable[[], dict[str, Shape]] | None = build  # built on first use, since types can be recursive
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
                    continue  # upstream encodes unset times as null, and clients send them back
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
        except TypeMismatch as error:
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
    """The object without unknown fields, and the paths of these fields.

    `body` is not changed; unchanged parts are shared with the result. For a custom kind only apiVersion, kind and
    metadata are checked; the schema of its CRD is checked in `custom_schemas`. `trusted` is an object that conforms:
    fields that are identical in both are not checked again.

    Raises:
        ApiStatusError: 400, a field has the wrong type.
    """
    group, _, version = api_version.rpartition("/")
    shape = _custom_root(kind) if custom else shape_of(group, version, kind)
    if shape is None:
        return body, []
    unknown: list[str] = []
    mark = b""
    if type(body) is dict:
        known = {} if trusted is None else {name: field for name, field in body.items() if field is trusted.get(name)}
        if kind == "Pod" and not custom and "spec" not in known and type(body.get("spec")) is dict:
            mark = orjson.dumps(body["spec"])
            if mark in _good_specs:
                known["spec"], mark = body["spec"], b""
        if known:
            rest = {name: field for name, field in body.items() if name not in known}
            conformed = _conformed(shape, rest, api_version, kind, unknown)
            return (body if conformed is rest else {**conformed, **known}), unknown
    conformed = _conformed(shape, body, api_version, kind, unknown)
    if mark and not unknown and conformed["spec"] is body["spec"]:
        if len(_good_specs) >= _GOOD_SPECS:
            _good_specs.clear()
        _good_specs.add(mark)
    return conformed, unknown


_GOOD_SPECS = 2048
_good_specs: set[bytes] = set()  # JSON of conforming pod specs: replicas of a workload have the same one


def _conformed(shape: Shape, body: Any, api_version: str, kind: str, unknown: list[str]) -> Any:
    try:
        return shape.conform(body, None, unknown)
    except TypeMismatch as error:
        version = api_version.rpartition("/")[2]
        raise errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: {error.message()}'
        ) from error


@functools.cache
def shape_of(group: str, version: str, kind: str) -> Shape | None:
    """The shape of a built-in kind; None if there is no such kind."""
    amounts = {"group": group, "version": version, "kind": kind}
    for name, raw in builtin().definitions.items():
        if amounts in raw.get("x-kubernetes-group-version-kind", ()):
            return _named(name)
    return None


class _CustomRoot(Struct):
    """Checks apiVersion, kind and metadata only."""

    __slots__ = ()

    def conform(self, value: Any, where: Where, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise self.refuse(value)
        common = {name: value[name] for name in ("apiVersion", "kind", "metadata") if name in value}
        conformed = super().conform(common, where, unknown)
        if conformed is common:
            return value
        return {**{name: field for name, field in value.items() if name not in common}, **conformed}


@functools.lru_cache(maxsize=1024)
def _custom_root(kind: str) -> Shape:
    text = Shape("string", str)
    return _CustomRoot(f"unstructured.{kind}", lambda: {"apiVersion": text, "kind": text, "metadata": _named(_META)})


@functools.cache
def _named(name: str) -> Shape:
    """The shape of a definition of the OpenAPI documents."""
    go_type = ".".join(name.split(".")[-2:])
    if name == _QUANTITY:
        return _Quantity("resource.Quantity")
    if name == _INT_OR_STRING:
        return _IntOrString("int32")
    if name == _MICRO_TIME:
        return _Time(canonical_micro)
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
    kind = next((name for name in kinds if name != "null"), "") if isinstance(kinds, list) else kinds or ""
    form = raw.get("format", "")
    match kind:
        case "string" if form == "byte":
            return _Bytes(go_type or "[]uint8")
        case "string" if form == "date-time":
            return _Time(canonical)
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
    """A path as text: `spec.containers[0].foo`."""
    parts: list[str] = []
    while where is not None:
        where, name = where
        parts.append(name)
    return "".join(part if part.startswith("[") else f".{part}" for part in reversed(parts)).lstrip(".")


def report_unknown_fields(kind: str, version: str, paths: Sequence[str], strictness: str, warnings: list[str]) -> None:
    """Report unknown fields according to `fieldValidation`: ignore, add to `warnings`, or raise.

    Raises:
        ApiStatusError: 400, `strictness` is Strict.
    """
    report_problems(kind, version, unknown_fields(paths), strictness, warnings)


def unknown_fields(paths: Sequence[str]) -> list[str]:
    """The messages of strict decoding for unknown fields."""
    return [f'unknown field "{path}"' for path in paths]


def report_problems(kind: str, version: str, texts: Sequence[str], strictness: str, warnings: list[str]) -> None:
    """Report what strict decoding finds: ignore, add to `warnings`, or raise, as `report_unknown_fields`."""
    if strictness == "Ignore" or not texts:
        return
    if strictness == "Strict":
        joined = ", ".join(texts)
        raise errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {joined}'
        )
    warnings.extend(texts)
