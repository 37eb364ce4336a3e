"""The key that signs service account tokens: JSON web tokens with ES256 (P-256 and SHA-256).

It is made when the first token is issued: most servers never issue one, and cryptography takes time to load.
"""

import base64
import hashlib
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_BYTES = 32  # of a coordinate, and of each half of a signature
_MAX_CACHED, _LONGEST = 1024, 4096  # verified tokens; characters of one that is kept


class SigningKey:
    """Signs and verifies tokens. Claims of verified tokens are cached, since every request brings its token."""

    def __init__(self) -> None:
        self._made: EllipticCurvePrivateKey | None = None
        self._verified: dict[str, dict[str, Any]] = {}

    @property
    def _private(self) -> "EllipticCurvePrivateKey":
        if self._made is None:
            from cryptography.hazmat.primitives.asymmetric import ec  # keeps start-up short

            self._made = ec.generate_private_key(ec.SECP256R1())
        return self._made

    def token(self, claims: dict[str, Any]) -> str:
        """The signed token."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        head = {"alg": "ES256", "kid": self.public_document()["kid"], "typ": "JWT"}
        text = f"{_encode(orjson.dumps(head))}.{_encode(orjson.dumps(claims))}"
        first, second = decode_dss_signature(self._private.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_encode(first.to_bytes(_BYTES) + second.to_bytes(_BYTES))}"

    def claims(self, token: str) -> dict[str, Any] | None:
        """The claims of a token that this key has signed; None if it has not."""
        known = self._verified.get(token)
        if known is not None:
            return known
        if self._made is None or token.count(".") != 2:
            return None
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        text, _, signature = token.rpartition(".")
        try:
            raw = decoded(signature)
            dss_signature = encode_dss_signature(int.from_bytes(raw[:_BYTES]), int.from_bytes(raw[_BYTES:]))
            self._private.public_key().verify(dss_signature, text.encode(), ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return None
        claims: dict[str, Any] = orjson.loads(decoded(text.partition(".")[2]))
        if len(token) <= _LONGEST:
            if len(self._verified) >= _MAX_CACHED:
                self._verified.clear()
            self._verified[token] = claims
        return claims

    def public_document(self) -> dict[str, str]:
        """The public key as a JSON web key. Its ID is its thumbprint (RFC 7638)."""
        numbers = self._private.public_key().public_numbers()
        key = {
            "crv": "P-256",
            "kty": "EC",
            "x": _encode(numbers.x.to_bytes(_BYTES)),
            "y": _encode(numbers.y.to_bytes(_BYTES)),
        }
        digest = hashlib.sha256(orjson.dumps(key, option=orjson.OPT_SORT_KEYS)).digest()
        return {"use": "sig", **key, "kid": _encode(digest), "alg": "ES256"}


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """The bytes of base64url text without padding."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
