"""The TLS folder: `tls.crt`, `tls.key` and, for clients, `ca.crt`.

In a cluster it is a mounted Secret. In an empty folder a certificate is created that is valid for a year. The key of
its authority is not kept.
"""

import os
import ssl
from pathlib import Path

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"


class CertificateError(Exception):
    """The folder cannot be used; the message gives the reason."""


def load_context(folder: Path, hosts: tuple[str, ...], now: float) -> tuple[ssl.SSLContext, bytes]:
    """The server's TLS context, and the certificate authorities for clients, PEM. `now`: Unix seconds.

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
            _make(folder, hosts, now)
        context.load_cert_chain(certificate, key)
        authorities = folder / AUTHORITIES
        return context, (authorities if authorities.exists() else certificate).read_bytes()
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(f"{folder}: {error.strerror or error}") from error


def _make(folder: Path, hosts: tuple[str, ...], now: float) -> None:
    from seatrial.scheduler.api.certificates import CertificateAuthority  # a mounted Secret needs no cryptography

    authority = CertificateAuthority.fresh(now)
    pair = authority.issue("seatrial-webhooks", (), now, hosts=hosts)
    folder.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as sink:
        sink.write(pair.key)
    (folder / CERTIFICATE).write_bytes(pair.certificate)
    (folder / AUTHORITIES).write_bytes(authority.pem)
