"""Credentials of the API server from the service account of a pod."""

from pathlib import Path

import pytest
from kubernetes.config import incluster_config, kube_config

from seatrial.scheduler.client.kubeconfig import KubeconfigError, load_server
from seatrial.scheduler.webhooks.certificates import CERTIFICATE, load_context


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What kubelet gives to a pod; no kubeconfig."""
    load_context(tmp_path, ("10.96.0.1",))
    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / CERTIFICATE))
    return tmp_path


def test_a_pod_uses_its_service_account(account: Path) -> None:
    """The token is sent, and its file is known, because kubelet replaces it."""
    server = load_server(None)
    assert (server.host, server.port, server.authorization) == ("10.96.0.1", 443, "bearer secret")
    assert server.token_file == account / "token"
    assert server.tls is not None


def test_a_pod_without_token_is_told(account: Path) -> None:
    (account / "token").unlink()
    with pytest.raises(KubeconfigError, match="Service token file does not exist"):
        load_server(None)
