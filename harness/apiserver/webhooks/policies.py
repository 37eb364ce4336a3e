"""ValidatingAdmissionPolicies and their bindings: admission checks written as CEL expressions.

A policy defines the matched writes and the expressions. A binding activates it and defines whether a failure denies the
write or adds a warning. Follows `apiserver/pkg/admission/plugin/policy/validating`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.attempts import Attempt
from seatrial.harness.apiserver.cel.checking import check
from seatrial.harness.apiserver.cel.expressions import (
    VALUES_A_STEP,
    Budget,
    ExpressionError,
    TooLongError,
    holds,
    too_long,
    value_count,
    value_of,
)
from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.field_errors import Causes, invalid, required
from seatrial.harness.apiserver.label_selectors import LabelSelector
from seatrial.harness.apiserver.long_computations import LongComputations
from seatrial.harness.apiserver.storage.store import Change, Item, Object, Store
from seatrial.harness.apiserver.webhooks.rules import GROUP, Rule, read_rule, selectors_match

POLICIES: Final = (GROUP, "validatingadmissionpolicies")
BINDINGS: Final = (GROUP, "validatingadmissionpolicybindings")
_NAMESPACES: Final = ("", "namespaces")
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
_NAMES: Final = ("object", "oldObject", "request", "params", "namespaceObject", "variables")


class PolicyRequest(Protocol):
    """The attributes of a write that policies use."""

    @property
    def operation(self) -> str: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def subresource(self) -> str: ...
    @property
    def warnings(self) -> list[str]: ...
    @property
    def attempt(self) -> Attempt | None: ...


class _Match:
    """`matchConstraints` of a policy or `matchResources` of a binding; None matches all writes."""

    def __init__(self, values: Mapping[str, Any] | None) -> None:
        values = values or {}
        self._rules = [
            (read_rule(rule), frozenset(rule.get("resourceNames") or ())) for rule in values.get("resourceRules") or ()
        ]
        self._except = [
            (read_rule(rule), frozenset(rule.get("resourceNames") or ()))
            for rule in values.get("excludeResourceRules") or ()
        ]
        self._namespaces = msgspec.convert(values.get("namespaceSelector") or {}, LabelSelector)
        self._objects = msgspec.convert(values.get("objectSelector") or {}, LabelSelector)

    def concerns(self, operation: str, resource: Resource, subresource: str) -> bool:
        return not self._rules or any(rule.matches(operation, resource, subresource) for rule, _ in self._rules)

    def holds(self, write: PolicyRequest, objects: tuple[Object | None, ...], store: Store) -> bool:
        def named(rows: list[tuple[Rule, frozenset[str]]]) -> bool:
            return any(
                rule.matches(write.operation, write.resource, write.subresource) and (not names or write.name in names)
                for rule, names in rows
            )

        if (self._rules and not named(self._rules)) or named(self._except):
            return False
        return selectors_match(self._namespaces, self._objects, write.resource, write.namespace, objects, store)


class _Policy(NamedTuple):
    name: str
    spec: Object
    match: _Match


class _Binding(NamedTuple):
    name: str
    spec: Object
    match: _Match


class Policies:
    """The bound policies of one server."""

    def __init__(self, store: Store, registry: Registry, long: LongComputations) -> None:
        self._store, self._registry, self._long = store, registry, long
        self._bound: list[tuple[_Policy, _Binding]] = []
        self._by_rule: dict[tuple[str, ...], bool] = {}  # of built-in kinds: most writes ask
        for key in (POLICIES, BINDINGS):
            store.collection(key).listen(self._changed)

    @property
    def active(self) -> bool:
        """Whether any policy is bound."""
        return bool(self._bound)

    def _changed(self, _: Change) -> None:
        policies = {}
        for item in self._store.collection(POLICIES).items():
            spec = item.obj.get("spec") or {}
            policies[item.key[1]] = _Policy(item.key[1], spec, _Match(spec.get("matchConstraints")))
        self._bound = []
        self._by_rule.clear()
        for item in self._store.collection(BINDINGS).items():
            spec = item.obj.get("spec") or {}
            policy = policies.get(str(spec.get("policyName")))
            if policy is not None:
                self._bound.append((policy, _Binding(item.key[1], spec, _Match(spec.get("matchResources")))))

    def applies_to(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Whether the rules of a policy match; selectors and conditions are not evaluated."""
        key = (operation, resource.group, resource.version, resource.plural, subresource)
        applies = self._by_rule.get(key)
        if applies is None:
            applies = any(policy.match.concerns(operation, resource, subresource) for policy, _ in self._bound)
            if resource.custom is None:  # versions of custom resources come and go
                self._by_rule[key] = applies
        return applies

    def check(self, write: PolicyRequest, request: Object, body: Object | None, old: Object | None) -> None:
        """Check a write; `request` is the AdmissionReview's request for it.

        Raises:
            ApiStatusError: a policy denies it.
            Pending: the evaluation continues in a thread.
        """
        if write.resource.group == GROUP:
            return
        applicable = [
            (policy, binding, list(self._params(policy, binding, write)) if policy.spec.get("paramKind") else [None])
            for policy, binding in self._bound
            if policy.match.holds(write, (body, old), self._store)
            and binding.match.holds(write, (body, old), self._store)
        ]
        if not applicable:
            return
        namespace = (
            self._store.collection(_NAMESPACES).get(("", write.namespace)) if write.resource.namespaced else None
        )
        shown = namespace.obj if namespace is not None else None

        def compute(*, on_loop: bool) -> list[tuple[_Policy, _Binding, str, str]]:
            budget = Budget(on_loop=on_loop)
            return [
                (policy, binding, problem, reason)
                for policy, binding, params in applicable
                for problem, reason in _problems(policy, binding, params, request, shown, budget)
            ]

        specs = [(policy.spec, binding.spec, params) for policy, binding, params in applicable]
        key = b"policies " + orjson.dumps([specs, shown, _without_identity(request)])
        for policy, binding, problem, reason in self._long.result(key, compute, write.attempt):
            _apply(policy, binding, write, problem, reason)

    def _params(self, policy: _Policy, binding: _Binding, write: PolicyRequest) -> Iterator[Object]:
        kind, ref = policy.spec["paramKind"], binding.spec.get("paramRef") or {}
        resource = self._registry.by_kind(str(kind.get("apiVersion", "")), str(kind.get("kind", "")))
        if resource is None:
            return
        namespace = (ref.get("namespace") or write.namespace) if resource.namespaced else ""
        collection = self._store.collection(resource.key)
        if ref.get("name"):
            items: list[Item | None] = [collection.get((namespace, ref["name"]))]
        else:
            selector = msgspec.convert(ref.get("selector") or {}, LabelSelector)
            items = [
                item
                for item in collection.items(namespace if resource.namespaced else None)
                if selector.matches(item.obj["metadata"].get("labels") or {})
            ]
        yield from (item.obj for item in items if item is not None)


