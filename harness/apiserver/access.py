"""Who may come in: a fresh certificate authority, the administrator's certificate and token, and the kubeconfig.

Everything is made for one run of one server and worthless afterwards. Secrets are files that only the user can read.
"""

import ipaddress
import os
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from harness.apiserver.identity import ADMIN, Identity

VALID_FOR = timedelta(days=365)
_LEEWAY = timedelta(minutes=5)
_PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Credentials:
    """All that one server and its administrator need."""

    authority: bytes  # PEM
    server: Pair
    admin: Pair
    token: str


def make_credentials(hosts: Sequence[str], now: datetime | None = None) -> Credentials:
    """A certificate authority that nobody else has, and what it signed. The authority's key is not kept."""
    moment = now or datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("seatrial-ca")
    authority = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _LEEWAY)
        .not_valid_after(moment + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1", "::1", "kubernetes.default.svc"]):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    server = _signed(authority, key, "kube-apiserver", (), moment, alternative=names)
    admin = _signed(authority, key, ADMIN.name, ("system:masters",), moment)
    pem = authority.public_bytes(serialization.Encoding.PEM)
    return Credentials(pem, server, admin, secrets.token_urlsafe(32))


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
    import base64

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


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, in one step: whoever sees it sees it whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
    try:
        with os.fdopen(descriptor, "wb") as sink:
            sink.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _name(common: str, organizations: Sequence[str] = ()) -> x509.Name:
    return x509.Name([
        *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations),
        x509.NameAttribute(NameOID.COMMON_NAME, common),
    ])  # fmt: skip


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=not signs,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    common: str,
    organizations: Sequence[str],
    moment: datetime,
    *,
    alternative: Sequence[x509.GeneralName] = (),
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if alternative else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(common, organizations))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - _LEEWAY)
        .not_valid_after(moment + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
