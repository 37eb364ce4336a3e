"""A run under the rights of docs/cluster-role.yaml, on a real API server with RBAC.

Skipped where the programs of envtest are missing. The user is a service account with this ClusterRole and nothing else.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml

from seatrial.harness.clusters.control_plane import control_plane, missing_programs
from seatrial.harness.clusters.existing import WholeCluster
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.leftovers import runs_on
from seatrial.harness.clusters.restricted_account import (
    LOG_FLAG,
    RefusedRequests,
    cluster_roles,
    make_account,
    write_kubeconfig,
)
from seatrial.harness.results import Case
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Request

MISSING = missing_programs()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "docs" / "cluster-role.yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SUITES = (
    "allocation/test_gpu.py",
    "allocation/test_reservations.py",
    "preemption/test_priority.py",
    "gang",
    "scoring/test_node_resources.py",
)
# Cards, faults, reservations, preemption with a budget, gangs, volumes, resize.
CHOSEN = (
    "whole_gpu or share_by_percent or unhealthy_card or held_for_its_owner or cards_are_held or a_budget_protects"
    " or status_of_a_pod_group or roles_in_one or volume_keeps or has_one_pod or resized_pod"
    " or names_the_owners"
)
_case = msgspec.json.Decoder(Case).decode


@dataclass(frozen=True, slots=True)
class Shared:
    """A control plane as its administrator sees it, and a user with these rights alone."""

    admin: WholeCluster
    kubeconfig: Path  # the user's
    refused: RefusedRequests


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with private_folder() as folder, control_plane(folder, api_server_flags=[LOG_FLAG]) as plane:
        admin = WholeCluster("shared", load_access(plane.kubeconfig), plane.kubeconfig)
        try:
            user = folder / "user.kubeconfig"
            write_kubeconfig(user, plane.kubeconfig, make_account(admin.call, cluster_roles([ROLE])))
            yield Shared(admin, user, RefusedRequests(plane.api_server_log))
        finally:
            admin.close()


def test_the_rights_end_where_the_file_says(shared: Shared) -> None:
    """Secrets, roles and the pods' processes of others are not readable, and each refused request is known once."""
    cluster = WholeCluster("restricted", load_access(shared.kubeconfig), shared.kubeconfig)
    try:
        for path in ("/api/v1/secrets", f"{RBAC}/clusterroles", f"{RBAC}/clusterroles/admin", f"{RBAC}/clusterroles"):
            assert cluster.call(Request("GET", path)).code == 403
        assert cluster.call(Request("GET", "/api/v1/nodes")).code == 200
    finally:
        cluster.close()
    assert shared.refused.new() == [
        "get clusterroles.rbac.authorization.k8s.io",
        "list clusterroles.rbac.authorization.k8s.io",
        "list secrets",
    ]
    assert shared.refused.new() == []


def test_cases_pass_under_these_rights(shared: Shared, tmp_path: Path) -> None:
    """No case fails, nothing is refused to the run and to the scheduler, and the run removes what it made."""
    shared.refused.new()
    results = tmp_path / "results"
    command = [
        sys.executable,
        "-m",
        "pytest",
        *(f"suites/{suite}" for suite in SUITES),
        "-k",
        CHOSEN,
        "-q",
        "-p",
        "no:cacheprovider",
        "--seatrial-subject=seatrial",
        "--seatrial-backend=existing",
        f"--seatrial-kubeconfig={shared.kubeconfig}",
        f"--seatrial-results={results}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    cases = [_case(line) for line in (results / "cases.jsonl").read_bytes().splitlines()]
    assert {case.suite for case in cases if case.verdict == "passed"} == {"allocation", "preemption", "gang", "scoring"}
    assert shared.refused.new() == []
    assert runs_on(shared.admin) == []


def test_a_case_whose_request_is_refused_is_broken(tmp_path: Path) -> None:
    """Without the right to resize pods, the case that does so is broken and names the right; another one passes."""
    [role] = cluster_roles([ROLE])
    for rule in role["rules"]:
        rule["resources"] = [name for name in rule["resources"] if name != "pods/resize"]
    file, report = tmp_path / "role.yaml", tmp_path / "report"
    file.write_text(yaml.safe_dump(role))
    command = [
        sys.executable,
        "-m",
        "seatrial",
        "run",
        "scoring",
        "-k",
        "resized_pod or sidecar",
        "--backend",
        "envtest",
        "--cluster-role",
        str(file),
        "--report",
        str(report),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout
    cases = [_case(line) for line in (report / "cases.jsonl").read_bytes().splitlines()]
    [broken] = [case for case in cases if case.verdict != "passed"]
    assert len(cases) > 1
    assert (broken.case, broken.verdict) == ("SC-178", "broken")
    assert "does not allow: patch pods/resize;" in broken.reason
