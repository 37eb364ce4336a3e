"""Asks the webhooks that have a word in a write, in kube-apiserver's order.

Mutating ones are asked one after the other, each seeing what the one before made of the object; validating ones all at
once. Where nobody is configured, the only cost is a look at `active`.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import orjson

from harness.apiserver import errors
from harness.apiserver.access.identity import Identity
from harness.apiserver.discovery.resources import Registry, Resource
from harness.apiserver.patching.patch import PatchError, json_patch
from harness.apiserver.storage.store import Change, Object, Store
from harness.apiserver.webhooks.addresses import authorities, find_address, url_of
from harness.apiserver.webhooks.attempts import FIRST, TRIES, Answer, Attempt, Call, Pending
from harness.apiserver.webhooks.conditions import Undecided, conditions_hold
from harness.apiserver.webhooks.policies import BINDINGS, POLICIES, Policies
from harness.apiserver.webhooks.rules import GROUP, MUTATING, VALIDATING, Webhook, read_webhooks
from harness.apiserver.webhooks.verdicts import Failed, Verdict, denied, failed, read_verdict

_NEW: Final = ("uid", "creationTimestamp", "generation")  # what an object has only once it is about to be stored
Handler = Callable[[Object], Object]  # an AdmissionReview in, one out
Convert = Callable[[Object, Resource, "Attempt | None"], Object]  # an object, in the version of the resource
Complete = Callable[[Object], Object]  # an object as a webhook left it → conformed, with defaults


class Caller(Protocol):
    """Puts questions over the network."""

    def call(self, call: Call, done: Callable[[Answer], None]) -> None:
        """`done` is called exactly once, never from inside this call."""


@dataclass(frozen=True, slots=True)
class Write:
    """What is about to happen, as reviews describe it."""

    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    resource: Resource
    namespace: str
    name: str
    subresource: str
    by: Identity
    dry_run: bool
    options: Object
    attempt: Attempt | None  # None: somebody who cannot wait
    warnings: list[str]
    kind: tuple[str, str, str] | None = None  # of the object, where it is not the resource's own
    generated: bool = False  # the name was drawn: mutating webhooks do not see it


class Webhooks:
    """All webhooks of one server."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store, self._registry = store, registry
        self._mutating: tuple[Webhook, ...] = ()
        self._validating: tuple[Webhook, ...] = ()
        self.policies = Policies(store, registry)
        self.active = False  # whether there is any webhook or policy at all
        self.local: dict[str, Handler] = {}  # URL → who answers in this process, at once
        self.caller: Caller | None = None  # for those who can wait
        self.convert: Convert | None = None  # None: versions differ in their names alone
        self.at_once: Callable[[Call], Answer] | None = None  # for a cluster whose time stands still meanwhile
        for key in (MUTATING, VALIDATING):
            store.collection(key).listen(partial(self._changed, key))
        for key in (POLICIES, BINDINGS):  # after the policies have heard of it
            store.collection(key).listen(self._policies_changed)

    def _changed(self, key: tuple[str, str], _: Change) -> None:
        found = [one for item in self._store.collection(key).items() for one in read_webhooks(item)]
        if key == MUTATING:
            self._mutating = tuple(found)
        else:
            self._validating = tuple(found)
        self.active = bool(self._mutating or self._validating or self.policies.active)

    def _policies_changed(self, _: Change) -> None:
        self.active = bool(self._mutating or self._validating or self.policies.active)

    def concern(self, operation: str, resource: Resource, subresource: str = "") -> bool:
        """Whether a webhook or a policy may have a word, by its rules alone."""
        if not self.active or resource.group == GROUP:
            return False
        return self.policies.concern(operation, resource, subresource) or any(
            one.wants(operation, resource, subresource, self._registry) is not None
            for one in (*self._mutating, *self._validating)
        )

    # -- mutating -----------------------------------------------------------------------------------------------------

    def mutate(self, write: Write, body: Object | None, old: Object | None, complete: Complete) -> Object | None:
        """The object as the webhooks want it; the same one where they want nothing else.

        Raises:
            ApiStatusError: a webhook said no, or could not be asked.
            Pending: an answer is missing.
        """
        if write.resource.group == GROUP:
            return body
        changes = 0
        seen: list[tuple[Webhook, int]] = []  # and how many changes there had been after it
        for webhook in self._mutating:
            asked, body, changed = self._mutated_by(webhook, write, body, old, complete)
            changes += changed
            if asked:
                seen.append((webhook, changes))
        for webhook, before in seen:
            if webhook.reinvoked and changes > before:
                _, body, changed = self._mutated_by(webhook, write, body, old, complete)
                changes += changed
        return body

    def _mutated_by(
        self, webhook: Webhook, write: Write, body: Object | None, old: Object | None, complete: Complete
    ) -> tuple[bool, Object | None, bool]:
        version = self._wanting(webhook, write, body, old)
        if version is None:
            return False, body, False
        shown = _unborn(body, generated=write.generated) if body is not None and write.operation == "CREATE" else body
        verdict = self._verdicts([(webhook, version)], write, shown, old, mutating=True)[0]
        if isinstance(verdict, Failed):
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

    # -- validating ---------------------------------------------------------------------------------------------------

    def validate(self, write: Write, body: Object | None, old: Object | None) -> None:
        """
        Raises:
            ApiStatusError: a policy or a webhook said no, or a webhook could not be asked.
            Pending: answers are missing.
        """
        if write.resource.group == GROUP:
            return
        if self.policies.active:
            self.policies.check(write, self._request(write, write.resource, body, old), body, old)
        asked = []
        for webhook in self._validating:
            version = self._wanting(webhook, write, body, old)
            if version is not None:
                asked.append((webhook, version))
        if not asked:
            return
        for (webhook, _), verdict in zip(asked, self._verdicts(asked, write, body, old, mutating=False), strict=True):
            if isinstance(verdict, Failed):
                if not webhook.ignore_failure:
                    raise failed(webhook.name, verdict)
                continue
            write.warnings.extend(verdict.warnings)
            if not verdict.allowed:
                raise denied(webhook.name, verdict.status)

    # -- questions ----------------------------------------------------------------------------------------------------

    def _wanting(self, webhook: Webhook, write: Write, body: Object | None, old: Object | None) -> Resource | None:
        version = webhook.wants(write.operation, write.resource, write.subresource, self._registry)
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
            "requestResource": {
                "group": version.group, "version": write.resource.version, "resource": version.plural,
            },
            "name": "" if write.generated and body is not None and "uid" not in body["metadata"] else write.name,
            "operation": write.operation,
            "userInfo": {"username": write.by.name, "groups": list(write.by.groups)},
            "object": self._in_version(body, version, write) if body is not None else None,
            "oldObject": self._in_version(old, version, write) if old is not None else None,
            "dryRun": write.dry_run,
            "options": write.options or None,
        }  # fmt: skip
        if write.namespace:
            request["namespace"] = write.namespace
        if write.subresource:
            request["subResource"] = request["requestSubResource"] = write.subresource
        return request

    def _in_version(self, obj: Object, version: Resource, write: Write) -> Object:
        """The object as a webhook sees it that asked for `version`.

        Raises:
            ApiStatusError: it cannot be converted.
            Pending: it has to be converted first.
        """
        if version.custom is None or write.kind is not None or obj.get("apiVersion") == version.api_version:
            return obj
        if version.conversion is not None and self.convert is not None:
            return self.convert(obj, version, write.attempt)
        return {**obj, "apiVersion": version.api_version}

    def _verdicts(
        self,
        asked: list[tuple[Webhook, Resource]],
        write: Write,
        body: Object | None,
        old: Object | None,
        *,
        mutating: bool,
    ) -> list[Verdict | Failed]:
        """The answers of all who are asked at once, in their order."""
        found: list[Verdict | Failed] = []
        missing: dict[tuple[str, bytes], Call] = {}
        for webhook, version in asked:
            request = self._request(write, version, body, old)
            mark = (f"{webhook.configuration}/{webhook.name}", orjson.dumps(request))
            try:
                call = _call(webhook, mark, request)
                answer = write.attempt.answers.get(mark) if write.attempt is not None else None
                answer = answer or self.answer_now(webhook.client, call)
                if answer is None:
                    missing[mark] = self.addressed(webhook.client, call)
                else:
                    found.append(read_verdict(answer, _uid(mark), call.url, mutating=mutating))
            except Failed as why:
                found.append(why)
        if missing:
            raise self.pending(write.attempt, missing)
        return found

    def answer_now(self, client: Mapping[str, Any], call: Call) -> Answer | None:
        """The answer of a webhook that can be had at once; None: it has to be fetched."""
        handler = self.local.get(url_of(client))
        if handler is not None:
            return Answer(200, orjson.dumps(handler(orjson.loads(call.body))))
        if self.at_once is not None:
            return self.at_once(self.addressed(client, call))
        return None if self.caller is not None else Answer(0, why="this cluster makes no calls over the network")

    def addressed(self, client: Mapping[str, Any], call: Call) -> Call:
        """The call with the place where to connect.

        Raises:
            Failed: there is none.
        """
        place = find_address(client, self._store)
        return replace(call, host=place.host, port=place.port)

    def pending(self, attempt: Attempt | None, missing: dict[tuple[str, bytes], Call]) -> Pending:
        """What to raise where answers are missing.

        Raises:
            ApiStatusError: too often already.
        """
        if attempt is None or attempt is FIRST:
            attempt = Attempt()
        if attempt.tries >= TRIES:
            raise errors.internal("the object changes faster than its admission webhooks answer")
        return Pending(attempt, missing)

    def fetch(self, pending: Pending, then: Callable[[], None]) -> None:
        """Get the answers that are missing, all at once; `then` is called when the next try has them."""
        assert self.caller is not None  # noqa: S101
        left = len(pending.calls)
        pending.attempt.tries += 1

        def answered(mark: tuple[str, bytes], answer: Answer) -> None:
            nonlocal left
            pending.attempt.answers[mark] = answer
            left -= 1
            if not left:
                then()

        for mark, call in pending.calls.items():
            self.caller.call(call, partial(answered, mark))


def _call(webhook: Webhook, mark: tuple[str, bytes], request: Object) -> Call:
    """
    Raises:
        Failed: the webhook cannot be asked.
    """
    if not webhook.understood:
        raise Failed("failed to call webhook: expected v1 among its admissionReviewVersions, found others only")
    url = url_of(webhook.client)
    review = {
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": _uid(mark), **request},
    }  # fmt: skip
    return Call(
        webhook.name,
        f"{url}{'&' if '?' in url else '?'}timeout={webhook.seconds:.0f}s",
        authorities(webhook.client),
        orjson.dumps(review),
        webhook.seconds,
    )


def _uid(mark: tuple[str, bytes]) -> str:
    """Of a review: the same for the same question, so that an answer fits when the question is put again."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{mark[0]} {mark[1].decode()}"))


def _unborn(body: Object, *, generated: bool) -> Object:
    """A new object as mutating webhooks see it: upstream gives it an identity only after them."""
    metadata: dict[str, Any] = {name: value for name, value in body["metadata"].items() if name not in _NEW}
    if generated:
        metadata.pop("name", None)
    return {**body, "metadata": metadata}
