"""Parsed webhook configurations: which webhook matches which write."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.label_selectors import LabelSelector
from seatrial.harness.apiserver.storage.store import Item, Object, Store

GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = (GROUP, "mutatingwebhookconfigurations")
VALIDATING: Final = (GROUP, "validatingwebhookconfigurations")
_NAMESPACES: Final = ("", "namespaces")
_EVERYTHING: Final = LabelSelector()


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `rules`."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[str, ...]
    scope: str

    def matches(self, operation: str, resource: Resource, subresource: str) -> bool:
        """Whether the rule matches this operation on this resource, group, version and scope."""
        if "*" not in self.operations and operation not in self.operations:
            return False
        if "*" not in self.groups and resource.group not in self.groups:
            return False
        if "*" not in self.versions and resource.version not in self.versions:
            return False
        namespaced = resource.namespaced
        if self.scope != "*" and (self.scope == "Namespaced") is not namespaced:
            return False
        return any(_names(pattern, resource.plural, subresource) for pattern in self.resources)


def read_rule(rule: Mapping[str, Any]) -> Rule:
    """One entry of `rules`, or of a policy's `resourceRules`."""
    return Rule(
        frozenset(rule.get("operations") or ()),
        frozenset(rule.get("apiGroups") or ()),
        frozenset(rule.get("apiVersions") or ()),
        tuple(rule.get("resources") or ()),
        rule.get("scope") or "*",
    )


def _names(pattern: str, plural: str, subresource: str) -> bool:
    left, slash, right = pattern.partition("/")
    if left not in {"*", plural}:
        return False
    return right in {"*", subresource} if slash else not subresource


@dataclass(frozen=True, slots=True)
class Webhook:
    """One entry of `webhooks`."""

    configuration: str
    name: str
    rules: tuple[Rule, ...]
    equivalent: bool
    namespaces: LabelSelector
    objects: LabelSelector
    conditions: tuple[tuple[str, str], ...]  # name and expression
    ignore_failure: bool
    seconds: float
    dry_run_safe: bool
    reinvoked: bool
    client: Mapping[str, Any]
    supports_v1: bool  # whether admissionReviewVersions contains v1, the version sent here

    def matching_version(
        self, operation: str, resource: Resource, subresource: str, registry: Registry
    ) -> Resource | None:
        """The version of the resource that the webhook is called with; None if no rule matches."""
        for rule in self.rules:
            if rule.matches(operation, resource, subresource):
                return resource
        if self.equivalent and resource.custom is not None:
            for other in registry:
                if other.key == resource.key and other.version != resource.version:
                    for rule in self.rules:
                        if rule.matches(operation, other, subresource):
                            return other
        return None

    def selects(self, resource: Resource, namespace: str, objects: tuple[Object | None, ...], store: Store) -> bool:
        """Whether namespaceSelector and objectSelector match; `objects` are the new and the old object."""
        return selectors_match(self.namespaces, self.objects, resource, namespace, objects, store)


def selectors_match(  # noqa: PLR0917
    namespaces: LabelSelector,
    labelled: LabelSelector,
    resource: Resource,
    namespace: str,
    objects: tuple[Object | None, ...],
    store: Store,
) -> bool:
    """Whether the selector `labelled` matches one of the objects, and `namespaces` matches its namespace."""
    if labelled != _EVERYTHING and not any(labelled.matches(_labels(obj)) for obj in objects if obj):
        return False
    if namespaces == _EVERYTHING:
        return True
    if resource.key == _NAMESPACES:
        return namespaces.matches(_labels(next(obj for obj in objects if obj)))
    if not resource.namespaced:
        return True
    item = store.collection(_NAMESPACES).get(("", namespace))
    return item is not None and namespaces.matches(_labels(item.obj))


def _labels(obj: Object) -> dict[str, str]:
    metadata = obj.get("metadata")  # a client's object can lack it until it is completed
    return (metadata.get("labels") if isinstance(metadata, dict) else None) or {}


def read_webhooks(configuration: Item) -> tuple[Webhook, ...]:
    """The webhooks of one stored configuration, in its order."""
    return tuple(_webhook(configuration.key[1], webhook) for webhook in configuration.obj.get("webhooks") or ())


def _webhook(configuration: str, webhook: Object) -> Webhook:
    return Webhook(
        configuration=configuration,
        name=webhook["name"],
        rules=tuple(read_rule(rule) for rule in webhook.get("rules") or ()),
        equivalent=webhook.get("matchPolicy", "Equivalent") == "Equivalent",
        namespaces=msgspec.convert(webhook.get("namespaceSelector") or {}, LabelSelector),
        objects=msgspec.convert(webhook.get("objectSelector") or {}, LabelSelector),
        conditions=tuple(
            (condition["name"], condition["expression"]) for condition in webhook.get("matchConditions") or ()
        ),
        ignore_failure=webhook.get("failurePolicy") == "Ignore",
        seconds=float(webhook.get("timeoutSeconds") or 10),
        dry_run_safe=webhook.get("sideEffects") in {"None", "NoneOnDryRun"},
        reinvoked=webhook.get("reinvocationPolicy") == "IfNeeded",
        client=webhook.get("clientConfig") or {},
        supports_v1="v1" in (webhook.get("admissionReviewVersions") or ()),
    )
