"""Who may come in: a fresh certificate authority, the administrator's certificate and token, and the kubeconfig.

Everything is made for one run of one server and worthless afterwards. Secrets are files that only the user can read.
"""

import base64
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from harness.apiserver.authority import Authority, Pair
from harness.apiserver.identity import ADMIN, Identity
from harness.apiserver.rbac import MASTERS
from harness.private_files import write_private


@dataclass(frozen=True, slots=True)
class Credentials:
    """All that one server and its administrator need."""

    signer: Authority
    server: Pair
    admin: Pair
    token: str

    @property
    def authority(self) -> bytes:
        """The authority's certificate, PEM."""
        return self.signer.pem


def make_credentials(hosts: Sequence[str], now: float) -> Credentials:
    """A certificate authority that nobody else has, and what it signed at `now` (Unix seconds)."""
    signer = Authority.fresh(now)
    names = dict.fromkeys([*hosts, "localhost", "127.0.0.1", "::1", "kubernetes.default.svc"])
    server = signer.issue("kube-apiserver", (), now, hosts=list(names))
    admin = signer.issue(ADMIN.name, (MASTERS,), now)
    return Credentials(signer, server, admin, secrets.token_urlsafe(32))


def server_context(credentials: Credentials, folder: Path) -> ssl.SSLContext:
    """TLS for the server; clients may show a certificate. OpenSSL wants files, so the folder gets them for a moment."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    chain, key = folder / "server.crt", folder / "server.key"
    try:
        write_private(chain, credentials.server.certificate)
        write_private(key, credentials.server.key)
        context.load_cert_chain(chain, key)
    finally:
        chain.unlink(missing_ok=True)
        key.unlink(missing_ok=True)
    context.load_verify_locations(cadata=credentials.authority.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


def identify(credentials: Credentials, authorization: str, certificate: dict[str, object] | None) -> Identity | None:
    """Who shows these; None if nobody known. The certificate has already been verified by TLS."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return ADMIN if secrets.compare_digest(token.strip().encode(), credentials.token.encode()) else None
    if certificate:
        rows: list[tuple[tuple[str, str], ...]] = list(certificate.get("subject", ()))  # type: ignore[call-overload]
        fields = [pair for row in rows for pair in row]
        names = [value for kind, value in fields if kind == "commonName"]
        groups = tuple(value for kind, value in fields if kind == "organizationName")
        if names:
            return Identity(names[0], (*groups, "system:authenticated"))
    return None


def kubeconfig(credentials: Credentials, url: str) -> bytes:
    """A kubeconfig for the administrator, with certificate and token inside."""

    def inside(data: bytes) -> str:
        return base64.b64encode(data).decode()

    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "seatrial",
        "clusters": [
            {
                "name": "seatrial",
                "cluster": {"server": url, "certificate-authority-data": inside(credentials.authority)},
            }
        ],
        "users": [
            {
                "name": "seatrial-admin",
                "user": {
                    "client-certificate-data": inside(credentials.admin.certificate),
                    "client-key-data": inside(credentials.admin.key),
                    "token": credentials.token,
                },
            }
        ],
        "contexts": [{"name": "seatrial", "context": {"cluster": "seatrial", "user": "seatrial-admin"}}],
    }
    return yaml.safe_dump(content, sort_keys=False).encode()