def _without_identity(request: Object) -> Object:
    """The request without what differs between the tries of a create."""
    result = request["object"]
    if request["operation"] != "CREATE" or not isinstance(result, dict):
        return request
    return {**request, "object": {**result, "metadata": {**result["metadata"], "uid": "", "creationTimestamp": ""}}}


def _problems(  # noqa: PLR0917
    policy: _Policy, binding: _Binding, results: list[Any], request: Object, namespace: Object | None, budget: Budget
) -> Iterator[tuple[str, str]]:
    """Messages and reasons of the validations that fail. `results` are the parameters; None if it takes none."""
    spec = policy.spec
    fatal = spec.get("failurePolicy", "Fail") == "Fail"
    objects: Object = {
        "object": request["object"],
        "oldObject": request["oldObject"],
        "request": request,
        "namespaceObject": namespace,
        "variables": {},
    }
    expressions = sum(len(spec.get(part) or ()) for part in ("matchConditions", "variables", "validations"))
    values = value_count([request, namespace]) // VALUES_A_STEP
    try:
        budget.spend(expressions * values)
        if not all(holds(condition["expression"], objects, budget) for condition in spec.get("matchConditions") or ()):
            return
    except TooLongError:
        yield too_long(str((spec.get("validations") or [{}])[0].get("expression"))), "Invalid"
        return
    except ExpressionError as error:
        if fatal:
            yield f"failed to evaluate match conditions: {error}", "Invalid"
        return
    if not results and (binding.spec.get("paramRef") or {}).get("parameterNotFoundAction") != "Allow":
        if fatal:
            why = "no params found for policy binding with `Deny` parameterNotFoundAction"
            yield f"failed to configure binding: {why}", "Invalid"
        return
    for params in results:
        fields = {**objects, "params": params}
        variables: Object = {}
        for variable in spec.get("variables") or ():
            try:
                names = {**fields, "variables": variables}
                variables[variable["name"]] = value_of(variable["expression"], names, budget)
            except ExpressionError:
                continue  # an error is reported by the expression that uses it
        fields["variables"] = variables
        for rule in spec.get("validations") or ():
            try:
                if not holds(rule["expression"], fields, budget):
                    yield _message(rule, fields, budget), rule.get("reason") or "Invalid"
            except ExpressionError as error:
                if fatal:
                    yield f"expression '{rule['expression']}' resulted in error: {error}", "Invalid"


