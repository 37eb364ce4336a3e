"""Service account tokens, valid until they expire or their account is deleted.

They are JSON web tokens signed with a secret of this server.
"""

import base64
import hashlib
import hmac
from typing import Any, Final

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.storage.store import Object, Store
from seatrial.scheduler.api.clock import Clock, rfc3339

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_MIN_SECONDS, _DEFAULT_SECONDS = 600, 3600
_ACCOUNTS: Final = ("", "serviceaccounts")
_HEADER: Final = {"alg": "HS256", "typ": "JWT"}


class Tokens:
    """Issues and verifies the tokens of one server. `secret` signs them; a new secret invalidates all older tokens."""

    def __init__(self, store: Store, clock: Clock, secret: bytes) -> None:
        self._store, self._clock, self._secret = store, clock, secret

    def request(self, key: tuple[str, str], body: Object) -> Object:
        """The TokenRequest with its status, for the account `key` (namespace, name).

        Raises:
            ApiStatusError: the account does not exist, or expirationSeconds is less than ten minutes.
        """
        account = self._store.collection(_ACCOUNTS).get(key)
        if account is None:
            raise errors.not_found("serviceaccounts", "", key[1])
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or _DEFAULT_SECONDS
        if not isinstance(seconds, int) or seconds < _MIN_SECONDS:
            text = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            raise errors.invalid(
                "TokenRequest", "authentication.k8s.io", "",
                f'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: {text}',
                [{"reason": "FieldValueInvalid", "message": text, "field": "spec.expirationSeconds"}],
            )  # fmt: skip
        now = int(self._clock.now())
        audiences = spec.get("audiences") or [ISSUER]
        token = self._signed({
            "iss": ISSUER,
            "aud": audiences,
            "sub": _user(*key),
            "iat": now,
            "exp": now + seconds,
            "kubernetes.io": {
                "namespace": key[0],
                "serviceaccount": {"name": key[1], "uid": account.obj["metadata"]["uid"]},
            },
        })  # fmt: skip
        return {
            **body,
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": key[1], "namespace": key[0], "creationTimestamp": rfc3339(now)},
            "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": rfc3339(now + seconds)},
        }

    def identify(self, token: str) -> Identity | None:
        """The identity of a token; None if it is invalid or expired, or its account does not exist."""
        text, _, signature = token.rpartition(".")
        if not text or not hmac.compare_digest(self._signature(text), signature):
            return None
        claims: dict[str, Any] = orjson.loads(_from_base64(text.partition(".")[2]))
        inside = claims["kubernetes.io"]
        key = (inside["namespace"], inside["serviceaccount"]["name"])
        account = self._store.collection(_ACCOUNTS).get(key)
        if claims["exp"] <= self._clock.now() or account is None:
            return None
        if account.obj["metadata"]["uid"] != inside["serviceaccount"]["uid"]:
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{key[0]}", "system:authenticated")
        return Identity(_user(*key), groups)

    def _signed(self, claims: Object) -> str:
        text = f"{_base64(orjson.dumps(_HEADER))}.{_base64(orjson.dumps(claims))}"
        return f"{text}.{self._signature(text)}"

    def _signature(self, text: str) -> str:
        return _base64(hmac.new(self._secret, text.encode(), hashlib.sha256).digest())


def _user(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
