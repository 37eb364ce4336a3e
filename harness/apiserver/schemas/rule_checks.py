"""Checks the CEL rules of a custom resource definition when it is stored: text, names, fields, and the estimated cost.

Follows `apiextensions-apiserver/pkg/apis/apiextensions/validation`, with its limits and messages.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from seatrial.harness.apiserver.cel.checking import check
from seatrial.harness.apiserver.cel.cost import estimated_cost
from seatrial.harness.apiserver.cel.declarations import MAX_REQUEST, Declared, declared
from seatrial.harness.apiserver.cel.expressions import ExpressionError
from seatrial.harness.apiserver.cel.function_costs import UNLIMITED
from seatrial.harness.apiserver.field_errors import Cause, forbidden, quoted
from seatrial.harness.apiserver.schemas.custom_rules import RULES, Schema, has_rules

MAX_RULE_COST: Final = 10_000_000
MAX_SCHEMA_COST: Final = 100_000_000
_NAMED_RULES: Final = 4  # of those that cost most, in the answer
_HINT: Final = (
    "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are"
    " declared"
)
_CONTRIBUTED: Final = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"


def check_rules(spec: Mapping[str, Any]) -> list[Cause]:
    """The causes for all rules of a CRD that are refused. `spec` is the spec of the CRD."""
    versions = [version for version in spec.get("versions") or () if isinstance(version, Mapping)]
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") or {} for version in versions]
    if schemas and all(schema == schemas[0] for schema in schemas):  # upstream reports a shared schema once
        schemas, places = schemas[:1], ["spec.validation.openAPIV3Schema"]
    else:
        places = [f"spec.versions[{number}].schema.openAPIV3Schema" for number in range(len(schemas))]
    causes: list[Cause] = []
    for schema, place in zip(schemas, places, strict=True):
        if has_rules(schema):
            costs = _Costs(causes)
            _check(_Node(schema, place, root=True), costs)
            costs.check_total(place)
    return causes


@dataclass(slots=True)
class _Costs:
    """The estimated costs of a schema's rules, and the causes found so far."""

    causes: list[Cause]
    rows: list[tuple[int, str]] = field(default_factory=list)

    def observe(self, cost: int, path: str, name: str, occurrences: int = 1) -> None:
        total = min(UNLIMITED, cost * occurrences)
        self.rows.append((total, path))
        if total > MAX_RULE_COST:
            self.causes.append(forbidden(path, _over_budget(f"estimated {name} cost", total, MAX_RULE_COST)))

    def check_total(self, place: str) -> None:
        total = min(UNLIMITED, sum(cost for cost, _ in self.rows))
        if total <= MAX_SCHEMA_COST:
            return
        large = [row for row in self.rows if row[0] >= MAX_SCHEMA_COST // 100]
        for _, path in sorted(large, key=lambda row: -row[0])[:_NAMED_RULES]:
            self.causes.append(forbidden(path, _CONTRIBUTED))
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        self.causes.append(forbidden(place, _over_budget(name, total, MAX_SCHEMA_COST)))


def _over_budget(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{name} exceeds budget by factor of {shown} ({_HINT})"


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of the schema. `occurrences` is how often an object can have it; None if nothing limits it."""

    schema: Schema
    place: str
    occurrences: int | None = 1
    root: bool = False

    def parts(self) -> Iterator["_Node"]:
        within = replace(self, occurrences=self._within(), root=False)
        for name, sub in (self.schema.get("properties") or {}).items():
            yield replace(within, schema=sub, place=f"{self.place}.properties[{name}]")
        for name in ("items", "additionalProperties"):
            if isinstance(self.schema.get(name), Mapping):
                yield replace(within, schema=self.schema[name], place=f"{self.place}.{name}")

    def _within(self) -> int | None:
        """How often an object can have each part of this one."""
        if self.schema.get("type") == "array":
            limit = self.schema.get("maxItems")
        elif self.schema.get("type") == "object" and isinstance(self.schema.get("additionalProperties"), Mapping):
            limit = self.schema.get("maxProperties")
        else:
            limit = 1
        if limit is None or self.occurrences is None:
            return None
        return min(UNLIMITED, self.occurrences * max(0, limit))

    def most(self, kind: Declared) -> int:
        """How often an object can have it, at most: as often as it fits into a request."""
        return self.occurrences if self.occurrences is not None else MAX_REQUEST // (kind.min_bytes + 1)


def _check(node: _Node, costs: _Costs) -> None:
    schema, causes = node.schema, costs.causes
    rules = schema.get(RULES) or ()
    seen = {**schema, "x-kubernetes-embedded-resource": True} if node.root else schema
    kind = declared(schema, root=node.root or bool(schema.get("x-kubernetes-embedded-resource"))) if rules else None
    for number, rule in enumerate(rules):
        path = f"{node.place}.{RULES}[{number}]"
        if not str(rule.get("rule") or "").strip():
            causes.append(Cause(f"{path}.rule", "FieldValueRequired", "Required value: rule is not specified"))
            continue
        for name in ("rule", "messageExpression"):
            if not rule.get(name):
                continue
            try:
                check(str(rule[name]), {"self": seen, "oldSelf": None if rule.get("optionalOldSelf") else seen})
            except ExpressionError as error:
                message = f"Invalid value: {_as_go(rule)}: {error}"
                causes.append(Cause(f"{path}.{name}", "FieldValueInvalid", message))
                continue
            if kind is not None:
                occurrences = node.most(kind) if name == "rule" else 1
                costs.observe(estimated_cost(str(rule[name]), kind), f"{path}.{name}", name, occurrences)
    for part in node.parts():
        _check(part, costs)


def _as_go(rule: Mapping[str, Any]) -> str:
    """The rule as Go prints the struct."""
    texts = ", ".join(
        f"{name[0].upper()}{name[1:]}:{quoted(str(rule.get(name) or ''))}"
        for name in ("rule", "message", "messageExpression")
    )
    rest = f"Reason:(*apiextensions.FieldValueErrorReason)(nil), FieldPath:{quoted(str(rule.get('fieldPath') or ''))}"
    return f"apiextensions.ValidationRule{{{texts}, {rest}, OptionalOldSelf:(*bool)(nil)}}"
