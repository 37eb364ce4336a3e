"""Nobody grants more than he has: what roles and bindings may be written by whom.

Follows `pkg/registry/rbac`: a role may hold what its writer may do, or anything if he may `escalate` it; a role may be
bound by whoever may do all that is in it, or may `bind` it.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from harness.apiserver import errors
from harness.apiserver.access.identity import CONTROLLERS, Identity
from harness.apiserver.access.rbac import MASTERS, Access, Act, Rule
from harness.apiserver.discovery.resources import Resource
from harness.apiserver.storage.store import Object

GROUP: Final = "rbac.authorization.k8s.io"


def check_grant(access: Access, by: Identity, resource: Resource, body: Object, old: Object | None) -> None:
    """
    Raises:
        ApiStatusError: 403, the role or binding gives what its writer has not.
    """
    if MASTERS in by.groups or by is CONTROLLERS:
        return
    metadata = body.get("metadata") or {}
    namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
    if resource.plural in {"roles", "clusterroles"}:
        if old is not None and body.get("rules") == old.get("rules"):
            return
        rules: Iterable[Rule] = body.get("rules") or ()
        if body.get("aggregationRule"):  # whatever will ever be in it
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
    missing = [rule for rule in rules if not all(access.allows(by, act) for act in _acts(rule, namespace))]
    if missing:
        groups = " ".join(f'"{one}"' for one in by.groups)
        why = f'user "{by.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n'
        raise errors.forbidden(resource.plural, resource.group, name, why + "\n".join(_shown(rule) for rule in missing))


def _acts(rule: Rule, namespace: str) -> Iterator[Act]:
    """Everything that a rule lets one do; a star stands for itself."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Act(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for full in rule.get("resources") or ():
                plural, _, subresource = full.partition("/")
                for name in rule.get("resourceNames") or ("",):
                    yield Act(verb, group, plural, subresource, namespace, name)


def _shown(rule: Rule) -> str:
    """As Go prints it."""
    fields = (
        ("APIGroups", "apiGroups"), ("Resources", "resources"), ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"), ("Verbs", "verbs"),
    )  # fmt: skip
    parts = [f"{shown}:{_listed(rule[name])}" for shown, name in fields if rule.get(name)]
    return "{" + ", ".join(parts) + "}"


def _listed(values: Any) -> str:
    return "[" + ", ".join(f'"{one}"' for one in values) + "]"
