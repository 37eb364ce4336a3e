"""Jobs take devices of a lab by the command line; the ledger is a file, or a Lease on the API server of the backend.

These cases judge the harness; no scheduler is needed.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import orjson
import pytest
import yaml

from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.lab.lab import open_lab

WITHIN = 120.0  # seconds that a request waits in line
TTL = 5
pytestmark = [pytest.mark.needs(Capability.REAL_TIME)]
KEPT = [
    pytest.param("file", id="file"),
    pytest.param("lease", id="lease", marks=pytest.mark.needs(Capability.OWN_CLUSTER)),
]
# Marks each of its cards with a file until the file `go` exists; fails if another job has marked one.
JOB = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
cards = [f"{os.environ['SEATRIAL_LAB_MACHINE']}-{card}" for card in os.environ["SEATRIAL_LAB_CARDS"].split(",")]
marks = [folder / card for card in cards]
for mark in marks:
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
while not (folder / "go").exists():
    time.sleep(0.05)
time.sleep(float(sys.argv[2]))
for mark in marks:
    mark.unlink()
print("held", os.environ["SEATRIAL_LAB_TOKEN"], *cards, flush=True)
"""
ENDLESS = """
import os, time
print("held", os.environ["SEATRIAL_LAB_TOKEN"], flush=True)
time.sleep(600)
"""


@pytest.fixture(params=KEPT)
def inventory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A lab with a machine of three cards and one of one card, all free."""
    leases: dict[str, str] = {"file": "ledger.json"}
    if request.param == "lease":
        cluster: Cluster = request.getfixturevalue("whole_cluster")
        if cluster.endpoint is None:
            pytest.skip(f"needs a cluster that a process can reach; {cluster.name} lives in this process")
        leases = {"kubeconfig": str(cluster.endpoint.kubeconfig), "namespace": f"lab-{os.urandom(3).hex()}"}
    machines = [
        {"name": name, "cards": [{"name": str(number), "model": "h100"} for number in range(count)]}
        for name, count in (("large", 3), ("little", 1))
    ]
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump({"lab": "trial", "ttl": TTL, "leases": leases, "machines": machines}))
    return path


def job(inventory: Path, holder: str, words: Sequence[str], *command: str) -> "subprocess.Popen[str]":
    """`seatrial lab acquire h100 … -- python -c …`, as a job of CI calls it."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "seatrial",
            "lab",
            "acquire",
            "h100",
            "--lab",
            str(inventory),
            "--holder",
            holder,
            *words,
            "--",
            sys.executable,
            "-c",
            *command,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def who(inventory: Path) -> dict[str, list[dict[str, object]]]:
    """Who holds devices, and who waits."""
    command = [sys.executable, "-m", "seatrial", "lab", "who", "--json", "--lab", str(inventory)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    document: dict[str, list[dict[str, object]]] = orjson.loads(done.stdout)
    return document


@pytest.mark.feature("HIL-7.leases")
@pytest.mark.case("LB-001", severity="blocker")
def test_jobs_never_share_a_card(inventory: Path, tmp_path: Path) -> None:
    """Four jobs want one to three of four cards. Each holds its cards until all have cards or wait in line. All get
    cards in the end, no card has two jobs at a time."""
    marks = tmp_path / "marks"
    marks.mkdir()
    jobs = [
        job(inventory, f"job {number}", ["--cards", str(1 + number % 3), "--wait", str(WITHIN)], JOB, str(marks), "0.5")
        for number in range(4)
    ]
    with closing(open_lab(inventory)) as lab:
        until = time.monotonic() + WITHIN
        while time.monotonic() < until and all(each.poll() is None for each in jobs):
            ledger = lab.snapshot().ledger
            if len(ledger.leases) + len(ledger.line) == len(jobs):
                break
            time.sleep(0.05)
    (marks / "go").touch()
    messages = [each.communicate() for each in jobs]
    assert [each.returncode for each in jobs] == [0] * 4, "\n".join(errors for _, errors in messages)
    lines = [line.split() for output, _ in messages for line in output.splitlines() if line.startswith("held")]
    assert sorted(len(line) - 2 for line in lines) == [1, 1, 2, 3]
    assert len({line[1] for line in lines}) == 4, f"expected a token of its own for each job, found {lines}"
    assert who(inventory) == {"leases": [], "line": [], "out_of_service": {}}


@pytest.mark.feature("HIL-7.leases")
@pytest.mark.case("LB-002", severity="critical")
def test_the_cards_of_a_killed_job_are_given_on(inventory: Path, tmp_path: Path) -> None:
    """While a job holds all cards of a machine they are refused to others; after its kill they go to who waits."""
    (tmp_path / "go").touch()
    victim = job(inventory, "victim", ["--cards", "3"], ENDLESS)
    try:
        assert victim.stdout is not None
        token = int(victim.stdout.readline().split()[1])
        refused = job(inventory, "hasty", ["--cards", "2", "--wait", "0"], JOB, str(tmp_path), "0")
        patient = job(inventory, "patient", ["--cards", "3", "--wait", str(WITHIN)], JOB, str(tmp_path), "0")
        _, errors = refused.communicate()
        assert refused.returncode == 2
        assert "victim holds" in errors
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
        output, errors = patient.communicate()
        assert patient.returncode == 0, errors
        _, text, *cards = output.split()
        assert cards == ["large-0", "large-1", "large-2"]
        assert int(text) > token, "expected a token greater than that of the killed job"
    finally:
        victim.kill()
        victim.communicate()
    assert not who(inventory)["leases"]
