"""`seatrial up` and `down`, as a user calls them."""

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.local import LocalCluster
from seatrial.harness.nodes.runtimes.supervised_process import STATUS, read_status
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN, with_mark
from seatrial.harness.processes import started_at
from seatrial.harness.tests.command_line import run_command
from seatrial.harness.tests.documented import ROOT, commands
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import Request


class Shell:
    """Runs the command in a folder and state of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = {"XDG_STATE_HOME": str(folder / "state"), "DOCKER_HOST": "unix:///no/such/socket"}
        self.env = {**os.environ, **self.own}

    def seatrial(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.run(sys.executable, "-m", "seatrial", *words)

    def without_process(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """The command in this process: for mistakes, and for `down`."""
        return run_command(*words, folder=self.folder, environment=self.own)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=600, check=False
        )


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.without_process("down", "--all")


def test_the_session_of_the_readme_with_a_second_up_and_a_second_down(shell: Shell) -> None:
    """README.md, "A local cluster": its commands are run as they stand there, in a folder with a link to the suites."""
    (shell.folder / "suites").symlink_to(ROOT / "suites")
    session = [command.words for command in commands("README.md") if {"K", "down"} & set(command.words)][:6]
    assert [words[0] for words in session] == ["seatrial", "kubectl", "kubectl", "kubectl", "kubectl", "seatrial"]
    up, *request, down = session

    started = shell.seatrial(*up[1:])
    assert started.returncode == 0, started.stderr
    assert (shell.folder / "K").stat().st_mode & 0o777 == 0o600
    if shutil.which("kubectl"):
        answers = [shell.run(*words) for words in request]
        assert all(answer.returncode == 0 for answer in answers), [answer.stderr for answer in answers]
        assert "device.scheduling.koordinator.sh/" in answers[0].stdout
        assert "demo-pod" in answers[2].stdout

    again = shell.seatrial("up", "--detach")
    assert again.returncode == 2
    assert "is up already at https://127.0.0.1:" in again.stderr
    assert "seatrial down" in again.stderr

    ended = shell.seatrial(*down[1:])
    assert ended.returncode == 0, ended.stderr
    assert not (shell.folder / "K").exists()
    second = shell.seatrial("down")
    assert second.returncode == 2
    assert "no cluster 'seatrial' is up" in second.stderr


def test_ctrl_c_leaves_nothing_behind(shell: Shell) -> None:
    command = [sys.executable, "-m", "seatrial", "up", "--kubeconfig", "K"]
    process = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "Kubernetes API at https://127.0.0.1:" in process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children, "the scheduler is a child of ours"
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 0
    assert "the cluster is down" in rest
    assert not (shell.folder / "K").exists()
    deadline = time.monotonic() + WITHIN
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


@pytest.mark.parametrize(
    ("words", "saying"),
    [
        pytest.param(["--fleet", "nope"], "no fleet file 'nope'", id="no-such-fleet"),
        pytest.param(["--subject", "inprocess"], "--subject inprocess", id="a-subject-that-lives-in-virtual-time"),
        pytest.param(["--subject", "/no/such/binary"], "no subject", id="no-such-binary"),
        pytest.param(["--kubeconfig", "."], "found a folder", id="a-folder-for-a-file"),
        pytest.param(["--port", "70000"], "70000", id="a-port-that-is-none"),
        pytest.param(
            ["--fake", "a10"],
            "for --backend kubelet, kubelet-claims, local, local-docker",
            id="a-fake-for-simulated-nodes",
        ),
        pytest.param(["--backend", "local", "--fleet", "large"], "takes no fleet", id="a-fleet-for-this-machine"),
        pytest.param(["--backend", "local", "--fake", "abacus"], "--fake abacus", id="an-unknown-fake"),
        pytest.param(["--backend", "local", "--fake", "a10:0"], "a count of 1 to 64", id="a-fake-of-none"),
        pytest.param(["--backend", "local-docker"], "no Docker engine answers", id="no-docker"),
        pytest.param(["--scheduler-config", "none.yaml"], "none.yaml: cannot be read", id="no-configuration"),
        pytest.param(["--scheduler-config", "bad.yaml"], "unknown field `profile`", id="a-bad-configuration"),
        pytest.param(["--scheduler-config", "bad.yaml", "--subject", "none"], "--subject seatrial", id="no-scheduler"),
        pytest.param(["--backend", "existing", "--web"], "--web: not with --backend existing", id="not-our-cluster"),
        pytest.param(["--feature-gates", "X=true"], "expected WorkloadWithJob=true or", id="an-unknown-gate"),
        pytest.param(
            ["--backend", "existing", "--feature-gates", "WorkloadWithJob=true"], "runs already", id="gates-elsewhere"
        ),
        pytest.param(["--with", "manger"], "--with manger: expected manager or descheduler", id="an-unknown-program"),
        pytest.param(["--descheduler-config", "bad.yaml"], "add --with descheduler", id="no-descheduler"),
        pytest.param(
            ["--with", "descheduler", "--descheduler-config", "bad.yaml"],
            "--descheduler-config bad.yaml: kind: expected DeschedulerConfiguration",
            id="a-bad-configuration-of-the-descheduler",
        ),
        pytest.param(
            ["--backend", "existing", "--with", "manager"], "not with --backend existing", id="programs-elsewhere"
        ),
    ],
)
def test_mistakes_are_told_in_a_sentence(shell: Shell, words: list[str], saying: str) -> None:
    (shell.folder / "bad.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofile: []\n"
    )
    done = shell.without_process("up", "--detach", *words)
    assert done.returncode != 0
    assert saying in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not list(shell.folder.glob("*.kubeconfig"))


def test_programs_beside_the_scheduler_start_and_end_with_the_cluster(shell: Shell) -> None:
    """`list` and `logs` name them, the scheduler has its configuration, and `down` ends all."""
    (shell.folder / "preempt.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: default-scheduler}]\n"
    )
    up = ("up", "--detach", "--fleet", "none", "--kubeconfig", "K")
    started = shell.seatrial(*up, "--scheduler-config", "preempt.yaml", "--with", "manager,descheduler")
    assert started.returncode == 0, started.stderr
    assert "scheduler seatrial, manager, descheduler" in started.stdout
    (row,) = orjson.loads(shell.without_process("list", "--json").stdout)
    assert row["with"] == ["manager", "descheduler"]
    assert "manager,descheduler" in shell.without_process("list").stdout
    state = orjson.loads(next((shell.folder / "state").rglob("seatrial.json")).read_bytes())
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid, _ in state["processes"]]
    assert [b"seatrial.scheduler.manager" in line for line in lines] == [False, True, False, False]
    assert os.fsencode(shell.folder / "preempt.yaml") in lines[-1]
    deadline = time.monotonic() + WITHIN
    while "descheduler synced" not in shell.without_process("logs", "--component", "descheduler").stdout:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert shell.without_process("down").returncode == 0
    assert not any(started_at(pid) == start for pid, start in state["processes"])


@pytest.mark.parametrize("words", [["up", "--port", "1", "--host", "256.1.1.1"], ["up", "--detach"]], ids=" ".join)
def test_a_kubeconfig_of_somebody_else_is_left_alone(shell: Shell, words: list[str]) -> None:
    theirs = shell.folder / "config"
    theirs.write_text("apiVersion: v1\nkind: Config\ncurrent-context: production\nusers: [{name: me}]\n")
    before = theirs.read_bytes()
    done = shell.without_process(*words, "--kubeconfig", "config", "--subject", "none", "--fleet", "none")
    assert done.returncode == 2
    assert "one that an earlier `seatrial up` left" in done.stderr
    assert theirs.read_bytes() == before


def test_what_a_killed_cluster_left_is_used_again_and_a_running_ones_file_is_not(shell: Shell) -> None:
    bare = ("--detach", "--kubeconfig", "K", "--subject", "none", "--fleet", "none")
    assert shell.seatrial("up", *bare).returncode == 0
    left = (shell.folder / "K").read_bytes()
    taken = shell.seatrial("up", *bare, "--name", "other")
    assert taken.returncode == 2
    assert "it is that of the cluster 'seatrial', which is up" in taken.stderr
    assert shell.seatrial("down").returncode == 0
    (shell.folder / "K").write_bytes(left)
    again = shell.seatrial("up", *bare)
    assert again.returncode == 0, again.stderr
    assert (shell.folder / "K").read_bytes() != left


def test_this_machine_as_a_cluster(shell: Shell) -> None:
    up = shell.seatrial("up", "--detach", "--backend", "local", "--fake", "a10:4", "--kubeconfig", "K")
    assert up.returncode == 0, up.stderr
    assert "this machine, scheduler seatrial" in up.stdout
    cluster = LocalCluster("local", shell.folder / "K", frozenset())
    try:
        cluster.wait_for_node()
        name = f"marked-{uuid.uuid4().hex}"
        marked = pod(name).gpus(1).namespace("default")
        cluster.call(Request("POST", "/api/v1/namespaces/default/pods", orjson.dumps(marked.manifest)))
        assert cluster.wait(lambda: bool(with_mark(f"HOSTNAME={name}")), within=WITHIN)
    finally:
        cluster.close()
    assert shell.seatrial("down").returncode == 0
    deadline = time.monotonic() + WITHIN
    while with_mark(f"HOSTNAME={name}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not with_mark(f"HOSTNAME={name}")
    assert not list((shell.folder / "state" / "seatrial" / "pods").iterdir())


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("down",), id="down"),
        pytest.param(("up", "--detach", "--name", "next", "--kubeconfig", "N", "--subject", "none"), id="up"),
    ],
)
def test_pods_of_a_killed_cluster_end_with_the_next_command(shell: Shell, words: tuple[str, ...]) -> None:
    """Server and supervisors were killed at once, so that none of them ended the pod."""
    assert (
        shell.seatrial("up", "--detach", "--backend", "local", "--kubeconfig", "K", "--subject", "none").returncode == 0
    )
    cluster = LocalCluster("local", shell.folder / "K", frozenset())
    name = f"left-{uuid.uuid4().hex}"
    try:
        cluster.wait_for_node()
        built = pod(name).namespace("default").node_name(cluster.node)
        built.manifest["spec"]["containers"][0]["command"] = ["sh", "-c", "sleep 61 & sleep 62 & wait"]
        cluster.call(Request("POST", "/api/v1/namespaces/default/pods", orjson.dumps(built.manifest)))
        assert cluster.wait(lambda: len(with_mark(f"HOSTNAME={name}")) >= 2, within=WITHIN)
    finally:
        cluster.close()
    (state,) = (shell.folder / "state" / "seatrial" / "clusters").glob("*.json")
    (status,) = (shell.folder / "state" / "seatrial" / "pods").glob(f"*/*/*/*/{STATUS}")
    ((server, _),) = orjson.loads(state.read_bytes())["processes"]
    supervisor = read_status(status).supervisor[0]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (server, supervisor):
            os.kill(pid, number)
    assert with_mark(f"HOSTNAME={name}")
    done = shell.seatrial(*words)
    assert done.returncode == 0, done.stderr
    assert not with_mark(f"HOSTNAME={name}")
    assert not list((shell.folder / "state" / "seatrial" / "pods").iterdir())


def test_devices_of_a_simulated_machine(shell: Shell) -> None:
    done = shell.seatrial("devices", "--fake", "a10:4", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"vendor": "nvidia"') == 4
    wrong = shell.seatrial("devices", "--fake", "a11")
    assert wrong.returncode == 2
    assert "a10-4" in wrong.stderr
