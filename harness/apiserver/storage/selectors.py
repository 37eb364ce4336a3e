"""Parses label and field selectors of query parameters into predicates on objects."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from seatrial.harness.apiserver.errors import ApiStatusError, bad_request

Object = dict[str, Any]
Test = Callable[[Object], bool]

_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EXISTS = re.compile(rf"\s*(?P<no>!?)\s*(?P<key>{_KEY})\s*", re.ASCII)
_EQUALS = re.compile(rf"\s*(?P<key>{_KEY})\s*(?P<op>==|!=|=|>|<)\s*(?P<value>{_VALUE})\s*", re.ASCII)
_SET = re.compile(rf"\s*(?P<key>{_KEY})\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*", re.ASCII)

POD_FIELDS = (
    "spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "spec.serviceAccountName", "spec.hostNetwork",
    "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
)  # fmt: skip
EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
    "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
    "reportingComponent", "reportingController", "source", "type",
)  # fmt: skip
FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): POD_FIELDS,
    ("", "events"): EVENT_FIELDS,
    ("", "nodes"): ("spec.unschedulable",),
    ("", "secrets"): ("type",),
    ("", "namespaces"): ("status.phase",),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("batch", "jobs"): ("status.successful",),
    ("certificates.k8s.io", "certificatesigningrequests"): ("spec.signerName",),
}
_ALL_KINDS = ("metadata.name", "metadata.namespace")


@lru_cache(maxsize=1024)
def label_test(text: str) -> Test | None:
    """The predicate of a label selector; None if it selects everything.

    Raises:
        ApiStatusError: 400, it cannot be parsed.
    """
    if not text.strip():
        return None
    parts = [_label_part(part, text) for part in _split(text)]
    if len(parts) == 1:
        single = parts[0]
        return lambda obj: single(obj["metadata"].get("labels") or {})
    return lambda obj: _all(parts, obj["metadata"].get("labels") or {})


def _all(tests: list[Callable[[dict[str, str]], bool]], labels: dict[str, str]) -> bool:
    return all(test(labels) for test in tests)


def _split(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    return re.split(r",(?![^(]*\))", text)


def _label_part(part: str, whole: str) -> Callable[[dict[str, str]], bool]:
    if not part.strip():
        raise bad_request("found ',', expected: !, identifier, or 'end of string'")
    if match := _SET.fullmatch(part):
        key = match["key"]
        values = frozenset(value.strip() for value in match["values"].split(","))
        if match["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUALS.fullmatch(part):
        key, value = match["key"], match["value"]
        if match["op"] in {"=", "=="}:
            return lambda labels: labels.get(key) == value
        if match["op"] == "!=":
            return lambda labels: labels.get(key) != value
        if not value.lstrip("-").isdigit():
            raise _bad(whole, part, f"for 'Gt', 'Lt' operators, the value must be an integer, found {value!r}")
        bound, above = int(value), match["op"] == ">"
        return lambda labels: _compared(labels.get(key), bound, above=above)
    if match := _EXISTS.fullmatch(part):
        key = match["key"]
        if match["no"]:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise _bad(whole, part, "expected KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (A,B) or KEY notin (A,B)")


def _compared(value: str | None, bound: int, *, above: bool) -> bool:
    if value is None or not value.lstrip("-").isdigit():
        return False
    return int(value) > bound if above else int(value) < bound


def _bad(whole: str, part: str, why: str) -> ApiStatusError:
    return bad_request(f'unable to parse requirement: "{whole}": found "{part.strip()}": {why}')


@lru_cache(maxsize=1024)
def field_test(text: str, key: tuple[str, str], extra: tuple[str, ...] = ()) -> Test | None:
    """The predicate of a field selector on objects of collection `key`; None if it selects everything.

    `extra` are selectable fields of a custom resource.

    Raises:
        ApiStatusError: 400, it cannot be parsed, or the field is not selectable.
    """
    tests = []
    for part in re.split(r"(?<!\\),", text):
        if not part.strip():
            continue
        match = re.fullmatch(r"\s*([^=!]+?)\s*(==|!=|=)\s*(.*?)\s*", part)
        if match is None:
            raise bad_request(f"invalid field selector: {part!r}; can't understand it: expected FIELD=VALUE")
        name, operator, value = match.groups()
        value = _unescaped(value)
        if name not in _ALL_KINDS and name not in FIELDS.get(key, ()) and name not in extra:
            raise bad_request(_unselectable(name, key))
        tests.append(_field_part(tuple(name.split(".")), value, equal=operator != "!="))
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _unescaped(value: str) -> str:
    """A value in which a backslash precedes commas, equals signs and backslashes.

    Raises:
        ApiStatusError: 400, a backslash precedes another character.
    """
    wrong = re.search(r"\\[^\\,=]|\\$", re.sub(r"\\[\\,=]", "", value))
    if wrong is not None:
        raise bad_request(f"invalid field selector: invalid escape sequence: {wrong[0]}")
    return re.sub(r"\\([\\,=])", r"\1", value)


def _unselectable(name: str, key: tuple[str, str]) -> str:
    """Upstream's words: kinds that select by metadata only have the defaults of `apimachinery/pkg/runtime`."""
    custom = "." in key[0] and not key[0].endswith(".k8s.io")
    if custom or key in FIELDS:
        return f"field label not supported: {name}"
    return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _field_part(path: tuple[str, ...], value: str, *, equal: bool) -> Test:
    if path == ("reportingController",):
        path = ("reportingComponent",)
    if path == ("source",):
        return lambda obj: (_source(obj) == value) is equal
    if len(path) != 2:
        return lambda obj: (_at(obj, path) == value) is equal
    part, name = path

    def test(obj: Object) -> bool:
        inner = obj.get(part)
        found = inner.get(name) if type(inner) is dict else None
        if type(found) is not str:
            found = _at(obj, path)
        return (found == value) is equal

    return test


def _source(event: Object) -> str:
    source = (event.get("source") or {}).get("component", "")
    return source or event.get("reportingComponent", "")


def _at(obj: Any, path: tuple[str, ...]) -> str:
    for name in path:
        if not isinstance(obj, dict):
            return ""
        obj = obj.get(name)
    if obj is None:
        return "false" if path[-1] in {"unschedulable", "hostNetwork"} else ""
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return str(obj)
