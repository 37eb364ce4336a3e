"""Authentication of requests: client certificate, bearer token, anonymous.

Follows upstream: a certificate takes precedence over a token; a token that is not valid is an error (401), a request
without credentials is the user `system:anonymous`, to whom RBAC grants next to nothing.
"""

from ssl import cert_time_to_seconds

from seatrial.harness.apiserver.access.credentials import Credentials, identify
from seatrial.harness.apiserver.access.identity import ANONYMOUS, Identity
from seatrial.harness.apiserver.access.tokens import Tokens


def authenticate(
    credentials: Credentials, tokens: Tokens, authorization: str, certificate: dict[str, object] | None
) -> Identity | None:
    """The identity of a client; None if its token is not valid, or its certificate has expired since it connected."""
    if certificate and "notAfter" in certificate and tokens.now() >= cert_time_to_seconds(str(certificate["notAfter"])):
        return None
    known = identify(credentials, "", certificate)
    if known is not None:
        return known
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return ANONYMOUS
    return identify(credentials, authorization, None) or tokens.identify(token.strip())
