"""Backend kind. kind's node image cannot be had without a registry, so programs of the test stand for docker and kind:
they note how they are called, and the "cluster" is an embedded API server. What kind itself does is not tested here.
"""

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.backends import KIND, backend_named
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.clusters.kind import is_abandoned, own_name
from seatrial.harness.clusters.leftovers import runs_on
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.scheduler.api.builders import node
from seatrial.scheduler.api.transport import Request

DOCKER = """
import sys
words = sys.argv[1:]
if words[0] == "info" and FAILS == "info": sys.exit("Cannot connect to the Docker daemon")
if words[:2] == ["image", "inspect"]: sys.exit(words[2] != "node:v1")
if words[:2] == ["network", "inspect"]: print("fc00::1 127.0.0.1 ")
"""
PROGRAM = """
import pathlib, shutil, sys
words, folder = sys.argv[1:], pathlib.Path(FOLDER)
named = dict(zip(words, words[1:]))
with (folder / "calls").open("a") as sink: print(*(word for word in words if "/" not in word), file=sink)
if words[:2] == ["get", "clusters"]:
    print(*sorted(path.name for path in (folder / "clusters").iterdir()), sep="\\n")
elif words[:2] == ["create", "cluster"]:
    if FAILS == "create": sys.exit("ERROR: failed to create cluster: no space")
    (folder / "clusters" / named["--name"]).touch()
    shutil.copy(KUBECONFIG, named["--kubeconfig"])
elif words[0] == "export": shutil.copy(KUBECONFIG, named["--kubeconfig"])
elif words[:2] == ["delete", "cluster"]: (folder / "clusters" / named["--name"]).unlink()
"""


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedCluster]:
    with EmbeddedBackend().start() as cluster:
        yield cluster


class Programs:
    """The stand-ins, first on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "clusters").mkdir()
        (folder / "bin").mkdir()
        monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")

    def write(self, kubeconfig: Path | str, fails: str = "") -> None:
        head = f"#!{sys.executable}\nFAILS, FOLDER, KUBECONFIG = {fails!r}, {str(self.folder)!r}, {str(kubeconfig)!r}\n"
        for name, text in (("docker", DOCKER), ("kind", PROGRAM)):
            path = self.folder / "bin" / name
            path.write_text(head + text)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def clusters(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "clusters").iterdir())


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: EmbeddedCluster) -> Programs:
    programs = Programs(tmp_path, monkeypatch)
    assert api.endpoint is not None
    programs.write(api.endpoint.kubeconfig)
    return programs


def test_a_cluster_is_made_for_the_run_and_deleted(programs: Programs, api: EmbeddedCluster) -> None:
    name = own_name(os.getpid())
    with backend_named(KIND, kind_image="node:v1").start() as cluster:
        cluster.add_nodes([node("n1").gpus("a10", 2)])
        body = orjson.loads(cluster.call(Request("GET", "/api/v1/nodes/n1")).body)
        assert body["status"]["allocatable"]["nvidia.com/gpu"] == "2"
        assert programs.clusters() == [name]
        assert len(runs_on(api)) == 1
    assert programs.clusters() == []
    assert programs.calls() == [
        "get clusters",
        f"create cluster --name {name} --kubeconfig --image node:v1 --wait 180s",
        f"delete cluster --name {name}",
    ]
    assert runs_on(api) == []


def test_a_kept_cluster_is_made_once_and_stays(programs: Programs, api: EmbeddedCluster) -> None:
    for _ in range(2):
        with backend_named(KIND, kind_keep="trials").start():
            assert programs.clusters() == ["trials"]
    assert [line.split(" --")[0] for line in programs.calls()] == [
        "get clusters",
        "create cluster",
        "get clusters",
        "export kubeconfig",
    ]
    assert runs_on(api) == []


def test_clusters_of_processes_that_have_ended_are_deleted_and_no_others(programs: Programs) -> None:
    mine = own_name(os.getpid())
    dead = f"{mine}9"  # the process number is in use, and began at another time
    for name in (dead, "theirs", "seatrial-ffffff-1-1"):
        (programs.folder / "clusters" / name).touch()
    assert [is_abandoned(name) for name in (mine, dead, "theirs")] == [False, True, False]
    with backend_named(KIND).start():
        assert programs.clusters() == sorted([mine, "theirs", "seatrial-ffffff-1-1"])
    assert programs.clusters() == ["seatrial-ffffff-1-1", "theirs"]


def test_a_cluster_that_is_not_created_leaves_nothing(programs: Programs) -> None:
    programs.write("", fails="create")
    (programs.folder / "clusters" / own_name(os.getpid())).touch()  # what kind left behind
    with (
        pytest.raises(ClusterError, match=r"kind create cluster ended with status 1: ERROR: failed .* no space"),
        backend_named(KIND).start(),
    ):
        pass
    assert programs.clusters() == []


@pytest.mark.parametrize(
    ("options", "fails", "why"),
    [
        (
            {"kind_image": "node:v2"},
            "",
            "node image 'node:v2' is not on this machine; get it with `docker pull node:v2`",
        ),
        ({}, "info", "the Docker daemon does not answer: Cannot connect to the Docker daemon"),
        ({"kind_keep": "Not A Name"}, "", "--kind-keep Not A Name: expected a name of small letters"),
        ({"kubeconfig": Path("k")}, "", "--kubeconfig: backend 'kind' makes its own cluster"),
    ],
)
def test_what_is_missing_is_said(programs: Programs, options: dict[str, str], fails: str, why: str) -> None:
    programs.write("", fails=fails)
    with pytest.raises(UsageError, match=why):
        backend_named(KIND, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", ["docker", "kind"])
def test_programs_that_are_missing_are_named(programs: Programs, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if name == missing else f"/bin/{name}")
    with pytest.raises(UsageError, match=f"{missing}: not found on PATH"):
        backend_named(KIND)


def test_options_of_kind_are_refused_with_other_backends() -> None:
    with pytest.raises(UsageError, match="--kind-image node:v1: expected --backend kind, found embedded"):
        backend_named("embedded", kind_image="node:v1")
