"""A certificate authority that lives as long as its process, and the certificates that it issues.

The webhooks' server and the harness' API server both use it. Import it when a certificate is made: the package
cryptography takes a tenth of a second to load.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = timedelta(days=365)
LEEWAY = timedelta(minutes=5)  # how long before now certificates become valid: clocks of clients differ
KEY_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    """A certificate authority whose key is kept in memory only. Times are in Unix seconds."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate, self._key = certificate, key
        self.pem = pem(certificate)

    @classmethod
    def fresh(cls, now: float) -> Self:
        """An authority with a new key, valid for a year; it signs certificates of ends only."""
        moment = moment_of(now)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("seatrial-ca")
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - LEEWAY)
            .not_valid_after(moment + VALID_FOR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(key_usage(["digital_signature", "key_cert_sign", "crl_sign"]), critical=True)
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
        moment, key = moment_of(now), ec.generate_private_key(ec.SECP256R1())
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = self.builder(_name(common, organizations), moment - LEEWAY, moment + VALID_FOR)
        builder = (
            builder.public_key(key.public_key())
            .add_extension(key_usage(["digital_signature", "key_encipherment"]), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return Pair(
            pem(builder.sign(self._key, hashes.SHA256())),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )

    def builder(self, subject: x509.Name, start: datetime, end: datetime) -> x509.CertificateBuilder:
        """A certificate of this authority without key, uses and names; it is no authority itself."""
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


def key_usage(uses: Iterable[str]) -> x509.KeyUsage:
    """The extension with these members of KEY_USES."""
    targets = frozenset(uses)
    return x509.KeyUsage(**{use: use in targets for use in KEY_USES}, encipher_only=False, decipher_only=False)


def moment_of(seconds: float) -> datetime:
    """Unix seconds as a datetime, without fractions: certificates have none."""
    return datetime.fromtimestamp(int(seconds), UTC)


def pem(certificate: x509.Certificate) -> bytes:
    """The certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _name(common: str, organizations: Sequence[str] = ()) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )
