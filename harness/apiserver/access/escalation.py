"""Prevention of privilege escalation by writing roles and bindings.

Follows `pkg/registry/rbac`: a user can write a role only with permissions that the user has, or with the verb
`escalate`. A user can bind a role only with all of its permissions, or with the verb `bind`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import CONTROLLERS, Identity
from seatrial.harness.apiserver.access.rbac import MASTERS, Access, Act, Rule
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.storage.store import Object

GROUP: Final = "rbac.authorization.k8s.io"


def check_grant(access: Access, by: Identity, resource: Resource, body: Object, old: Object | None) -> None:
    """Check that the writer holds all permissions that a role or binding grants.

    Raises:
        ApiStatusError: 403, it grants permissions that the writer does not hold; 404, the role does not exist.
    """
    if MASTERS in by.groups or by is CONTROLLERS:
        return
    metadata = body.get("metadata") or {}
    namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
    if resource.plural in {"roles", "clusterroles"}:
        if old is not None and body.get("rules") == old.get("rules"):
            return
        rules: Iterable[Rule] = body.get("rules") or ()
        if body.get("aggregationRule"):  # an aggregated role can gain any rule later
            rules = [*rules, {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        freely = Act("escalate", GROUP, resource.plural, namespace=namespace, name=name)
    else:
        if old is not None and body.get("subjects") == old.get("subjects"):
            return
        role = body.get("roleRef") or {}
        rules = list(access.rules_of(role, namespace))
        plural = "roles" if role.get("kind") == "Role" else "clusterroles"
        freely = Act("bind", GROUP, plural, namespace=namespace, name=role.get("name") or "")
    if access.allows(by, freely):
        return
    if "roleRef" in body and not access.has_role(body["roleRef"], namespace):
        raise errors.not_found(freely.resource, GROUP, freely.name)
    missing = [rule for rule in rules if not all(access.allows(by, act) for act in _acts(rule, namespace))]
    if missing:
        groups = " ".join(f'"{group}"' for group in by.groups)
        why = f'user "{by.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
        raise errors.forbidden(
            resource.plural, resource.group, name, why + "\n".join(_go_format(rule) for rule in missing)
        )


def _acts(rule: Rule, namespace: str) -> Iterator[Act]:
    """The single permissions of a rule; wildcards are kept as `*`."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Act(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for full in rule.get("resources") or ():
                plural, _, subresource = full.partition("/")
                for name in rule.get("resourceNames") or ("",):
                    yield Act(verb, group, plural, subresource, namespace, name)


def _go_format(rule: Rule) -> str:
    """The rule in Go's format."""
    fields = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    )
    parts = [f"{shown}:{_listed(rule[name])}" for shown, name in fields if rule.get(name)]
    return "{" + ", ".join(parts) + "}"


def _listed(values: Any) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"
