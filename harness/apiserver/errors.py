"""Errors that a client receives as a `Status` object, with kube-apiserver's codes, reasons and messages."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

_RESPONSES = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"


class ApiStatusError(Exception):
    """A failed request; the transport sends `status()` as the response."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.code, self.reason, self.message = code, reason, message
        self.details, self.headers = dict(details or {}), dict(headers or {})
        super().__init__(message)

    def status(self) -> dict[str, Any]:
        """The Status object."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body

    def encoded(self) -> bytes:
        """The Status object as JSON with a final line feed."""
        return orjson.dumps(self.status()) + b"\n"


def qualified(plural: str, group: str) -> str:
    """The name of a resource in messages: `pods`, `deployments.apps`."""
    return f"{plural}.{group}" if group else plural


def _details(plural: str, group: str, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if plural:
        details["kind"] = plural
    return {**details, **more}


def not_found(plural: str, group: str, name: str) -> ApiStatusError:
    """404 NotFound for an object that does not exist."""
    message = f'{qualified(plural, group)} "{name}" not found'
    return ApiStatusError(404, "NotFound", message, details=_details(plural, group, name))


def unknown_path() -> ApiStatusError:
    """404 NotFound for a path that no resource has."""
    return ApiStatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(plural: str, group: str, name: str) -> ApiStatusError:
    """409 AlreadyExists for a name that is taken."""
    message = f'{qualified(plural, group)} "{name}" already exists'
    return ApiStatusError(409, "AlreadyExists", message, details=_details(plural, group, name))


def conflict(plural: str, group: str, name: str, why: str) -> ApiStatusError:
    """409 Conflict; `why` is the second half of the message."""
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return ApiStatusError(409, "Conflict", message, details=_details(plural, group, name))


def modified(plural: str, group: str, name: str) -> ApiStatusError:
    """409 Conflict for a resourceVersion that is not the latest one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(plural, group, name, why)


def invalid(kind: str, group: str, name: str, message: str, causes: Sequence[Mapping[str, str]]) -> ApiStatusError:
    """422. `message` is the complete sentence; each of `causes` has reason, message and field."""
    return ApiStatusError(
        422, "Invalid", message, details=_details(kind, group, name, causes=[dict(cause) for cause in causes])
    )


def bad_request(message: str) -> ApiStatusError:
    """400 BadRequest."""
    return ApiStatusError(400, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, why: str) -> ApiStatusError:
    """403 Forbidden; without `name` the message is about the collection."""
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return ApiStatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details=_details(plural, group, name))


def method_not_allowed() -> ApiStatusError:
    """405 MethodNotAllowed."""
    message = "the server does not allow this method on the requested resource"
    return ApiStatusError(405, "MethodNotAllowed", message)


def not_acceptable(why: str = "", *, watch: bool = False) -> ApiStatusError:
    """406 NotAcceptable: no media type of the header Accept is supported; `why` is appended to the message."""
    message = f"only the following media types are accepted: {_STREAMS if watch else _RESPONSES}{why}"
    return ApiStatusError(406, "NotAcceptable", message)


def unsupported_media(accepted: Sequence[str]) -> ApiStatusError:
    """415 UnsupportedMediaType; `accepted` lists the supported types of the body."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiStatusError(415, "UnsupportedMediaType", message)


def expired(message: str) -> ApiStatusError:
    """410 Expired, for resourceVersions and continue tokens that are too old."""
    return ApiStatusError(410, "Expired", message)


def too_old(requested: int, oldest: int) -> ApiStatusError:
    """410 Expired for a watch from the resourceVersion `requested`; `oldest` is the oldest one that is kept."""
    return expired(f"too old resource version: {requested} ({oldest})")


def too_large(limit: int, of: str = "") -> ApiStatusError:
    """413; `of` names what is limited, if it is not the number of bytes."""
    what = f"{limit} {of}".strip()
    return ApiStatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {what}")


def of_patch(reason: str, message: str) -> ApiStatusError:
    """For a patch that cannot be applied; `reason`: BadRequest (400), TooLarge (413) or Invalid (422)."""
    if reason == "Invalid":
        return invalid("", "", "", message, ())
    return ApiStatusError(413, "RequestEntityTooLarge", message) if reason == "TooLarge" else bad_request(message)


def too_many(message: str, *, retry_after: int, causes: Sequence[Mapping[str, str]] = ()) -> ApiStatusError:
    """429 TooManyRequests; `retry_after` is in seconds."""
    details: dict[str, Any] = {"retryAfterSeconds": retry_after}
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    return ApiStatusError(429, "TooManyRequests", message, details=details, headers={"retry-after": str(retry_after)})


def unauthorized() -> ApiStatusError:
    """401 Unauthorized."""
    return ApiStatusError(401, "Unauthorized", "Unauthorized")


def internal(message: str) -> ApiStatusError:
    """500 InternalError."""
    return ApiStatusError(500, "InternalError", f"Internal error occurred: {message}")
