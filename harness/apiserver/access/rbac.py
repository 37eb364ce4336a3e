"""Role-based access control: evaluates the roles bound to an identity.

Members of the group `system:masters` are allowed everything, without evaluation of roles.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.label_selectors import LabelSelector
from seatrial.harness.apiserver.storage.store import Item, Object, Store

MASTERS: Final = "system:masters"
_GROUP: Final = "rbac.authorization.k8s.io"
_SUBRESOURCES_ONLY: Final = "*/"
Rule = Mapping[str, Any]
_Bound = dict[tuple[str, str, str], list[Object]]  # (namespace, kind of subject, name) → role references


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
        self._indexes: dict[str, tuple[int, _Bound]] = {}  # kind of binding → revision of its collection, index

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
        subjects = (("User", identity.name), *(("Group", group) for group in identity.groups))
        for place, plural in (("", "clusterrolebindings"), (namespace, "rolebindings")):
            if place or plural == "clusterrolebindings":
                bound = self._bound(plural)
                for kind, name in subjects:
                    for reference in bound.get((place, kind, name), ()):
                        yield from self.rules_of(reference, place)

    def _bound(self, plural: str) -> _Bound:
        """The role references of all bindings of one kind, by subject; computed again when a binding has changed."""
        collection = self._store.collection((_GROUP, plural))
        known = self._indexes.get(plural)
        if known is None or known[0] != collection.changed:
            result: _Bound = {}
            for item in collection.each():
                for subject in item.obj.get("subjects") or ():
                    kind, name = str(subject.get("kind")), str(subject.get("name", ""))
                    if kind == "ServiceAccount":
                        kind, name = "User", f"system:serviceaccount:{subject.get('namespace') or item.key[0]}:{name}"
                    result.setdefault((item.key[0], kind, name), []).append(item.obj["roleRef"])
            known = self._indexes[plural] = (collection.changed, result)
        return known[1]

    def has_role(self, reference: Mapping[str, Any], namespace: str) -> bool:
        """Whether the role that a binding in `namespace` references exists."""
        return self._role(reference, namespace) is not None

    def _role(self, reference: Mapping[str, Any], namespace: str) -> Item | None:
        name = str(reference.get("name", ""))
        if reference.get("kind") == "Role":
            return self._store.collection((_GROUP, "roles")).get((namespace, name))
        return self._store.collection((_GROUP, "clusterroles")).get(("", name))

    def rules_of(self, reference: Mapping[str, Any], namespace: str) -> Iterator[Rule]:
        """The rules of the role that a binding in `namespace` references; empty if the role does not exist."""
        role = self._role(reference, namespace)
        if role is None:
            return
        yield from role.obj.get("rules") or ()
        selectors = (role.obj.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
        if selectors:
            for item in self._store.collection((_GROUP, "clusterroles")).each():
                labels = item.obj["metadata"].get("labels") or {}
                if any(msgspec.convert(selector, LabelSelector).matches(labels) for selector in selectors):
                    yield from item.obj.get("rules") or ()


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
