"""Credentials of a kubeconfig and of a pod's service account."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import certifi
import pytest
import yaml

from seatrial.scheduler.api.private_files import remove_abandoned
from seatrial.scheduler.client.kubeconfig import KubeconfigError, load_server


def kubeconfig(folder: Path, user: dict[str, Any]) -> Path:
    path = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:8080/prefix"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("user", "want"),
    [
        pytest.param({"token": "abc"}, "Bearer abc", id="a-token"),
        pytest.param({"username": "u", "password": "p"}, "Basic dTpw", id="a-password"),
        pytest.param({}, "", id="none"),
    ],
)
def test_the_header_of_a_user(tmp_path: Path, user: dict[str, Any], want: str) -> None:
    assert load_server(kubeconfig(tmp_path, user)).authorization == want


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xff\xfe\x00bad", id="no-text"),
        pytest.param(b"a: [\n", id="no-yaml"),
        pytest.param(b"- 1\n", id="a-list"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"clusters: 5\ncurrent-context: 7\n", id="odd-fields"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.yaml").write_bytes(content)
    with pytest.raises(KubeconfigError, match=r"kubeconfig .*odd\.yaml"):
        load_server(tmp_path / "odd.yaml")


def test_a_token_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    server = load_server(kubeconfig(tmp_path, {"tokenFile": str(tmp_path / "token")}))
    assert server.authorization == "Bearer from-a-file"


def test_the_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kubeconfig a pod has the token of its files and the API server of its environment."""
    from kubernetes.config import incluster_config, kube_config

    (tmp_path / "token").write_text("of-the-pod")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    server = load_server(None)
    assert (server.host, server.port) == ("127.0.0.1", 6443)
    assert server.authorization.lower() == "bearer of-the-pod"
    assert server.token_file == tmp_path / "token", "kubelet replaces the token"


def test_certificates_of_a_process_that_was_killed_while_it_read_them_are_removed_by_the_next(tmp_path: Path) -> None:
    program = (
        "import os, sys; from kubernetes import config; from seatrial.scheduler.client.kubeconfig import load_server\n"
        "def killed(temp_file_path, **_): print(temp_file_path, flush=True); os.kill(os.getpid(), 9)\n"
        "config.load_kube_config = killed; load_server(__import__('pathlib').Path(sys.argv[1]))"
    )
    words = [sys.executable, "-c", program, str(kubeconfig(tmp_path, {}))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert done.returncode == -9
    assert left.is_dir()
    remove_abandoned()
    assert not left.exists()
