"""Calls the webhooks that match a write, in kube-apiserver's order.

Mutating webhooks are called one after the other, each with the object as the previous one left it; validating webhooks
are called concurrently. Without any configuration the only cost is reading `active`.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.attempts import MAX_TRIES, Answer, Attempt, Call, Pending, own_attempt
from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.long_computations import LongComputations
from seatrial.harness.apiserver.patching.patch import PatchError, json_patch
from seatrial.harness.apiserver.storage.store import Change, Object, Store
from seatrial.harness.apiserver.webhooks.addresses import authorities, find_address, url_of
from seatrial.harness.apiserver.webhooks.admission_responses import (
    Verdict,
    WebhookFailure,
    denied,
    failed,
    read_verdict,
)
from seatrial.harness.apiserver.webhooks.conditions import Undecided, conditions_hold
from seatrial.harness.apiserver.webhooks.policies import BINDINGS, POLICIES, Policies
from seatrial.harness.apiserver.webhooks.rules import GROUP, MUTATING, VALIDATING, Webhook, read_webhooks

_LABELS_KEPT: Final = frozenset({("", "pods")})  # kinds whose labels admission does not change
_NEW: Final = ("uid", "creationTimestamp", "generation")  # metadata that upstream sets after the mutating webhooks
Handler = Callable[[Object], Object]  # an AdmissionReview in, one out
Convert = Callable[[Object, Resource, "Attempt | None"], Object]  # an object, in the version of the resource
Complete = Callable[[Object], Object]  # an object as a webhook left it → conformed, with defaults


class Caller(Protocol):
    """Calls webhooks over the network."""

    def call(self, call: Call, done: Callable[[Answer], None]) -> None:
        """Start a call; `done` is called exactly once, and not before this method returns."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write about to happen, as AdmissionReviews describe it."""

    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    resource: Resource
    namespace: str
    name: str
    subresource: str
    by: Identity
    dry_run: bool
    options: Object
    attempt: Attempt | None  # None: the caller cannot wait
    warnings: list[str]
    kind: tuple[str, str, str] | None = None  # of the object, if it is not the resource's own kind
    generated: bool = False  # the name was generated: mutating webhooks do not see it


