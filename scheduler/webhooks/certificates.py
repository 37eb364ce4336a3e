"""The TLS folder: `tls.crt`, `tls.key` and, for clients, `ca.crt`.

In a cluster it is a mounted Secret. In an empty folder a self-signed certificate is created, valid for a year.
"""

import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"
_VALID_FOR, _LEEWAY = timedelta(days=365), timedelta(minutes=5)


class CertificateError(Exception):
    """The folder cannot be used; the message gives the reason."""


def load_context(folder: Path, hosts: tuple[str, ...]) -> tuple[ssl.SSLContext, bytes]:
    """The server's TLS context, and the certificate authorities for clients, PEM.

    Raises:
        CertificateError: the folder has only one of certificate and key, or OpenSSL does not accept them.
    """
    certificate, key = folder / CERTIFICATE, folder / KEY
    if certificate.exists() is not key.exists():
        missing = key if certificate.exists() else certificate
        raise CertificateError(f"{folder}: expected both {CERTIFICATE} and {KEY}, or neither; found no {missing.name}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if not certificate.exists():
            _make(folder, hosts)
        context.load_cert_chain(certificate, key)
        authorities = folder / AUTHORITIES
        return context, (authorities if authorities.exists() else certificate).read_bytes()
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(f"{folder}: {error.strerror or error}") from error


def _make(folder: Path, hosts: tuple[str, ...]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "seatrial-pod-webhook")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LEEWAY)
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with os.fdopen(os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as sink:
        sink.write(secret)
    public = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / CERTIFICATE).write_bytes(public)
    (folder / AUTHORITIES).write_bytes(public)
