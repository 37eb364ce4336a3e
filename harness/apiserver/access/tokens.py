"""Service account tokens, valid until they expire or the account or object to which they are bound is deleted.

They are JSON web tokens signed with ES256, so that others can verify them with the key that `/openid/v1/jwks` serves.
"""

import hashlib
import secrets
from typing import Any, Final
from uuid import UUID

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.access.signing_key import SigningKey
from seatrial.harness.apiserver.field_errors import Cause, details, invalid, message
from seatrial.harness.apiserver.storage.store import CollectionKey, Object, Store
from seatrial.scheduler.api.clock import Clock, rfc3339

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
ACCOUNT_PREFIX: Final = "system:serviceaccount:"
_MIN_SECONDS, _MAX_SECONDS, _DEFAULT_SECONDS = 600, 1 << 32, 3600
_ACCOUNTS: Final = ("", "serviceaccounts")
_GROUP: Final = "authentication.k8s.io"
_CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
_BINDABLE: Final[dict[tuple[str, str], CollectionKey]] = {  # (apiVersion, kind) of objects that a token can be bound to
    ("v1", "Pod"): ("", "pods"),
    ("v1", "Secret"): ("", "secrets"),
    ("v1", "Node"): ("", "nodes"),
}


class Tokens:
    """Issues and verifies the tokens of one server, whose signing key is new: tokens of other servers are invalid."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._key = SigningKey()
        self._issued = 0
        self._static: list[tuple[bytes, Identity]] = []

    def now(self) -> float:
        """The time by which tokens and certificates expire, in Unix seconds."""
        return self._clock.now()

    def accept(self, token: str, identity: Identity) -> None:
        """Accept a token that is not signed, without end: that of the kubeconfig."""
        self._static.append((token.encode(), identity))

    def _identity_of_static(self, token: str) -> Identity | None:
        encoding = token.encode()
        return next((identity for known, identity in self._static if secrets.compare_digest(encoding, known)), None)

    def request(self, key: tuple[str, str], body: Object) -> Object:
        """The TokenRequest with its status, for the account `key` (namespace, name).

        Raises:
            ApiStatusError: the account or the object to bind to does not exist, or a field is invalid.
        """
        account = self._store.collection(_ACCOUNTS).get(key)
        if account is None:
            raise errors.not_found("serviceaccounts", "", key[1])
        spec = body.get("spec") or {}
        seconds = spec.get("expirationSeconds") or _DEFAULT_SECONDS
        _check(key, body.get("metadata") or {}, seconds)
        now = int(self._clock.now())
        audiences = spec.get("audiences") or [ISSUER]
        bound = self._bound(key[0], spec.get("boundObjectRef"))
        private = {
            "namespace": key[0],
            "serviceaccount": {"name": key[1], "uid": account.obj["metadata"]["uid"]},
            **bound,
        }
        self._issued += 1
        seed = f"{account.obj['metadata']['uid']} {now} {self._issued}".encode()
        token = self._key.token(
            {
                "iss": ISSUER,
                "aud": audiences,
                "sub": ACCOUNT_PREFIX + ":".join(key),
                "iat": now,
                "nbf": now,
                "exp": now + seconds,
                "jti": str(UUID(bytes=hashlib.sha256(seed).digest()[:16])),
                "kubernetes.io": private,
            }
        )
        return {
            **body,
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": key[1], "namespace": key[0], "creationTimestamp": rfc3339(now)},
            "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": rfc3339(now + seconds)},
        }

    def identify(self, token: str, audiences: list[str] | None = None) -> Identity | None:
        """The identity of a token; None if it is invalid or expired, is for none of `audiences` (default: this server),
        or its account or the object it is bound to does not exist.
        """
        known = self._identity_of_static(token)
        if known is not None:
            return known if ISSUER in (audiences or (ISSUER,)) else None
        claims = self._key.claims(token)
        if claims is None or claims["exp"] <= self._clock.now():
            return None
        if not set(claims["aud"]).intersection(audiences or (ISSUER,)):
            return None
        private = claims["kubernetes.io"]
        namespace, name = private["namespace"], private["serviceaccount"]["name"]
        for kind, collection, place in (
            ("serviceaccount", _ACCOUNTS, namespace),
            *((kind.lower(), key, "" if kind == "Node" else namespace) for (_, kind), key in _BINDABLE.items()),
        ):
            entry = private.get(kind)
            if entry is not None:
                item = self._store.collection(collection).get((place, entry["name"]))
                if item is None or item.obj["metadata"]["uid"] != entry["uid"]:
                    return None
        return Identity(
            f"{ACCOUNT_PREFIX}{namespace}:{name}",
            (*account_groups(namespace), "system:authenticated"),
            private["serviceaccount"]["uid"],
            ((_CREDENTIAL_ID, (f"JTI={claims['jti']}",)), *_extra(private)),
        )

    def audiences(self, token: str) -> list[str]:
        """The audiences of a valid token."""
        if self._identity_of_static(token) is not None:
            return [ISSUER]
        claims = self._key.claims(token)
        return list(claims["aud"]) if claims is not None else []

    def issuer_document(self) -> Object:
        """The OpenID provider document."""
        return {
            "issuer": ISSUER,
            "jwks_uri": f"{ISSUER}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def keys_document(self) -> Object:
        """The JSON web key set."""
        return {"keys": [self._key.public_document()]}

    def _bound(self, namespace: str, reference: Any) -> Object:
        """The private claim for the object that a token is bound to.

        Raises:
            ApiStatusError: it does not exist, or no token can be bound to its kind.
        """
        if not reference:
            return {}
        version, kind = reference.get("apiVersion") or "", reference.get("kind") or ""
        collection = _BINDABLE.get((version, kind))
        if collection is None:
            group, _, name = version.rpartition("/")
            raise errors.bad_request(f"cannot bind token to object of type {group}/{name}, Kind={kind}")
        name, uid = reference.get("name") or "", reference.get("uid") or ""
        item = self._store.collection(collection).get(("" if kind == "Node" else namespace, name))
        if item is None:
            raise errors.not_found(collection[1], "", name)
        result = item.obj["metadata"]["uid"]
        if uid and uid != result:
            why = f"the UID in the bound object reference ({uid}) does not match the UID in record."
            raise errors.conflict(collection[1], "", name, why)
        return {kind.lower(): {"name": name, "uid": result}}


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of all service accounts of a namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def _extra(private: Object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (f"authentication.kubernetes.io/{kind}-{field}", (private[kind][field],))
        for kind in ("pod", "node")
        if kind in private
        for field in ("name", "uid")
    )


def _check(key: tuple[str, str], metadata: Object, seconds: Any) -> None:
    cause: Cause | None = None
    subject = ""
    if metadata.get("name") and metadata["name"] != key[1]:
        subject = key[1]
        cause = invalid("metadata.name", metadata["name"], "must match the service account name if specified")
    elif not isinstance(seconds, int) or seconds < _MIN_SECONDS:
        cause = invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    elif seconds > _MAX_SECONDS:
        cause = invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if cause is not None:
        raise errors.invalid(
            "TokenRequest", _GROUP, subject, message("TokenRequest", subject, [cause], group=_GROUP), details([cause])
        )
