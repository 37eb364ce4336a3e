"""AdmissionReview v1 responses: parsing, and kube-apiserver's error messages."""

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.attempts import Answer
from seatrial.harness.apiserver.errors import ApiStatusError

_API_VERSION, _KIND = "admission.k8s.io/v1", "AdmissionReview"
_SHOWN = 512  # bytes quoted from a response that is no review


class WebhookFailure(Exception):
    """The call of a webhook failed, or its response is invalid."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A parsed webhook response."""

    allowed: bool
    status: dict[str, Any]
    patch: list[Any]
    warnings: tuple[str, ...]


def read_verdict(answer: Answer, uid: str, url: str, *, mutating: bool) -> Verdict:
    """Parse a response.

    Raises:
        WebhookFailure: the response is missing or invalid; the text is what follows `failed calling webhook "x": `.
    """
    why = call_error(answer, url)
    if why:
        raise WebhookFailure(f"failed to call webhook: {why}")
    try:
        review = orjson.loads(answer.body)
    except ValueError as error:
        raise WebhookFailure(f"failed to call webhook: the answer is not JSON: {error}") from error
    response = review.get("response") if isinstance(review, dict) else None
    if response is None:
        raise WebhookFailure("received invalid webhook response: webhook response was absent")
    if review.get("apiVersion") != _API_VERSION or review.get("kind") != _KIND:
        group, _, version = str(review.get("apiVersion") or "").rpartition("/")
        kind = f"{group}/{version}, Kind={review.get('kind') or ''}"
        raise WebhookFailure(
            f"received invalid webhook response: expected webhook response of {_API_VERSION}, Kind={_KIND}, got {kind}"
        )
    if not isinstance(response, dict) or response.get("uid") != uid:
        text = response.get("uid", "") if isinstance(response, dict) else ""
        raise WebhookFailure(f'received invalid webhook response: expected response.uid="{uid}", got "{text}"')
    return Verdict(
        allowed=response.get("allowed") is True,
        status=response.get("status") or {},
        patch=_patch(response, mutating=mutating),
        warnings=tuple(str(warning) for warning in response.get("warnings") or ()),
    )


def call_error(answer: Answer, url: str) -> str:
    """Why there is no readable response; empty if there is one."""
    if answer.code == 0:
        return f'Post "{url}": {answer.why}'
    return "" if 200 <= answer.code < 300 else _rejected(answer)


def _rejected(answer: Answer) -> str:
    if answer.code == 404:
        return "the server could not find the requested resource"
    text = answer.body[:_SHOWN].decode(errors="replace").strip() or "unknown"
    if answer.code >= 500:
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return f"the server rejected our request for an unknown reason (code {answer.code}): {text}"


def _patch(response: dict[str, Any], *, mutating: bool) -> list[Any]:
    patch, kind = response.get("patch"), response.get("patchType")
    if not patch and not kind:
        return []
    prefix = "received invalid webhook response:"
    if not mutating:
        raise WebhookFailure(f"{prefix} validating webhook may not return response.patch or response.patchType")
    if patch and not kind:
        raise WebhookFailure(f"{prefix} webhook returned response.patch but not response.patchType")
    if kind != "JSONPatch":
        raise WebhookFailure(f'{prefix} webhook returned invalid response.patchType of "{kind}"')
    if not patch:
        raise WebhookFailure(f"{prefix} webhook returned response.patchType but not response.patch")
    try:
        document = orjson.loads(base64.b64decode(patch, validate=True))
    except (binascii.Error, ValueError, TypeError) as error:
        raise WebhookFailure(f"{prefix} response.patch is not a JSON patch in base64: {error}") from error
    if not isinstance(document, list):
        raise WebhookFailure(f"{prefix} response.patch: expected a list of operations, found {type(document).__name__}")
    return document


def denied(name: str, status: dict[str, Any]) -> ApiStatusError:
    """The error response for a write that a webhook denied."""
    by = f'admission webhook "{name}" denied the request'
    message, reason = status.get("message"), status.get("reason")
    text = f"{by}: {message}" if message else f"{by}: {reason}" if reason else f"{by} without explanation"
    code = status.get("code")
    code = code if isinstance(code, int) and code >= 400 else 400
    details = status.get("details")
    return ApiStatusError(code, str(reason or ""), text, details=details if isinstance(details, dict) else None)


def failed(name: str, why: WebhookFailure) -> ApiStatusError:
    """The error response for a failed webhook call."""
    return errors.internal(f'failed calling webhook "{name}": {why}')
