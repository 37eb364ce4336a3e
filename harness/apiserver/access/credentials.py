"""Authentication of one server: a new certificate authority, the administrator's credentials, and the kubeconfig.

All credentials are generated for one run of a server and are invalid afterwards. Secret files have mode 0600.
"""

import base64
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from seatrial.harness.apiserver.access.authority import Authority
from seatrial.harness.apiserver.access.identity import ADMIN, Identity
from seatrial.harness.apiserver.access.rbac import MASTERS
from seatrial.scheduler.api.certificates import Pair
from seatrial.scheduler.api.private_files import write_private


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of one server and its administrator."""

    signer: Authority
    server: Pair
    admin: Pair
    token: str

    @property
    def authority(self) -> bytes:
        """The certificate of the authority, PEM."""
        return self.signer.pem


def make_credentials(hosts: Sequence[str], now: float) -> Credentials:
    """A new certificate authority, with server and administrator certificates issued at `now` (Unix seconds)."""
    signer = Authority.fresh(now)
    names = dict.fromkeys([*hosts, "localhost", "127.0.0.1", "::1", "kubernetes.default.svc"])
    server = signer.issue("kube-apiserver", (), now, hosts=list(names))
    admin = signer.issue(ADMIN.name, (MASTERS,), now)
    return Credentials(signer, server, admin, secrets.token_urlsafe(32))


def server_context(credentials: Credentials, folder: Path) -> ssl.SSLContext:
    """The TLS context of the server; client certificates are optional. Keys are in `folder` during the call only."""
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
    """The identity for these credentials; None if unknown. The certificate is already verified by TLS."""
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


def kubeconfig(credentials: Credentials, url: str, *, with_token: bool = True) -> bytes:
    """A kubeconfig for the administrator, with embedded certificate, and by default the token."""

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
                    **({"token": credentials.token} if with_token else {}),
                },
            }
        ],
        "contexts": [{"name": "seatrial", "context": {"cluster": "seatrial", "user": "seatrial-admin"}}],
    }
    return yaml.safe_dump(content, sort_keys=False).encode()
