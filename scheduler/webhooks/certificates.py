"""The TLS folder: `tls.crt`, `tls.key` and, for clients, `ca.crt`.

In a cluster it is a mounted Secret; a Secret that has changed is used from the next connection on. In an empty
folder a certificate is created that is valid for a year. The key of its authority is not kept.
"""

import logging
import os
import ssl
from pathlib import Path

log = logging.getLogger(__name__)

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
    try:
        if not certificate.exists():
            _make(folder, hosts, now)
        context = _context(folder)
        authorities = folder / AUTHORITIES
        return context, (authorities if authorities.exists() else certificate).read_bytes()
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(f"{folder}: {error.strerror or error}") from error


class Renewal:
    """Gives a server's TLS context the pair that a folder has now. Connections that are open keep their certificate."""

    def __init__(self, folder: Path, context: ssl.SSLContext) -> None:
        """`context`: of `load_context` for the same folder."""
        self._folder, self._context = folder, context
        self._seen = self._pair()

    def check(self) -> bool:
        """Use a changed pair; whether it was changed and can be used. A pair that cannot be used is logged once."""
        pair = self._pair()
        if pair == self._seen:
            return False
        self._seen = pair
        try:
            _context(self._folder)  # tried on another context first: a failure would leave this one without a key
            self._context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY)
        except (OSError, ssl.SSLError) as error:
            log.warning("certificate not renewed folder=%s error=%s", self._folder, error)
            return False
        log.warning("certificate renewed folder=%s", self._folder)
        return True

    def _pair(self) -> tuple[bytes, ...]:
        """The two files; empty while one of them cannot be read."""
        try:
            return tuple((self._folder / name).read_bytes() for name in (CERTIFICATE, KEY))
        except OSError:
            return ()


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    return context


def _make(folder: Path, hosts: tuple[str, ...], now: float) -> None:
    from seatrial.scheduler.api.certificates import CertificateAuthority  # a mounted Secret needs no cryptography

    authority = CertificateAuthority.fresh(now)
    pair = authority.issue("seatrial-webhooks", (), now, hosts=hosts)
    folder.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as sink:
        sink.write(pair.key)
    (folder / CERTIFICATE).write_bytes(pair.certificate)
    (folder / AUTHORITIES).write_bytes(authority.pem)
