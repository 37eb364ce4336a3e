"""The certificate authority of one server: issues its own certificates and signs the requests of clients."""

from collections.abc import Sequence
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from seatrial.scheduler.api.certificates import LEEWAY, VALID_FOR, CertificateAuthority, key_usage, moment_of, pem

_SHORT_LIVED = timedelta(hours=8)  # certificates valid for less start now, not `LEEWAY` earlier
_MIN_VALIDITY = timedelta(minutes=10)
_PURPOSES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
}
_KEY_USES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "data encipherment": "data_encipherment",
    "key agreement": "key_agreement",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
}


class Authority(CertificateAuthority):
    """A certificate authority that also signs certificate requests."""

    def sign(
        self, request: x509.CertificateSigningRequest, usages: Sequence[str], now: float, seconds: int | None = None
    ) -> bytes:
        """Sign a client's request; returns PEM, valid for `seconds` (limited to 10 minutes to a year; None: a year).

        Follows the signing policy of `pkg/controller/certificates/authority`.
        """
        moment = moment_of(now)
        start = moment - LEEWAY
        requested = VALID_FOR if seconds is None else timedelta(seconds=seconds)
        span = min(max(requested, _MIN_VALIDITY), VALID_FOR)
        end = min((moment if span < _SHORT_LIVED else start) + span, self._certificate.not_valid_after_utc)
        builder = self.builder(request.subject, start, end).public_key(request.public_key())
        uses = [_KEY_USES[usage] for usage in usages if usage in _KEY_USES]
        if uses:
            builder = builder.add_extension(key_usage(uses), critical=True)
        purposes = list(dict.fromkeys(_PURPOSES[usage] for usage in usages if usage in _PURPOSES))
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        names = alternatives(request)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return pem(builder.sign(self._key, hashes.SHA256()))


def alternatives(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    """The subject alternative names of a request."""
    try:
        return list(request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []
