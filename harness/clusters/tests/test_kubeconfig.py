"""Credentials of a kubeconfig."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.harness.clusters.existing import ExistingBackend
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


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(
            {"current-context": None},
            "current-context: expected one of its contexts (k), found none; give",
            id="no-current-context",
        ),
        pytest.param({"current-context": "x"}, "expected one of its contexts (k), found 'x'", id="unknown-context"),
        pytest.param({"users": []}, "context 'k': user: expected one of its users (none), found 'a'", id="no-user"),
        pytest.param(
            {"users": [{"name": "a", "user": {"client-certificate": "a.crt"}}]},
            "user 'a': client-certificate: expected a file, found none at a.crt",
            id="no-certificate",
        ),
        pytest.param(
            {"users": [{"name": "a", "user": {"exec": {"command": "no-such-program"}}}]},
            "user 'a': exec: expected a program, found no 'no-such-program'",
            id="no-program",
        ),
        pytest.param({}, "found a closed port; start the cluster, or correct `server`", id="no-server"),
    ],
)
def test_a_kubeconfig_that_leads_nowhere(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    """What is wrong is said with the name of the user's file, not of the copy that is read."""
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({**yaml.safe_load(TOKEN), **change}))
    text = str(ExistingBackend(kubeconfig=path).probe())
    assert why in text
    assert str(path) in text or not change
