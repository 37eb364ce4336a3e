"""Files of ClusterRoles, and what kube-apiserver's log tells of refused requests; both without a cluster."""

import re
from pathlib import Path

import pytest

from seatrial.harness.clusters.backends import EMBEDDED, ENVTEST, backend_named
from seatrial.harness.clusters.restricted_account import RefusedRequests, cluster_roles
from seatrial.harness.errors import UsageError

# The form of kube-apiserver 1.34.2; test_cluster_role.py reads the log of a real one.
GROUPS = '"system:serviceaccounts" "system:serviceaccounts:default" "system:authenticated"'
LINE = 'I1123 07:51:42.1 4711 rbac.go:136] RBAC: no rules authorize user "{user}" with groups [{groups}] to {what}\n'
OURS = "system:serviceaccount:default:seatrial"


def line(what: str, user: str = OURS) -> str:
    return LINE.format(user=user, groups=GROUPS, what=what)


@pytest.fixture
def role(tmp_path: Path) -> Path:
    """The file of a ClusterRole, which the test writes."""
    return tmp_path / "role.yaml"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param("kind: Role", "found Role", id="role-of-a-namespace"),
        pytest.param("kind: ClusterRole\nmetadata: {}", "found one without", id="no-name"),
        pytest.param("- a", "found list", id="list"),
    ],
)
def test_other_files_are_refused(role: Path, content: str, text: str) -> None:
    role.write_text(content)
    with pytest.raises(UsageError, match=f"{re.escape(str(role))}: expected a ClusterRole with metadata.name, {text}"):
        cluster_roles([role])


def test_the_role_is_for_the_backend_that_has_an_administrator(role: Path) -> None:
    role.write_text("kind: ClusterRole\nmetadata: {name: a}")
    with pytest.raises(UsageError, match=f"expected --backend {ENVTEST}, found {EMBEDDED}"):
        backend_named(EMBEDDED, roles=[role])


def test_refused_requests_are_told_once(tmp_path: Path) -> None:
    """Names and namespaces are left out; other users, other lines and half a line are not taken."""
    log = tmp_path / "kube-apiserver.log"
    job = '"create" resource "jobs.batch" in namespace "trial-{}"'
    log.write_text(
        line(job.format("a"))
        + line(job.format("b"))
        + line('"patch" resource "pods/resize" named "p" in namespace "n"')
        + line('"list" resource "secrets" cluster-wide', user="system:node:n1")
        + line('"get" nonResourceURL "/debug" cluster-wide')
        + "I1123 07:51:42.1 4711 rbac.go:99] RBAC: another line\n"
    )
    refused = RefusedRequests(log)
    assert refused.new() == ["create jobs.batch", "get nonResourceURL /debug", "patch pods/resize"]
    assert refused.new() == []
    whole = line('"watch" resource "leases.coordination.k8s.io" cluster-wide')
    half = len(whole) // 2
    with log.open("a") as sink:
        sink.write(whole[:half])
    assert refused.new() == []
    with log.open("a") as sink:
        sink.write(whole[half:])
    assert refused.new() == ["watch leases.coordination.k8s.io"]
