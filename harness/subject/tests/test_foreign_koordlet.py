"""The command line of koordlet over a fake root, and clusters on which it cannot run."""

import sys
from pathlib import Path

import pytest

from seatrial.harness.clusters.backends import EMBEDDED, backend_named
from seatrial.harness.errors import UsageError
from seatrial.harness.subject.foreign_koordlet import agent_command, running_foreign_koordlet
from seatrial.scheduler.api.builders import node

ROOT, FOLDER = Path("/root-of-a-node"), Path("/folder")


def test_flags_that_the_user_gave_stay() -> None:
    command = agent_command(f"{sys.executable} --kubelet-sync-interval=5s -v 6", Path("k"), ROOT, FOLDER, "CPUEvict")
    assert command[:4] == [sys.executable, "--kubelet-sync-interval=5s", "-v", "6"]
    flags = dict(word.lstrip("-").split("=", 1) for word in command[4:])
    assert "kubelet-sync-interval" not in flags
    assert (flags["kubeconfig"], flags["feature-gates"]) == ("k", "CPUEvict=true")
    roots = {name: value for name, value in flags.items() if name.endswith("-root-dir")}
    assert roots.pop("run-root-dir").startswith("/folder/")
    assert roots.pop("var-run-root-dir").startswith("/folder/")
    assert roots == {
        "cgroup-root-dir": "/root-of-a-node/sys/fs/cgroup/",
        "sys-root-dir": "/root-of-a-node/sys/",
        "sys-fs-root-dir": "/root-of-a-node/sys/fs/",
        "proc-root-dir": "/root-of-a-node/proc/",
    }
    assert not [value for value in flags.values() if value.startswith(("/var", "/host", "/metric", "/prediction"))]


def test_what_is_no_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected the path of koordlet, with its flags"):
        agent_command(str(tmp_path / "koordlet"), Path("k"), ROOT, FOLDER)


def test_a_cluster_whose_nodes_have_no_kubelet_is_refused(tmp_path: Path) -> None:
    with backend_named(EMBEDDED).start() as cluster:
        cluster.add_nodes([node("n1").cpu(8).memory("16Gi")])
        expected = pytest.raises(UsageError, match=r"nodes of 'embedded' have none, those of envtest do")
        with expected, running_foreign_koordlet(cluster, sys.executable, "n1", tmp_path):
            raise AssertionError("it was started")
