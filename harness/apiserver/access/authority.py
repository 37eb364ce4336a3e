"""The certificate authority of one server: issues its own certificates and signs the requests of clients."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = timedelta(days=365)
_LEEWAY = timedelta(minutes=5)
_SHORT_LIVED = timedelta(hours=8)  # certificates valid for less start now, not `_LEEWAY` earlier
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
_ALL_KEY_USES = tuple(dict.fromkeys(_KEY_USES.values()))


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority whose key is kept in memory only. Times are in Unix seconds."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate, self._key = certificate, key
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)

    @classmethod
    def fresh(cls, now: float) -> Self:
        moment = _moment(now)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("seatrial-ca")
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - _LEEWAY)
            .not_valid_after(moment + VALID_FOR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_uses(["digital signature", "cert sign", "crl sign"]), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    def key_pem(self) -> bytes:
        """The private key, for a control plane of other programs that signs with it."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )

    def issue(self, common: str, organizations: Sequence[str], now: float, *, hosts: Sequence[str] = ()) -> Pair:
        """A new key and certificate: for a server with these `hosts` (names or addresses), or for a client if empty."""
        moment, key = _moment(now), ec.generate_private_key(ec.SECP256R1())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self._builder(_name(common, organizations), moment - _LEEWAY, moment + VALID_FOR)
        builder = (
            builder.public_key(key.public_key())
            .add_extension(_key_uses(["digital signature", "key encipherment"]), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def sign(
        self, request: x509.CertificateSigningRequest, usages: Sequence[str], now: float, seconds: int | None = None
    ) -> bytes:
        """Sign a client's request; returns PEM, valid for `seconds` (limited to 10 minutes to a year; None: a year).

        Follows the signing policy of `pkg/controller/certificates/authority`.
        """
        moment = _moment(now)
        start = moment - _LEEWAY
        requested = VALID_FOR if seconds is None else timedelta(seconds=seconds)
        span = min(max(requested, _MIN_VALIDITY), VALID_FOR)
        end = min((moment if span < _SHORT_LIVED else start) + span, self._certificate.not_valid_after_utc)
        builder = self._builder(request.subject, start, end).public_key(request.public_key())
        uses = [usage for usage in usages if usage in _KEY_USES]
        if uses:
            builder = builder.add_extension(_key_uses(uses), critical=True)
        purposes = list(dict.fromkeys(_PURPOSES[usage] for usage in usages if usage in _PURPOSES))
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        names = alternatives(request)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _builder(self, subject: x509.Name, start: datetime, end: datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._certificate.subject)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def alternatives(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    """The subject alternative names of a request."""
    try:
        return list(request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _name(common: str, organizations: Sequence[str] = ()) -> x509.Name:
    return x509.Name([
        *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations),
        x509.NameAttribute(NameOID.COMMON_NAME, common),
    ])  # fmt: skip


def _key_uses(usages: Sequence[str]) -> x509.KeyUsage:
    wanted = {_KEY_USES[usage] for usage in usages}
    return x509.KeyUsage(**{name: name in wanted for name in _ALL_KEY_USES}, encipher_only=False, decipher_only=False)
