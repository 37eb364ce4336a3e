"""Authentication and authorization reviews: created by clients, answered in the response, never stored."""

from typing import Any

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.access.rbac import MASTERS, Access, Act
from seatrial.harness.apiserver.access.tokens import Tokens
from seatrial.harness.apiserver.field_errors import Causes, details, invalid, message
from seatrial.harness.apiserver.storage.store import Object

_GROUP = "authorization.k8s.io"
_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]


def review(  # noqa: PLR0917
    kind: str, body: Object, identity: Identity, access: Access, tokens: Tokens, namespace: str
) -> Object:
    """The review with its status. `namespace` is that of the path.

    Raises:
        ApiStatusError: this kind of review is not supported, or its spec is incomplete.
    """
    spec: dict[str, Any] = body.get("spec") or {}
    match kind:
        case "SelfSubjectReview":
            status: Object = {"userInfo": identity.user_info}
        case "SelfSubjectAccessReview":
            _check(kind, spec)
            status = _verdict(identity, spec, access)
        case "SubjectAccessReview" | "LocalSubjectAccessReview":
            _check(kind, spec, namespace if kind == "LocalSubjectAccessReview" else None)
            subject = Identity(spec.get("user") or "", tuple(spec.get("groups") or ()))
            status = _verdict(subject, spec, access)
        case "SelfSubjectRulesReview":
            if not spec.get("namespace"):
                raise errors.bad_request("no namespace on request")
            status = _rules(identity, spec.get("namespace") or "", access)
        case "TokenReview":
            status = _token_status(spec, tokens)
        case _:
            raise errors.method_not_allowed()
    return {**body, "metadata": body.get("metadata") or {}, "status": status}


def _token_status(spec: dict[str, Any], tokens: Tokens) -> Object:
    """Follows `pkg/registry/authentication/tokenreview`."""
    token, entry = str(spec.get("token") or ""), list(spec.get("audiences") or ())
    if not token:
        raise errors.bad_request("token is required for TokenReview in authentication")
    identify = tokens.identify(token, entry)
    if identify is None:
        return {"user": {}, "error": "invalid bearer token"}
    audiences = [audience for audience in tokens.audiences(token) if not entry or audience in entry]
    return {"authenticated": True, "user": identify.user_info, "audiences": audiences}


def _check(kind: str, spec: dict[str, Any], namespace: str | None = None) -> None:
    """Follows `pkg/apis/authorization/validation`."""
    causes: Causes = []
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        problem = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.append(invalid("spec", path, problem))
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        causes.append(invalid("spec.user", spec.get("user") or "", "at least one of user or group must be specified"))
    if namespace is not None and resource is not None and resource.get("namespace") != namespace:
        problem = "must match metadata.namespace"
        causes.append(invalid("spec.resourceAttributes.namespace", resource.get("namespace") or "", problem))
    if causes:
        raise errors.invalid(kind, _GROUP, "", message(kind, "", causes, group=_GROUP), details(causes))


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
        raise AssertionError("checked before")
    return {"allowed": access.allows(identity, act)}


def _rules(identity: Identity, namespace: str, access: Access) -> Object:
    rules = _EVERYTHING if MASTERS in identity.groups else list(access.rules(identity, namespace))
    return {
        "resourceRules": [dict(rule) for rule in rules if rule.get("resources")],
        "nonResourceRules": [dict(rule) for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
