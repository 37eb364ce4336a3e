"""Questions about who may do what: asked by creating a review, answered at once, never stored."""

from harness.apiserver import errors
from harness.apiserver.identity import Identity
from harness.apiserver.store import Object

_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def review(kind: str, body: Object, identity: Identity) -> Object:
    """The review with its status. Whoever got in is the administrator: there is only one identity yet.

    Raises:
        Refused: this kind of review is not answered.
    """
    if kind == "SelfSubjectReview":
        status: Object = {"userInfo": {"username": identity.name, "groups": list(identity.groups)}}
    elif kind in {"SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview"}:
        status = {"allowed": True, "reason": "the administrator may do everything"}
    elif kind == "SelfSubjectRulesReview":
        status = {
            "resourceRules": [_EVERYTHING],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    else:
        raise errors.method_not_allowed()
    return {**body, "status": status}
