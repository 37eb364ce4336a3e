"""Authentication and authorization reviews: created by clients, answered in the response, never stored."""

from typing import Any

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.access.rbac import MASTERS, Access, Act
from seatrial.harness.apiserver.access.tokens import Tokens
from seatrial.harness.apiserver.storage.store import Object

_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]


def review(kind: str, body: Object, identity: Identity, access: Access, tokens: Tokens) -> Object:
    """The review with its status.

    Raises:
        ApiStatusError: this kind of review is not supported, or its spec is incomplete.
    """
    spec: dict[str, Any] = body.get("spec") or {}
    match kind:
        case "SelfSubjectReview":
            status: Object = {"userInfo": identity.user_info}
        case "SelfSubjectAccessReview":
            status = _verdict(identity, spec, access)
        case "SubjectAccessReview" | "LocalSubjectAccessReview":
            subject = Identity(spec.get("user") or "", tuple(spec.get("groups") or ()))
            status = _verdict(subject, spec, access)
        case "SelfSubjectRulesReview":
            status = _rules(identity, spec.get("namespace") or "", access)
        case "TokenReview":
            status = _token_status(spec, tokens)
        case _:
            raise errors.method_not_allowed()
    return {**body, "metadata": body.get("metadata") or {}, "status": status}


def _token_status(spec: dict[str, Any], tokens: Tokens) -> Object:
    """Follows `pkg/registry/authentication/tokenreview`."""
    token, wanted = str(spec.get("token") or ""), list(spec.get("audiences") or ())
    if not token:
        raise errors.bad_request("token is required for TokenReview in authentication")
    found = tokens.identify(token, wanted)
    if found is None:
        return {"user": {}, "error": "invalid bearer token"}
    audiences = [audience for audience in tokens.audiences(token) if not wanted or audience in wanted]
    return {"authenticated": True, "user": found.user_info, "audiences": audiences}


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
        "resourceRules": [dict(rule) for rule in rules if rule.get("resources")],
        "nonResourceRules": [dict(rule) for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