class Webhooks:
    """The webhook configurations and admission policies of one server."""

    def __init__(self, store: Store, registry: Registry, long: LongComputations) -> None:
        self._store, self._registry = store, registry
        self._mutating: tuple[Webhook, ...] = ()
        self._validating: tuple[Webhook, ...] = ()
        self._by_rule: dict[tuple[str, str, str, str, str], tuple[Webhook, ...]] = {}  # of built-in kinds
        self.policies = Policies(store, registry, long)
        self.active = False  # whether any webhook or bound policy exists
        self.local: dict[str, Handler] = {}  # URL → handler in this process
        self.caller: Caller | None = None  # for requests that can wait
        self.convert: Convert | None = None  # None: versions differ in apiVersion only
        self.blocking_caller: Callable[[Call], Answer] | None = None  # for a cluster in virtual time
        for key in (MUTATING, VALIDATING):
            store.collection(key).listen(partial(self._changed, key))
        for key in (POLICIES, BINDINGS):  # after the policies' own listener
            store.collection(key).listen(self._policies_changed)

    def _changed(self, key: tuple[str, str], _: Change) -> None:
        webhooks = [webhook for item in self._store.collection(key).items() for webhook in read_webhooks(item)]
        if key == MUTATING:
            self._mutating = tuple(webhooks)
        else:
            self._validating = tuple(webhooks)
        self._by_rule.clear()
        self.active = bool(self._mutating or self._validating or self.policies.active)

    def _policies_changed(self, _: Change) -> None:
        self.active = bool(self._mutating or self._validating or self.policies.active)

    def applies_to(self, operation: str, resource: Resource, subresource: str = "") -> bool:
        """Whether the rules of a webhook or policy match; selectors and conditions are not evaluated."""
        if not self.active or resource.group == GROUP:
            return False
        return self.policies.applies_to(operation, resource, subresource) or bool(
            self._matching(operation, resource, subresource)
        )

    def applies_to_objects(
        self, operation: str, resource: Resource, namespace: str, objects: tuple[Object, ...], subresource: str = ""
    ) -> bool:
        """`applies_to` for a create or update with these objects: the new one, and the old one of an update.

        For kinds whose labels admission does not change selectors are evaluated too; conditions are not.
        """
        if not self.active:
            return False
        if resource.key not in _LABELS_KEPT:
            return self.applies_to(operation, resource, subresource)
        if self.policies.applies_to(operation, resource, subresource):
            return True
        before: Webhook | None = None
        for webhook in self._matching(operation, resource, subresource):
            # A component registers its mutating and its validating webhook for the same objects.
            if before is None or webhook.objects != before.objects or webhook.namespaces != before.namespaces:
                if webhook.selects(resource, namespace, objects, self._store):
                    return True
                before = webhook
        return False

    def _matching(self, operation: str, resource: Resource, subresource: str) -> tuple[Webhook, ...]:
        """The webhooks with a rule for this operation. Kept: most requests ask, and few webhooks match a few kinds."""
        key = (operation, resource.group, resource.version, resource.plural, subresource)
        webhooks = self._by_rule.get(key)
        if webhooks is None:
            webhooks = tuple(
                webhook
                for webhook in (*self._mutating, *self._validating)
                if webhook.matching_version(operation, resource, subresource, self._registry) is not None
            )
            if resource.custom is None:  # versions of custom resources come and go
                self._by_rule[key] = webhooks
        return webhooks

    # -- mutating ------------------------------------------------------------------------------------------------------

    def mutate(self, write: Write, body: Object | None, old: Object | None, complete: Complete) -> Object | None:
        """The object after all mutating webhooks; the same object if they change nothing.

        Raises:
            ApiStatusError: a webhook denied the write, or its call failed.
            Pending: a response is missing.
        """
        if write.resource.group == GROUP:
            return body
        changes = 0
        seen: list[tuple[Webhook, int]] = []  # with the number of changes after its call
        for webhook in self._mutating:
            called, body, changed = self._mutated_by(webhook, write, body, old, complete)
            changes += changed
            if called:
                seen.append((webhook, changes))
        for webhook, before in seen:
            if webhook.reinvoked and changes > before:
                _, body, changed = self._mutated_by(webhook, write, body, old, complete)
                changes += changed
        return body

    def _mutated_by(
        self, webhook: Webhook, write: Write, body: Object | None, old: Object | None, complete: Complete
    ) -> tuple[bool, Object | None, bool]:
        version = self._version_for(webhook, write, body, old)
        if version is None:
            return False, body, False
        shown = (
            _without_identity(body, generated=write.generated)
            if body is not None and write.operation == "CREATE"
            else body
        )
        verdict = self._verdicts([(webhook, version)], write, shown, old, mutating=True)[0]
        if isinstance(verdict, WebhookFailure):
            if webhook.ignore_failure:
                return True, body, False
            raise failed(webhook.name, verdict)
        write.warnings.extend(verdict.warnings)
        if not verdict.allowed:
            raise denied(webhook.name, verdict.status)
        if not verdict.patch or shown is None or body is None:
            return True, body, False
        try:
            patched = json_patch(self._in_version(shown, version, write), verdict.patch)
        except PatchError as error:
            raise errors.internal(str(error)) from error
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise errors.internal(f'admission webhook "{webhook.name}": its patch leaves no object with metadata')
        if version.conversion is not None and write.kind is None:
            patched = self._in_version(patched, write.resource, write)
        patched = {**patched, "apiVersion": body["apiVersion"], "kind": body["kind"]}
        if patched == shown:
            return True, body, False
        metadata = patched["metadata"]
        for field in ("name", "namespace", *_NEW):
            if field in body["metadata"]:
                metadata[field] = body["metadata"][field]
        return True, complete(patched), True

    # -- validating ----------------------------------------------------------------------------------------------------

    def validate(self, write: Write, body: Object | None, old: Object | None) -> None:
        """Check the write against policies and validating webhooks.

        Raises:
            ApiStatusError: a policy or webhook denied the write, or a webhook call failed.
            Pending: responses are missing.
        """
        if write.resource.group == GROUP:
            return
        if self.policies.active:
            self.policies.check(write, self._request(write, write.resource, body, old), body, old)
        calls = []
        for webhook in self._validating:
            version = self._version_for(webhook, write, body, old)
            if version is not None:
                calls.append((webhook, version))
        if not calls:
            return
        for (webhook, _), verdict in zip(calls, self._verdicts(calls, write, body, old, mutating=False), strict=True):
            if isinstance(verdict, WebhookFailure):
                if not webhook.ignore_failure:
                    raise failed(webhook.name, verdict)
                continue
            write.warnings.extend(verdict.warnings)
            if not verdict.allowed:
                raise denied(webhook.name, verdict.status)

    # -- questions -----------------------------------------------------------------------------------------------------

    def _version_for(self, webhook: Webhook, write: Write, body: Object | None, old: Object | None) -> Resource | None:
        version = webhook.matching_version(write.operation, write.resource, write.subresource, self._registry)
        if version is None or not webhook.selects(write.resource, write.namespace, (body, old), self._store):
            return None
        if webhook.conditions:
            try:
                if not conditions_hold(webhook.conditions, self._request(write, version, body, old)):
                    return None
            except Undecided as why:
                if webhook.ignore_failure:
                    return None
                name = write.name
                raise errors.forbidden(write.resource.plural, write.resource.group, name, str(why)) from why
        if write.dry_run and not webhook.dry_run_safe:
            raise errors.bad_request(f'admission webhook "{webhook.name}" does not support dry run')
        return version

    def _request(self, write: Write, version: Resource, body: Object | None, old: Object | None) -> Object:
        group, number, kind = write.kind or (version.group, version.version, version.kind)
        _, asked_number, asked_kind = write.kind or ("", write.resource.version, write.resource.kind)
        request: Object = {
            "kind": {"group": group, "version": number, "kind": kind},
            "resource": {"group": version.group, "version": version.version, "resource": version.plural},
            "requestKind": {"group": group, "version": asked_number, "kind": asked_kind},
            "requestResource": {"group": version.group, "version": write.resource.version, "resource": version.plural},
            "name": "" if write.generated and body is not None and "uid" not in body["metadata"] else write.name,
            "operation": write.operation,
            "userInfo": write.by.user_info,
            "object": self._in_version(body, version, write) if body is not None else None,
            "oldObject": self._in_version(old, version, write) if old is not None else None,
            "dryRun": write.dry_run,
            "options": write.options or None,
        }
        if write.namespace:
            request["namespace"] = write.namespace
        if write.subresource:
            request["subResource"] = request["requestSubResource"] = write.subresource
        return request

    def _in_version(self, obj: Object, version: Resource, write: Write) -> Object:
        """The object converted to the `version` that a webhook's rule names.

        Raises:
            ApiStatusError: it cannot be converted.
            Pending: a conversion webhook has to be called first.
        """
        if version.custom is None or write.kind is not None or obj.get("apiVersion") == version.api_version:
            return obj
        if version.conversion is not None and self.convert is not None:
            return self.convert(obj, version, write.attempt)
        return {**obj, "apiVersion": version.api_version}

    def _verdicts(
        self,
        calls: list[tuple[Webhook, Resource]],
        write: Write,
        body: Object | None,
        old: Object | None,
        *,
        mutating: bool,
    ) -> list[Verdict | WebhookFailure]:
        """The verdicts of concurrently called webhooks, in the order of `calls`.

        Raises:
            Pending: responses are missing.
        """
        verdicts: list[Verdict | WebhookFailure] = []
        missing: dict[tuple[str, bytes], Call] = {}
        for webhook, version in calls:
            request = self._request(write, version, body, old)
            stage = "mutating" if mutating else "validating"  # two configurations may have the same names
            key = (f"{stage}/{webhook.configuration}/{webhook.name}", orjson.dumps(request))
            try:
                call = _call(webhook, key, request)
                answer = write.attempt.answers.get(key) if write.attempt is not None else None
                answer = answer or self.answer_now(webhook.client, call)
                if answer is None:
                    missing[key] = self.addressed(webhook.client, call)
                else:
                    verdicts.append(read_verdict(answer, _uid(key), call.url, mutating=mutating))
            except WebhookFailure as why:
                verdicts.append(why)
        if missing:
            raise self.pending(write.attempt, missing)
        return verdicts

    def answer_now(self, client: Mapping[str, Any], call: Call) -> Answer | None:
        """The response of a webhook that can be called synchronously; None: it has to be fetched."""
        handler = self.local.get(url_of(client))
        if handler is not None:
            return Answer(200, orjson.dumps(handler(orjson.loads(call.body))))
        if self.blocking_caller is not None:
            return self.blocking_caller(self.addressed(client, call))
        return None if self.caller is not None else Answer(0, why="this cluster makes no calls over the network")

    def addressed(self, client: Mapping[str, Any], call: Call) -> Call:
        """The call with the host and port to connect to.

        Raises:
            WebhookFailure: there is no address.
        """
        place = find_address(client, self._store)
        return replace(call, host=place.host, port=place.port)

    def pending(self, attempt: Attempt | None, missing: dict[tuple[str, bytes], Call]) -> Pending:
        """The Pending error for missing responses.

        Raises:
            ApiStatusError: the maximum number of tries is exceeded.
        """
        attempt = own_attempt(attempt)
        if attempt.tries >= MAX_TRIES:
            raise errors.internal("the object changes faster than its admission webhooks answer")
        return Pending(attempt, missing)

    def fetch(self, pending: Pending, then: Callable[[], None]) -> None:
        """Fetch the missing responses concurrently; `then` is called when all are in the attempt."""
        pending.attempt.tries += 1
        if pending.computation is not None:
            pending.computation(then)
            return
        assert self.caller is not None
        left = len(pending.calls)

        def answered(key: tuple[str, bytes], answer: Answer) -> None:
            nonlocal left
            pending.attempt.answers[key] = answer
            left -= 1
            if not left:
                then()

        for key, call in pending.calls.items():
            self.caller.call(call, partial(answered, key))


def _call(webhook: Webhook, key: tuple[str, bytes], request: Object) -> Call:
    """The call for one review.

    Raises:
        WebhookFailure: the webhook cannot be called.
    """
    if not webhook.supports_v1:
        raise WebhookFailure("failed to call webhook: expected v1 among its admissionReviewVersions, found others only")
    url = url_of(webhook.client)
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": _uid(key), **request}}
    return Call(
        webhook.name,
        f"{url}{'&' if '?' in url else '?'}timeout={webhook.seconds:.0f}s",
        authorities(webhook.client),
        orjson.dumps(review),
        webhook.seconds,
    )


def _uid(key: tuple[str, bytes]) -> str:
    """The UID of a review, derived from its content, so that a response also fits when the review is repeated."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{key[0]} {key[1].decode()}"))


def _without_identity(body: Object, *, generated: bool) -> Object:
    """A new object as mutating webhooks see it: upstream sets UID and timestamps after calling them."""
    metadata: dict[str, Any] = {name: value for name, value in body["metadata"].items() if name not in _NEW}
    if generated:
        metadata.pop("name", None)
    return {**body, "metadata": metadata}
