"""Credentials, the kubeconfig, and authentication."""

import ssl
from pathlib import Path

import pytest
import yaml

from seatrial.harness.apiserver.access.credentials import identify, kubeconfig, make_credentials, server_context
from seatrial.harness.apiserver.access.identity import ADMIN
from seatrial.harness.apiserver.tests.serving import Served, served
from seatrial.scheduler.api.clock import WallClock

CREDENTIALS = make_credentials(["127.0.0.1"], WallClock().now())


@pytest.mark.parametrize(
    ("header", "known"),
    [
        pytest.param(f"Bearer {CREDENTIALS.token}", True, id="the-token"),
        pytest.param(f"bearer {CREDENTIALS.token} ", True, id="case-and-spaces"),
        pytest.param("Bearer x", False, id="another-token"),
        pytest.param("Bearer ", False, id="no-token"),
        pytest.param("", False, id="nothing"),
        pytest.param(f"Basic {CREDENTIALS.token}", False, id="another-scheme"),
        pytest.param("Bearer \u00e9", False, id="not-ascii"),
    ],
)
def test_tokens(header: str, known: bool) -> None:
    assert identify(CREDENTIALS, header, None) == (ADMIN if known else None)


def test_identity_from_a_certificate() -> None:
    subject = ((("organizationName", "system:masters"),), (("commonName", "kubernetes-admin"),))
    identity = identify(CREDENTIALS, "", {"subject": subject})
    assert identity is not None
    assert (identity.name, identity.groups) == ("kubernetes-admin", ("system:masters", "system:authenticated"))


def test_no_two_servers_share_anything() -> None:
    other = make_credentials(["127.0.0.1"], WallClock().now())
    assert other.token != CREDENTIALS.token
    assert other.authority != CREDENTIALS.authority


def test_the_kubeconfig_is_complete() -> None:
    document = yaml.safe_load(kubeconfig(CREDENTIALS, "https://127.0.0.1:1"))
    assert document["current-context"] == document["contexts"][0]["name"]
    assert document["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert document["users"][0]["user"]["token"] == CREDENTIALS.token


def test_keys_do_not_stay_on_disk(tmp_path: Path) -> None:
    server_context(CREDENTIALS, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_over_tls(tmp_path: Path) -> None:
    with served() as place:
        with place.connect() as wire:
            assert wire.ask("GET", "/api/v1/nodes", authorization="")[0] == 403
            assert wire.ask("GET", "/version", authorization="Bearer wrong")[0] == 401
            for path in ("/healthz", "/livez", "/readyz", "/version"):
                assert wire.ask("GET", path, authorization="")[0] == 200
        cert, key = tmp_path / "c", tmp_path / "k"
        cert.write_bytes(place.credentials.admin.certificate)
        key.write_bytes(place.credentials.admin.key)
        place.context.load_cert_chain(cert, key)
        with place.connect() as wire:
            assert wire.ask("GET", "/api/v1/nodes", authorization="")[0] == 200
        cert.write_bytes(CREDENTIALS.admin.certificate)  # of another authority
        key.write_bytes(CREDENTIALS.admin.key)
        place.context.load_cert_chain(cert, key)
        assert _first_byte(place) == b""


def _first_byte(place: Served) -> bytes:
    """The first byte of a response. TLS 1.3 refuses an unknown certificate after the client's handshake has ended."""
    try:
        with place.connect() as wire:
            wire.plug.sendall(wire.request("GET", "/version", authorization=""))
            return wire.plug.recv(1)
    except (ssl.SSLError, ConnectionError):
        return b""
