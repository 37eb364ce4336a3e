"""Conversion webhooks: converts custom resources between versions (`spec.conversion.strategy: Webhook`).

Objects are stored in one version. Reads and writes in another version call the CRD's webhook like an admission webhook:
a request without its response is `Pending` and is tried again with it. Follows
`apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`.
"""

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import orjson

from seatrial.harness.apiserver.attempts import Answer, Attempt, Call, Pending
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.harness.apiserver.webhooks.addresses import authorities, url_of
from seatrial.harness.apiserver.webhooks.admission_responses import WebhookFailure, call_error
from seatrial.harness.apiserver.webhooks.dispatch import Webhooks

_SECONDS: Final = 30.0  # timeout of a conversion, as upstream
_BATCH: Final = 250  # objects of one review, which bounds the size of the response
_REVIEW: Final = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
_FREE: Final = ("labels", "annotations")  # fields of metadata that a conversion may change


class Conversions:
    """Calls the conversion webhooks of one server."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks
        webhooks.convert = self.shown

    def shown(self, obj: Object, resource: Resource, attempt: Attempt | None) -> Object:
        """Convert an object of any version to that of the resource, for admission webhooks.

        Raises:
            ApiStatusError: 500, it cannot be converted.
            Pending: the webhook has to be called first.
        """
        return self._converted(resource, [obj], resource.api_version, attempt)[0]

    def seen(self, resource: Resource, item: Item, attempt: Attempt | None) -> Item:
        """Convert a stored object to the version of the resource.

        Raises:
            ApiStatusError: 500, it cannot be converted.
            Pending: the webhook has to be called first.
        """
        if resource.conversion is None:
            return item
        return self.all_seen(resource, [item], attempt)[0]

    def all_seen(self, resource: Resource, items: Sequence[Item], attempt: Attempt | None) -> list[Item]:
        """Convert stored objects to the version of the resource, in their order."""
        if resource.conversion is None:
            return list(items)
        other_version = [item.obj for item in items if item.obj.get("apiVersion") != resource.api_version]
        if not other_version:
            return list(items)
        converted = iter(self._converted(resource, other_version, resource.api_version, attempt))
        return [
            item
            if item.obj.get("apiVersion") == resource.api_version
            else Item(item.key, next(converted), item.version, item.ledger)
            for item in items
        ]

    def kept(self, resource: Resource, body: Object, attempt: Attempt | None) -> Object:
        """Convert an object in the version of the resource to the stored version.

        Raises:
            ApiStatusError: 500, it cannot be converted.
            Pending: the webhook has to be called first.
        """
        if resource.conversion is None or resource.stored_as == resource.api_version:
            return body
        return self._converted(resource, [body], resource.stored_as, attempt)[0]

    def follow(self, resource: Resource, item: Item, done: Callable[[Item | ApiStatusError], None]) -> None:
        """Convert for a watch: `done` gets the object in the version of the resource, or the error."""

        def attempted(attempt: Attempt | None) -> None:
            try:
                results = self.seen(resource, item, attempt)
            except Pending as pending:
                self._webhooks.fetch(pending, partial(attempted, pending.attempt))
            except ApiStatusError as error:
                done(error)
            else:
                done(results)

        attempted(None)

    def _converted(
        self, resource: Resource, objects: Sequence[Object], desired: str, attempt: Attempt | None
    ) -> list[Object]:
        missing: dict[tuple[str, bytes], Call] = {}
        results: list[Object] = []
        for start in range(0, len(objects), _BATCH):
            batch = objects[start : start + _BATCH]
            try:
                mark, call = _question(resource, batch, desired)
                answer = attempt.answers.get(mark) if attempt is not None else None
                client = _client(resource)
                answer = answer or self._webhooks.answer_now(client, call)
                if answer is None:
                    missing[mark] = self._webhooks.addressed(client, call)
                else:
                    results += _read(answer, call, batch, desired)
            except WebhookFailure as why:
                raise ApiStatusError(500, "", f"conversion webhook for {_name(batch[0])} failed: {why}") from why
        if missing:
            raise self._webhooks.pending(attempt, missing)
        return results


def _client(resource: Resource) -> Object:
    webhook: Object = (resource.conversion or {}).get("webhook") or {}
    client_config: Object = webhook.get("clientConfig") or {}
    return client_config


def _question(resource: Resource, objects: Sequence[Object], desired: str) -> tuple[tuple[str, bytes], Call]:
    """The key of the response within an attempt, and the call.

    Raises:
        WebhookFailure: the webhook has no usable address.
    """
    client = _client(resource)
    request = orjson.dumps({"desiredAPIVersion": desired, "objects": list(objects)})
    name = f"conversion of {resource.plural}.{resource.group}"
    uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {request.decode()}"))
    review = {**_REVIEW, "request": {"uid": uid, "desiredAPIVersion": desired, "objects": list(objects)}}
    url = url_of(client)
    full = f"{url}{'&' if '?' in url else '?'}timeout={_SECONDS:.0f}s"
    return (name, request), Call(name, full, authorities(client), orjson.dumps(review), _SECONDS)


def _read(answer: Answer, call: Call, objects: Sequence[Object], desired: str) -> list[Object]:
    """The converted objects of a response.

    Raises:
        WebhookFailure: the response is missing or malformed, or reports a failure.
        ApiStatusError: 500, the converted objects do not match the request.
    """
    why = call_error(answer, call.url)
    if why:
        raise WebhookFailure(why)
    try:
        review = orjson.loads(answer.body)
    except ValueError as error:
        raise WebhookFailure(f"the answer is not JSON: {error}") from error
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise WebhookFailure("no response provided")
    uid = orjson.loads(call.body)["request"]["uid"]
    if {name: review.get(name) for name in _REVIEW} != _REVIEW:
        group, _, version = str(review.get("apiVersion") or "").rpartition("/")
        raise WebhookFailure(
            "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got "
            f"{group}/{version}, Kind={review.get('kind') or ''}"
        )
    if response.get("uid") != uid:
        raise WebhookFailure(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    result = response.get("result")
    result = result if isinstance(result, dict) else {}
    if result.get("status") != "Success":
        raise WebhookFailure(str(result.get("message") or "the webhook gave no reason"))
    converted = response.get("convertedObjects")
    converted = converted if isinstance(converted, list) else []
    if len(converted) != len(objects):
        prefix = f"conversion webhook for {_name(objects[0])}"
        raise ApiStatusError(500, "", f"{prefix} returned {len(converted)} objects, expected {len(objects)}")
    return [
        _checked(new, old, desired, number) for number, (new, old) in enumerate(zip(converted, objects, strict=True))
    ]


def _checked(new: Any, old: Object, desired: str, number: int) -> Object:
    """The converted object with the metadata of the old one, except labels and annotations."""
    prefix = f"conversion webhook for {_name(old)} returned invalid"
    if not isinstance(new, dict) or new.get("apiVersion") != desired or new.get("kind") != old.get("kind"):
        text = f"{new.get('apiVersion')}, Kind={new.get('kind')}" if isinstance(new, dict) else type(new).__name__
        where = f"converted object at index {number}"
        raise ApiStatusError(500, "", f"{prefix} {where}: expected {desired}, Kind={old.get('kind')}, found {text}")
    metadata, before = new.get("metadata"), old["metadata"]
    if not isinstance(metadata, dict):
        message = f"{prefix} metadata: invalid metadata of type {type(metadata).__name__} in object"
        raise ApiStatusError(500, "", message)
    for field in ("uid", "name", "namespace"):
        if (metadata.get(field) or "") != (before.get(field) or ""):
            was, is_ = before.get(field) or "", metadata.get(field) or ""
            name = "UID" if field == "uid" else field
            raise ApiStatusError(
                500, "", f"{prefix} converted object at index {number}: must have the same {name}: {was} != {is_}"
            )
    restored = {name: value for name, value in before.items() if name not in _FREE}
    restored |= {name: metadata[name] for name in _FREE if metadata.get(name)}
    return {**new, "metadata": restored}


def _name(obj: Object) -> str:
    return f"{obj.get('apiVersion')}, Kind={obj.get('kind')}"
