"""Parses label and field selectors of query parameters into predicates on objects.

A selector may have thousands of requirements. Those on one label or field are combined, so that a test of an object
takes time for the object's labels, or for the fields that can be selected, and not for each requirement.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from seatrial.harness.apiserver.errors import ApiStatusError, bad_request
from seatrial.harness.apiserver.names import label_value, qualified
from seatrial.harness.apiserver.text_cache import cached
from seatrial.scheduler.api.integers import integer

Object = dict[str, Any]
Test = Callable[[Object], bool]

_WORD = re.compile(r"[ \t\r\n]*(==|!=|[=!<>(),]|[^ \t\r\n=!<>(),]+|$)")
_SPECIAL = frozenset({"==", "!=", "=", "!", "<", ">", "(", ")", ",", ""})
_OPERATORS = ("=", "==", "!=", "in", "notin", ">", "<")
_FIELD_TERM = re.compile(r"(?:[^\\,]|\\.|\\$)+", re.DOTALL)
_FIELD_OPERATOR = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
MAX_REQUIREMENTS = 1000  # of a label selector
_ESCAPE = re.compile(r"\\(.?)|[,=]", re.DOTALL)

POD_FIELDS = (
    "spec.nodeName",
    "spec.schedulerName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
)
EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "reportingController",
    "source",
    "type",
)
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
    ("resource.k8s.io", "resourceslices"): ("spec.driver", "spec.nodeName"),
}
_ALL_KINDS = ("metadata.name", "metadata.namespace")


class _ValueRules:
    """What the requirements on one label ask of its value. `absent`: whether objects without the label are selected."""

    __slots__ = ("above", "absent", "among", "below", "not_among", "present")

    def __init__(self) -> None:
        self.present = self.absent = True
        self.among: frozenset[str] | None = None
        self.not_among: set[str] = set()
        self.above: int | None = None
        self.below: int | None = None

    def add(self, operator: str, values: frozenset[str]) -> None:
        """Restrict it by one more requirement."""
        if operator == "!":
            self.present = False
            return
        if operator in {"notin", "!="}:
            self.not_among |= values
            return
        self.absent = False
        if operator in {"in", "=", "=="}:
            self.among = values if self.among is None else self.among & values
        elif operator in {">", "<"}:
            bound = integer(next(iter(values)))
            assert bound is not None
            if operator == ">":
                self.above = bound if self.above is None else max(self.above, bound)
            else:
                self.below = bound if self.below is None else min(self.below, bound)

    def holds(self, value: str) -> bool:
        if not self.present or value in self.not_among or (self.among is not None and value not in self.among):
            return False
        if self.above is None and self.below is None:
            return True
        number = integer(value)
        if number is None:
            return False
        return (self.above is None or number > self.above) and (self.below is None or number < self.below)


@cached()
def label_test(text: str) -> Test | None:
    """The predicate of a label selector; None if it selects everything.

    Raises:
        ApiStatusError: 400, it cannot be parsed.
    """
    by_key: defaultdict[str, _ValueRules] = defaultdict(_ValueRules)
    for number, (key, operator, values) in enumerate(_Parser(text).requirements(), 1):
        if number > MAX_REQUIREMENTS:
            raise bad_request(f"the label selector has more than {MAX_REQUIREMENTS} requirements")
        by_key[key].add(operator, values)
    if not by_key:
        return None
    needed = [key for key, value_rules in by_key.items() if not value_rules.absent]

    def test(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        if len(needed) > len(labels) or not all(key in labels for key in needed):
            return False
        if len(by_key) < len(labels):
            return all(value_rules.holds(labels[key]) for key, value_rules in by_key.items() if key in labels)
        return all(by_key[key].holds(value) for key, value in labels.items() if key in by_key)

    return test


class _Parser:
    """The parser of label selectors. Follows `pkg/labels/selector.go` of apimachinery."""

    def __init__(self, text: str) -> None:
        self._words = [match[1] for match in _WORD.finditer(text)]
        self._at = 0

    def requirements(self) -> Iterator[tuple[str, str, frozenset[str]]]:
        """Key, operator (`!`: absent, empty: present) and values of each requirement."""
        if not self._next():
            return
        while True:
            yield self._requirement(self._next())
            word = self._take()
            if not word:
                return
            if word != ",":
                raise _refused(word, "',' or 'end of string'")
            if self._next() in _SPECIAL - {"!"}:
                raise _refused(self._next(), "identifier after ','")

    def _next(self) -> str:
        return self._words[self._at]

    def _take(self) -> str:
        word = self._words[self._at]
        self._at = min(self._at + 1, len(self._words) - 1)
        return word

    def _requirement(self, word: str) -> tuple[str, str, frozenset[str]]:
        if word in _SPECIAL - {"!"}:
            raise _refused(word, "!, identifier, or 'end of string'")
        absent = self._take() == "!"
        key = self._take() if absent else word
        if key in _SPECIAL:
            raise _refused(key, "identifier")
        for problem in qualified(key):
            raise bad_request(f'unable to parse requirement: key: Invalid value: "{key:.256}": {problem}')
        if absent or self._next() in {"", ","}:
            return key, "!" if absent else "", frozenset()
        operator = self._take()
        if operator not in _OPERATORS:
            raise _refused(operator, ", ".join(_OPERATORS))
        values = self._set() if operator in {"in", "notin"} else frozenset({self._value()})
        for value in values:
            for problem in label_value(value):
                raise bad_request(
                    f'unable to parse requirement: values[0][{key:.256}]: Invalid value: "{value:.256}": {problem}'
                )
            if operator in {">", "<"} and integer(value) is None:
                raise bad_request(
                    f"unable to parse requirement: values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators,"
                    " the value must be an integer"
                )
        return key, operator, values

    def _value(self) -> str:
        if self._next() in {"", ","}:
            return ""
        word = self._take()
        if word in _SPECIAL:
            raise _refused(word, "identifier")
        return word

    def _set(self) -> frozenset[str]:
        if (word := self._take()) != "(":
            raise _refused(word, "'('")
        values = set()
        while True:
            if self._next() in {",", ")"}:  # an empty value
                values.add("")
            elif (word := self._take()) in _SPECIAL:
                raise _refused(word, "',', or identifier")
            else:
                values.add(word)
            if (word := self._take()) == ")":
                return frozenset(values)
            if word != ",":
                raise _refused(word, "',' or ')'")


def _refused(word: str, name: str) -> ApiStatusError:
    return bad_request(f"unable to parse requirement: found '{word:.256}', expected: {name}")


def field_test(text: str, key: tuple[str, str], extra: tuple[str, ...] = ()) -> Test | None:
    """The predicate of a field selector on objects of collection `key`; None if it selects everything.

    `extra` are selectable fields of a custom resource. Follows `pkg/fields/selector.go` of apimachinery.

    Raises:
        ApiStatusError: 400, it cannot be parsed, or the field is not selectable.
    """
    by_field: dict[str, tuple[set[str], set[str]]] = {}  # values that the field has to have, and may not have
    for term in _FIELD_TERM.findall(text):
        match = _FIELD_OPERATOR.fullmatch(term)
        if match is None:
            raise bad_request(f"invalid field selector: {term!r:.256}; can't understand it: expected FIELD=VALUE")
        name, operator, value = match.groups()
        value = _ESCAPE.sub(_unescaped, value)
        if name not in _ALL_KINDS and name not in FIELDS.get(key, ()) and name not in extra:
            raise bad_request(_unselectable(name, key))
        by_field.setdefault(name, (set(), set()))[operator == "!="].add(value)
    if not by_field:
        return None
    tests = [_field_part(tuple(name.split(".")), *values) for name, values in by_field.items()]
    return tests[0] if len(tests) == 1 else lambda obj: all(test(obj) for test in tests)


def _unescaped(match: re.Match[str]) -> str:
    """The character of a value that a backslash precedes.

    Raises:
        ApiStatusError: 400, it needs none, or one that needs it has none.
    """
    if match[1] is None:
        raise bad_request(f"invalid field selector: unescaped character in value: {match[0]}")
    if match[1] not in {"\\", ",", "="}:
        raise bad_request(f"invalid field selector: invalid escape sequence: {match[0]}")
    return match[1]


def _unselectable(name: str, key: tuple[str, str]) -> str:
    """Upstream's words: kinds that select by metadata only have the defaults of `apimachinery/pkg/runtime`."""
    custom = "." in key[0] and not key[0].endswith(".k8s.io")
    if custom or key in FIELDS:
        return f"field label not supported: {name}"
    return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def _field_part(path: tuple[str, ...], targets: set[str], unwanted: set[str]) -> Test:
    if path == ("reportingController",):
        path = ("reportingComponent",)
    read = _source if path == ("source",) else partial(_at, path=path)
    if len(targets) > 1:
        return lambda _: False
    only = next(iter(targets), None)

    def test(obj: Object) -> bool:
        result = read(obj)
        return (only is None or result == only) and result not in unwanted

    if len(path) != 2 or unwanted:
        return test
    part, name = path

    def fast(obj: Object) -> bool:
        inner = obj.get(part)
        entry = inner.get(name) if type(inner) is dict else None
        return (entry if type(entry) is str else read(obj)) == only

    return fast


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
