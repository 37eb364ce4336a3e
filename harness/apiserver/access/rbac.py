"""Role-based access control: evaluates the roles bound to an identity.

Members of the group `system:masters` are allowed everything, without evaluation of roles.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.storage.store import Object, Store
from seatrial.harness.label_selectors import LabelSelector

MASTERS: Final = "system:masters"
_GROUP: Final = "rbac.authorization.k8s.io"
_SUBRESOURCES_ONLY: Final = "*/"
Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Act:
    """The attributes of a request to authorize: of a resource, or of a non-resource URL if `path` is set."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""  # empty: cluster scope
    name: str = ""
    path: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


class Access:
    """Authorizes requests by the roles and bindings of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def allows(self, identity: Identity, act: Act) -> bool:
        """Whether the identity is allowed to do it."""
        if MASTERS in identity.groups:
            return True
        return any(_covers(rule, act) for rule in self.rules(identity, act.namespace))

    def check(self, identity: Identity, act: Act) -> None:
        """Check that the identity is allowed to do it.

        Raises:
            ApiStatusError: 403, it is not.
        """
        if self.allows(identity, act):
            return
        if act.path:
            why = f'forbidden: User "{identity.name}" cannot {act.verb} path "{act.path}"'
            raise errors.ApiStatusError(403, "Forbidden", why)
        where = f'in the namespace "{act.namespace}"' if act.namespace else "at the cluster scope"
        why = (
            f'User "{identity.name}" cannot {act.verb} resource "{act.full_resource}"'
            f' in API group "{act.group}" {where}'
        )
        raise errors.forbidden(act.resource, act.group, act.name, why)

    def rules(self, identity: Identity, namespace: str) -> Iterator[Rule]:
        """The rules that apply to the identity in the namespace; cluster-wide rules if it is empty."""
        for item in self._store.collection((_GROUP, "clusterrolebindings")).each():
            if _binds(item.obj, identity, ""):
                yield from self.rules_of(item.obj["roleRef"], "")
        if namespace:
            for item in self._store.collection((_GROUP, "rolebindings")).each(namespace):
                if _binds(item.obj, identity, namespace):
                    yield from self.rules_of(item.obj["roleRef"], namespace)

    def rules_of(self, reference: Mapping[str, Any], namespace: str) -> Iterator[Rule]:
        """The rules of the role that a binding in `namespace` references; empty if the role does not exist."""
        name = reference.get("name", "")
        if reference.get("kind") == "Role":
            found = self._store.collection((_GROUP, "roles")).get((namespace, name))
        else:
            found = self._store.collection((_GROUP, "clusterroles")).get(("", name))
        if found is None:
            return
        yield from found.obj.get("rules") or ()
        selectors = (found.obj.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        if selectors:
            for item in self._store.collection((_GROUP, "clusterroles")).each():
                labels = item.obj["metadata"].get("labels") or {}
                if any(msgspec.convert(selector, LabelSelector).matches(labels) for selector in selectors):
                    yield from item.obj.get("rules") or ()


def _binds(binding: Object, identity: Identity, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind == "User":
            found = name == identity.name
        elif kind == "Group":
            found = name in identity.groups
        else:
            found = identity.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
        if found:
            return True
    return False


def _covers(rule: Rule, act: Act) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and act.verb not in verbs:
        return False
    if act.path:
        return any(
            url in {"*", act.path} or (url.endswith("*") and act.path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or ()
        )
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    names = rule.get("resourceNames") or ()
    return (
        ("*" in groups or act.group in groups)
        and (
            "*" in resources
            or act.full_resource in resources
            or bool(act.subresource and f"{_SUBRESOURCES_ONLY}{act.subresource}" in resources)
        )
        and (not names or act.name in names)
    )


@cache
def _bootstrap() -> tuple[Object, ...]:
    return tuple(yaml.safe_load_all(Path(__file__).with_name("roles.yaml").read_text()))


def bootstrap_roles() -> list[Object]:
    """The roles and bindings that every cluster starts with (upstream's bootstrap policy)."""
    return [{**obj, "metadata": dict(obj["metadata"])} for obj in _bootstrap()]
