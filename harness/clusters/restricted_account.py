"""A service account with the rights of given ClusterRoles alone, and the requests that these do not allow.

kube-apiserver writes a line for each request that its RBAC authorizer refuses if it runs with LOG_FLAG. The audit log
has a line for each request of any outcome, so reading it would take longer than the cases.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.private_files import write_private
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.api.yaml_files import load_yaml

NAMESPACE: Final = "default"
ACCOUNT: Final = "seatrial"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
LOG_FLAG: Final = "--vmodule=rbac=5"  # plugin/pkg/auth/authorizer/rbac/rbac.go logs refused requests at level 5
TOKEN_SECONDS: Final = 24 * 3600
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_IN_NAMESPACE: Final = f"/api/v1/namespaces/{NAMESPACE}"
# As the authorizer writes it: to "get" resource "jobs.batch/status" named "a" in namespace "b" (or: cluster-wide)
_REFUSED: Final = re.compile(
    rb'RBAC: no rules authorize user "(?P<user>[^"]*)" with groups \[[^\]]*\] to (?P<what>"[^\n]*)'
)
_NAMES: Final = re.compile(r' named "[^"]*"| in namespace "[^"]*"| cluster-wide|"')


def cluster_roles(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The ClusterRoles of YAML files.

    Raises:
        UsageError: a file cannot be read, or has something else than ClusterRoles.
    """
    results: list[dict[str, Any]] = []
    for file in files:
        try:
            documents = [load_yaml(part.encode()) for part in re.split(r"(?m)^---\s*$", file.read_text())]
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise UsageError(f"--cluster-role {file}: expected a YAML file of a ClusterRole: {error}") from error
        for document in documents:
            kind = document.get("kind") if isinstance(document, dict) else None
            name = document.get("metadata", {}).get("name") if kind == "ClusterRole" else None
            if not isinstance(name, str):
                raise UsageError(
                    f"--cluster-role {file}: expected a ClusterRole with metadata.name, found"
                    f" {'one without' if kind == 'ClusterRole' else kind or type(document).__name__}"
                )
            results.append(document)
    return results


def make_account(admin: Callable[[Request], Response], roles: Sequence[dict[str, Any]]) -> str:
    """Create the roles and a service account that has no others; return its token.

    Raises:
        ApiRefused: the API server refused one of the objects.
    """

    def post(path: str, body: dict[str, Any], what: str) -> dict[str, Any]:
        answer = admin(Request("POST", path, orjson.dumps(body)))
        accepted(answer, what)
        created: dict[str, Any] = orjson.loads(answer.body)
        return created

    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    post(f"{_IN_NAMESPACE}/serviceaccounts", account, f"service account {ACCOUNT!r}")
    for role in roles:
        name = role["metadata"]["name"]
        post(f"{_RBAC}/clusterroles", role, f"ClusterRole {name!r}")
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        }
        post(f"{_RBAC}/clusterrolebindings", binding, f"ClusterRoleBinding {name!r}")
    manifest = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    answer = post(f"{_IN_NAMESPACE}/serviceaccounts/{ACCOUNT}/token", manifest, f"token of {ACCOUNT!r}")
    token: str = answer["status"]["token"]
    return token


def write_kubeconfig(target: Path, admin: Path, token: str) -> None:
    """Write the kubeconfig `admin` with the token in place of its credentials."""
    content = load_yaml(admin.read_bytes())
    content["users"] = [{"name": user["name"], "user": {"token": token}} for user in content["users"]]
    write_private(target, yaml.safe_dump(content).encode())


class RefusedRequests:
    """Reads from kube-apiserver's log which requests of the account were refused."""

    def __init__(self, log: Path) -> None:
        self._log, self._read = log, 0

    def new(self) -> list[str]:
        """Refused requests since the last call, without names: as in `get jobs.batch/status`, each once, sorted."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        end = data.rfind(b"\n") + 1  # what follows is a line that is being written
        self._read += end
        return refused_requests(data[:end])


def refused_requests(log: bytes) -> list[str]:
    """The requests of the account in a log of kube-apiserver."""
    matches = (match for match in _REFUSED.finditer(log) if match["user"].decode() == USER)
    return sorted({_NAMES.sub("", match["what"].decode()).replace(" resource ", " ") for match in matches})
