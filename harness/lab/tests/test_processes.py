"""Real processes on one lab, whose ledger is in a file or in a Lease: no two hold a card at once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml

from seatrial.harness.clusters.control_plane import control_plane, missing_programs
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.lab.errors import LabError, LeaseLost, PlaceTaken
from seatrial.harness.lab.lab import open_lab
from seatrial.harness.lab.ledger import PlaceRequest
from seatrial.harness.lab.stores import ANNOTATION, LABEL
from seatrial.harness.lab.tests.inventories import plain
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Request

TTL = 5.0
WORKER = """
import os, sys
from pathlib import Path
from seatrial.harness.lab.lab import open_lab
inventory, marks, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
lab = open_lab(inventory, holder=f"job {number}")
for step in range(4):
    with lab.place("h100", cards=1 + (step + number) % 2) as place:
        paths = [marks / device.replace("/", "_") for device in place.devices]
        for path in paths:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))  # fails if another process holds the card
        for path in paths:
            path.unlink()
        print(place.token, *place.devices, flush=True)
"""
HOLDER = """
import sys, time
from pathlib import Path
from seatrial.harness.lab.lab import open_lab
with open_lab(Path(sys.argv[1]), holder="victim").place("h100", cards=4) as place:
    print(place.token, flush=True)
    time.sleep(600)
"""
SUITE = """
import os
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(6))
def test_cards(lab, number):
    with lab.place("h100", cards=1 + number % 2) as place:
        paths = [Path(os.environ["MARKS"]) / device.replace("/", "_") for device in place.devices]
        for path in paths:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        for path in paths:
            path.unlink()
"""


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedCluster]:
    with EmbeddedBackend().start() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kube_apiserver() -> Iterator[Path]:
    """The kubeconfig of a real API server."""
    if (why := missing_programs()) is not None:
        pytest.skip(why)
    with private_folder() as folder, control_plane(folder) as plane:
        yield plane.kubeconfig


@pytest.fixture(params=["file", "lease"])
def lab_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An inventory; a new ledger for each test."""
    leases: dict[str, str] = {"file": "ledger.json"}
    if request.param == "lease":
        cluster: EmbeddedCluster = request.getfixturevalue("api")
        assert cluster.endpoint is not None
        leases = {"kubeconfig": str(cluster.endpoint.kubeconfig), "namespace": f"lab-{os.urandom(3).hex()}"}
    elif request.param == "kube-apiserver":
        leases = {"kubeconfig": str(request.getfixturevalue("kube_apiserver")), "namespace": "real-lab"}
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump(plain(ttl=TTL, leases=leases)))
    return path


@pytest.mark.parametrize("lab_file", ["file", "lease", "kube-apiserver"], indirect=True)
def test_jobs_never_share_a_card(lab_file: Path, tmp_path: Path) -> None:
    """Four processes take one or two of four cards at a time, four times each."""
    (tmp_path / "marks").mkdir()
    command = [sys.executable, "-c", WORKER, str(lab_file), str(tmp_path / "marks")]
    processes = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(4)]
    lines = [line for process in processes for line in process.communicate()[0].splitlines()]
    assert [process.returncode for process in processes] == [0] * 4
    assert len(lines) == 16
    assert len({line.split()[0] for line in lines}) == 16  # every lease has a token of its own
    assert open_lab(lab_file).snapshot().ledger.leases == ()


@pytest.mark.parametrize("lab_file", ["lease"], indirect=True)
def test_cards_of_a_killed_process_are_free_after_their_ttl(lab_file: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(lab_file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    token = int(process.stdout.readline())
    lab = open_lab(lab_file, holder="next")
    with pytest.raises(PlaceTaken, match="victim holds big/0, big/1, big/2, big/3"), lab.place("h100", wait=0):
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with lab.place("h100", cards=4, wait=TTL + 60) as place:
        assert place.token > token


@pytest.mark.parametrize("lab_file", ["file"], indirect=True)
def test_a_lease_outlives_its_ttl_while_it_is_renewed_and_ends_when_taken_back(lab_file: Path) -> None:
    holder, other = open_lab(lab_file, holder="a"), open_lab(lab_file, holder="b")
    place = holder.acquire(PlaceRequest("h100", 4), wait=0)
    with pytest.raises(PlaceTaken), other.place("h100", wait=TTL + 3):
        pass
    place.check()
    with pytest.raises(LabError, match="held by 'a', you are 'b'"):
        other.release(place.token)
    other.release(place.token, force=True)
    with other.place("h100") as theirs:
        assert theirs.token > place.token
        with pytest.raises(LeaseLost, match="not in the lab's ledger"):
            place.check()
        place.give_back()
        theirs.check()  # what the first holder returns late is not the second one's


def test_workers_and_jobs_never_share_a_card(lab_file: Path, tmp_path: Path) -> None:
    """Two jobs of pytest-xdist with two workers each."""
    (tmp_path / "marks").mkdir()
    suite = tmp_path / "test_cards.py"
    suite.write_text(SUITE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "seatrial.testing",
        "-p",
        "no:cacheprovider",
        "-n",
        "2",
        f"--rootdir={tmp_path}",
        f"--seatrial-lab={lab_file}",
        str(suite),
    ]
    environment = {**os.environ, "MARKS": str(tmp_path / "marks")}
    jobs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) for _ in range(2)
    ]
    messages = [job.communicate()[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], messages
    assert all("6 passed" in text for text in messages)
    ledger = open_lab(lab_file).snapshot().ledger
    assert ledger.tokens == 12
    assert (ledger.leases, ledger.line) == ((), ())


def test_the_lease_shows_who_holds_devices(api: EmbeddedCluster, tmp_path: Path) -> None:
    assert api.endpoint is not None
    leases = {"kubeconfig": str(api.endpoint.kubeconfig), "namespace": "shown"}
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump(plain(leases=leases)))
    with open_lab(path, holder="job 7").place("a10"):
        answer = api.call(Request("GET", "/apis/coordination.k8s.io/v1/namespaces/shown/leases/lab-shelf"))
        lease = orjson.loads(answer.body)
        assert lease["spec"]["holderIdentity"] == "job 7"
        assert lease["spec"]["leaseTransitions"] == 1
        assert lease["metadata"]["labels"] == {LABEL: "shelf"}
        assert orjson.loads(lease["metadata"]["annotations"][ANNOTATION])["leases"][0]["devices"] == ["small/0"]
