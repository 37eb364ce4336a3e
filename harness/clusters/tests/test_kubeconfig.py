"""Credentials of a kubeconfig."""

from pathlib import Path

from seatrial.harness.clusters.kubeconfig import load_access

TOKEN = """\
apiVersion: v1
kind: Config
clusters: [{name: k, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {token: secret}}]
contexts: [{name: k, context: {cluster: k, user: a}}]
current-context: k
"""


def test_a_token_is_sent_as_a_bearer_token(tmp_path: Path) -> None:
    """The official client has named the key of the token in two ways."""
    path = tmp_path / "kubeconfig"
    path.write_text(TOKEN)
    assert load_access(path).headers == {"authorization": "Bearer secret"}
