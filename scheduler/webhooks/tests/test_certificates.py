"""The TLS folder of the webhooks: created, refused, renewed while the server runs."""

import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from seatrial.scheduler.webhooks.certificates import CertificateError, Renewal, load_context

NOW = 1_800_000_000.0


def test_a_certificate_without_its_key(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("x")

    with pytest.raises(CertificateError, match=r"expected both tls\.crt and tls\.key, or neither; found no tls\.key"):
        load_context(tmp_path, ("localhost",), NOW)


def test_a_certificate_is_created_once_and_its_key_is_private(tmp_path: Path) -> None:
    _, first = load_context(tmp_path, ("localhost",), NOW)
    _, second = load_context(tmp_path, ("localhost",), NOW)

    assert first == second
    assert (tmp_path / "tls.key").stat().st_mode & 0o777 == 0o600


def test_a_renewed_certificate_is_used_by_the_next_connection(tmp_path: Path) -> None:
    """A pair that does not fit together, as while a Secret is written, changes nothing; nor does a missing key."""
    used, renewed = tmp_path / "used", tmp_path / "renewed"
    context, _ = load_context(used, ("localhost",), NOW)
    load_context(renewed, ("localhost",), NOW)
    first, second = (ssl.PEM_cert_to_DER_cert((folder / "tls.crt").read_text()) for folder in (used, renewed))
    renewal = Renewal(used, context)
    assert not renewal.check()

    (used / "tls.crt").write_bytes((renewed / "tls.crt").read_bytes())
    assert not renewal.check()
    assert presented(context) == first

    (used / "tls.key").write_bytes((renewed / "tls.key").read_bytes())
    assert renewal.check()
    assert presented(context) == second

    (used / "tls.key").unlink()
    assert not renewal.check()
    assert presented(context) == second


def presented(context: ssl.SSLContext) -> bytes | None:
    """The certificate that a server with this context shows to a client, DER."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE  # NOW is not today
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(inward, outward, server_side=True)
    client = anyone.wrap_bio(outward, inward)
    for side in (client, server, client):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.getpeercert(binary_form=True)
