"""Questions about who is who and who may do what: asked by creating a review, answered at once, never stored."""

from typing import Any

from harness.apiserver import errors
from harness.apiserver.access.identity import Identity
from harness.apiserver.access.rbac import MASTERS, Access, Act
from harness.apiserver.access.tokens import Tokens
from harness.apiserver.storage.store import Object

_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]


def review(kind: str, body: Object, identity: Identity, access: Access, tokens: Tokens) -> Object:
    """The review with its status.

    Raises:
        ApiStatusError: this kind of review is not answered.
    """
    spec: dict[str, Any] = body.get("spec") or {}
    match kind:
        case "SelfSubjectReview":
            status: Object = {"userInfo": _user(identity)}
        case "SelfSubjectAccessReview":
            status = _verdict(identity, spec, access)
        case "SubjectAccessReview" | "LocalSubjectAccessReview":
            asked = Identity(spec.get("user") or "", tuple(spec.get("groups") or ()))
            status = _verdict(asked, spec, access)
        case "SelfSubjectRulesReview":
            status = _rules(identity, spec.get("namespace") or "", access)
        case "TokenReview":
            found = tokens.identify(str(spec.get("token") or ""))
            status = {"authenticated": False} if found is None else {"authenticated": True, "user": _user(found)}
        case _:
            raise errors.method_not_allowed()
    return {**body, "status": status}


def _user(identity: Identity) -> Object:
    return {"username": identity.name, "groups": list(identity.groups)}


def _verdict(identity: Identity, spec: dict[str, Any], access: Access) -> Object:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None:
        act = Act(
            verb=resource.get("verb") or "",
            group=resource.get("group") or "",
            resource=resource.get("resource") or "",
            subresource=resource.get("subresource") or "",
            namespace=resource.get("namespace") or "",
            name=resource.get("name") or "",
        )
    elif path is not None:
        act = Act(verb=path.get("verb") or "", path=path.get("path") or "/")
    else:
        raise errors.bad_request("spec: expected resourceAttributes or nonResourceAttributes, found neither")
    return {"allowed": access.allows(identity, act)}


def _rules(identity: Identity, namespace: str, access: Access) -> Object:
    rules = _EVERYTHING if MASTERS in identity.groups else list(access.rules(identity, namespace))
    return {
        "resourceRules": [dict(one) for one in rules if one.get("resources")],
        "nonResourceRules": [dict(one) for one in rules if one.get("nonResourceURLs")],
        "incomplete": False,
    }
