"""A run under the rights of docs/cluster-role.yaml, on a real API server with RBAC.

Skipped where the programs of envtest are missing. The user is a service account with this ClusterRole and nothing else.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
import yaml

from seatrial.harness.clusters.control_plane import control_plane, missing_programs
from seatrial.harness.clusters.existing import WholeCluster
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.leftovers import runs_on
from seatrial.harness.private_files import private_folder, write_private
from seatrial.harness.results import Case
from seatrial.scheduler.api.transport import Request

MISSING = missing_programs()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "docs" / "cluster-role.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFAULT = "/api/v1/namespaces/default"
SUITES = ("allocation/test_gpu.py", "allocation/test_reservations.py", "preemption/test_priority.py", "gang",
          "scoring/test_node_resources.py")  # fmt: skip
# Cards, faults, reservations, preemption with a budget, gangs, volumes, resize.
CHOSEN = (
    "whole_gpu or share_by_percent or unhealthy_card or held_for_its_owner or cards_are_held or a_budget_protects"
    " or status_of_a_pod_group or roles_in_one or volume_keeps or has_one_pod or resized_pod"
    " or names_the_owners"
)
_case = msgspec.json.Decoder(Case).decode


@pytest.fixture(scope="module")
def admin() -> Iterator[WholeCluster]:
    with private_folder() as folder, control_plane(folder) as plane:
        cluster = WholeCluster("shared", load_access(plane.kubeconfig), plane.kubeconfig)
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.fixture(scope="module")
def restricted(admin: WholeCluster) -> Iterator[Path]:
    """The kubeconfig of a user with these rights alone."""
    assert admin.endpoint is not None
    role = yaml.safe_load(ROLE.read_text())
    user = {"kind": "ServiceAccount", "name": "seatrial", "namespace": "default"}
    given = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "seatrial"}
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "seatrial"}, "subjects": [user], "roleRef": given}
    post(admin, f"{RBAC}/clusterroles", role)
    post(admin, f"{DEFAULT}/serviceaccounts", {"kind": "ServiceAccount", "metadata": {"name": "seatrial"}})
    post(admin, f"{RBAC}/clusterrolebindings", binding)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = post(admin, f"{DEFAULT}/serviceaccounts/seatrial/token", asked)
    content = yaml.safe_load(admin.endpoint.kubeconfig.read_text())
    content["users"] = [
        {"name": user["name"], "user": {"token": answer["status"]["token"]}} for user in content["users"]
    ]
    with private_folder() as folder:
        write_private(folder / "kubeconfig", yaml.safe_dump(content).encode())
        yield folder / "kubeconfig"


def post(cluster: WholeCluster, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = cluster.call(Request("POST", path, orjson.dumps(body)))
    assert answer.code == 201, answer.body
    found: dict[str, Any] = orjson.loads(answer.body)
    return found


def test_the_rights_end_where_the_file_says(restricted: Path) -> None:
    """Secrets, roles and the pods' processes of others are not readable; so the next test is about these rights."""
    cluster = WholeCluster("restricted", load_access(restricted), restricted)
    try:
        for path in ("/api/v1/secrets", f"{RBAC}/clusterroles", "/apis/apps/v1/daemonsets"):
            assert cluster.call(Request("GET", path)).code == 403
        assert cluster.call(Request("GET", "/api/v1/nodes")).code == 200
    finally:
        cluster.close()


def test_cases_pass_under_these_rights(admin: WholeCluster, restricted: Path, tmp_path: Path) -> None:
    """No case fails, the scheduler is refused nothing, and the run removes what it made."""
    results = tmp_path / "results"
    command = [
        sys.executable, "-m", "pytest", *(f"suites/{suite}" for suite in SUITES), "-k", CHOSEN, "-q",
        "-p", "no:cacheprovider", "--seatrial-subject=seatrial", "--seatrial-backend=existing",
        f"--seatrial-kubeconfig={restricted}", f"--seatrial-results={results}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 our interpreter
    assert done.returncode == 0, done.stdout
    found = [_case(line) for line in (results / "cases.jsonl").read_bytes().splitlines()]
    assert {case.suite for case in found if case.verdict == "passed"} == {"allocation", "preemption", "gang", "scoring"}
    assert "forbidden" not in (results / "subject.log").read_text().lower()
    assert runs_on(admin) == []