def _message(rule: Mapping[str, Any], values: Mapping[str, Any], budget: Budget) -> str:
    if rule.get("messageExpression"):
        try:
            value = value_of(rule["messageExpression"], values, budget)
        except ExpressionError:
            value = ""
        if isinstance(value, str) and value.strip() and "\n" not in value:
            return value
    return str(rule.get("message") or f"failed expression: {rule['expression']}")


def _apply(policy: _Policy, binding: _Binding, write: PolicyRequest, problem: str, reason: str) -> None:
    actions = binding.spec.get("validationActions") or ()
    who = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
    if "Warn" in actions:
        write.warnings.append(f"Validation failed for {who}: {problem}")
    if "Deny" not in actions:
        return
    resource = write.resource
    error = errors.forbidden(resource.plural, resource.group, write.name, f"{who} denied request: {problem}")
    details = {**error.details, "causes": [{"message": problem}]}
    raise ApiStatusError(_CODES.get(reason, 422), reason, error.message, details=details)


# -- when one is stored ------------------------------------------------------------------------------------------------


def check_policy(obj: Object, causes: Causes) -> None:
    """Check a policy's required fields, and that its expressions compile."""
    spec = obj.get("spec") or {}
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        causes.append(required("spec.validations", "validations or auditAnnotations must contain at least one item"))
    if not (spec.get("matchConstraints") or {}).get("resourceRules"):
        causes.append(required("spec.matchConstraints.resourceRules"))
    names = {name: None for name in _NAMES if name != "params" or spec.get("paramKind")}
    for part in ("matchConditions", "variables", "validations"):
        for number, value in enumerate(spec.get(part) or ()):
            for field in ("expression", "messageExpression"):
                if value.get(field) or field == "expression":
                    check_expression(value.get(field), f"spec.{part}[{number}].{field}", names, causes)


def check_binding(obj: Object, causes: Causes) -> None:
    """Check a binding's required fields."""
    spec = obj.get("spec") or {}
    if not spec.get("policyName"):
        causes.append(required("spec.policyName"))
    actions = spec.get("validationActions") or []
    if not actions:
        causes.append(required("spec.validationActions"))
    if {"Deny", "Warn"} <= set(actions):
        why = "must not contain both Deny and Warn (repeating the same validation failure information in the API"
        causes.append(invalid("spec.validationActions", actions, f"{why} response and headers serves no purpose)"))


def check_expression(expression: Any, path: str, names: Mapping[str, None], causes: Causes) -> None:
    """Check that an expression compiles; one that uses `authorizer`, which is not supported here, is not checked."""
    text = str(expression or "")
    if not text.strip():
        causes.append(required(path))
    elif "authorizer" not in text:
        try:
            check(text, names)
        except ExpressionError as error:
            causes.append(invalid(path, text, str(error)))
