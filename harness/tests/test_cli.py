"""The command line as a whole: what it makes of nonsense, whichever command it is said to."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

import seatrial
from seatrial.harness import cli


def say(monkeypatch: pytest.MonkeyPatch, words: Sequence[str]) -> int:
    """The exit status of `seatrial WORDS`, in this process: thousands of words of imports are paid once."""
    monkeypatch.setattr(sys, "argv", ["seatrial", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00bad")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "odd.yaml").write_text("clusters: 5\ncurrent-context: 7\n")
    (tmp_path / "a folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "saying"),
    [
        pytest.param(["run", "--report", ""], "after --report: expected a value", id="an-empty-path"),
        pytest.param(["run", "--report="], "--report: expected a value", id="an-empty-path-after-a-sign"),
        pytest.param(["report", ""], "after report: expected a value", id="an-empty-folder"),
        pytest.param(["compare", "a", " "], "after a: expected a value", id="a-blank-folder"),
        pytest.param(["explain", "p", "--server", "http://127.0.0.1:x"], "expected a URL", id="a-port-of-letters"),
        pytest.param(["explain", "p", "--server", "http://127.0.0.1:99999"], "expected a URL", id="a-port-too-high"),
        pytest.param(["explain", "p", "--server", "http://["], "expected a URL", id="half-an-address"),
        pytest.param(["explain", "p", "--server", "http://"], "expected a URL", id="no-host"),
        pytest.param(["explain", "p", "--server", "http://a b"], "expected a URL", id="a-blank-in-a-host"),
        pytest.param(["explain", "p", "--top", "0"], "Must be >= 1", id="no-nodes-at-all"),
        pytest.param(["explain", "p", "--kubeconfig", "broken.yaml"], "expected YAML", id="a-broken-kubeconfig"),
        pytest.param(["explain", "p", "--kubeconfig", "binary.yaml"], "kubeconfig binary.yaml", id="bytes"),
        pytest.param(["explain", "p", "--kubeconfig", "list.yaml"], "found a list", id="a-list-as-kubeconfig"),
        pytest.param(["explain", "p", "--kubeconfig", "empty.yaml"], "found nothing", id="an-empty-kubeconfig"),
        pytest.param(["explain", "p", "--kubeconfig", "odd.yaml"], "kubeconfig odd.yaml", id="an-odd-kubeconfig"),
        pytest.param(["explain", "p", "--kubeconfig", "a folder"], "found a folder", id="a-folder-as-kubeconfig"),
        pytest.param(
            ["vgpu-monitor", "--once", "--folder", ".", "--kubeconfig", "broken.yaml"],
            "expected YAML",
            id="a-monitor-without-a-cluster",
        ),
        pytest.param(
            ["run", "--dry-run", "--scheduler-config", "empty.yaml"], "expected `profiles`", id="an-empty-configuration"
        ),
        pytest.param(
            ["run", "--dry-run", "--scheduler-config", "broken.yaml"], "expected YAML", id="a-broken-configuration"
        ),
        pytest.param(["isolation", "--out", "a folder"], "found a folder", id="findings-into-a-folder"),
        pytest.param(["isolation", "--out", "list.yaml/f"], "expected a folder list.yaml", id="findings-below-a-file"),
        pytest.param(["load", "--samples", "a folder"], "found a folder", id="samples-into-a-folder"),
        pytest.param(["up", "--name", "../x"], "expected a name of letters", id="a-name-that-leads-elsewhere"),
        pytest.param(["down", "x" * 300], "expected a name of letters", id="a-name-too-long-for-a-file"),
        pytest.param(["run", "--dry-run", "--subject", "/no/such"], "no subject '/no/such'", id="no-such-subject"),
        pytest.param(["run", "--subject", "/bin/sh 'x"], "No closing quotation", id="an-open-quote"),
        pytest.param(["load", "--subject", "/no/such"], "no subject '/no/such'", id="load-for-no-such-subject"),
        pytest.param(["load", "--subject", "inprocess"], "load is in real time", id="load-in-virtual-time"),
        pytest.param(["load", "--fleet", "list.yaml"], "fleet list.yaml", id="load-on-no-such-fleet"),
        pytest.param(
            ["bench", "schedule", "--through", "http", "--subject", "/no/such"],
            "no subject '/no/such'",
            id="a-benchmark-of-no-such-subject",
        ),
        pytest.param(["bench", "start", "--repeat", "1.5"], "a whole number, found '1.5'", id="one-and-a-half"),
        pytest.param(["run", "--workers", "1.5"], "expected a whole number, found '1.5'", id="a-worker-and-a-half"),
        pytest.param(["up", "--port", "1e3"], "expected a whole number, found '1e3'", id="a-port-in-powers-of-ten"),
        pytest.param(
            ["run", "--dry-run", "--report", "list.yaml"], "expected a folder, found a file", id="a-file-for-a-report"
        ),
        pytest.param(["nope"], "nope", id="no-such-command"),
        pytest.param(["run", "--nope"], "--nope", id="no-such-flag"),
    ],
)
def test_nonsense_is_refused_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], saying: str
) -> None:
    assert say(monkeypatch, words) == 2
    output = capsys.readouterr()
    assert saying in " ".join(output.err.split())
    assert output.out == ""
    assert not (folder / "seatrial-report").exists()


def test_a_file_that_cannot_be_written_is_no_crash(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: list[str]) -> None:
        (folder / "a folder").write_text("")

    monkeypatch.setattr(cli, "app", fails)
    assert say(monkeypatch, ["run"]) == 2
    assert capsys.readouterr().err.endswith("a folder: Is a directory\n")


def test_whoever_has_read_enough_is_no_crash(folder: Path) -> None:
    """`seatrial devices | head -c 1`, as it were: the reading end is closed before anything is written."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "seatrial", "devices", "--fake", "a10:2"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_below_the_output_is_no_verdict(folder: Path) -> None:
    command = [sys.executable, "-m", "seatrial", "devices", "--fake", "a10:2"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (2, "seatrial: output: No space left on device\n")


def test_ctrl_c_is_answered(folder: Path) -> None:
    """A replay of a thousand million seeds, ended by Ctrl-C once it has begun."""
    (folder / "n.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,V100M16\n")
    (folder / "p.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,1024,1,500,\n")
    words = ["replay", "openb", "--nodes", "n.csv", "--pods", "p.csv", "--seeds", "1000000000"]
    with subprocess.Popen(
        [sys.executable, "-m", "seatrial", *words],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 one call
    ) as process:
        assert process.stderr is not None
        assert "allocated" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        message = process.stderr.read()
        assert process.wait(timeout=600) == 130
    assert message.endswith("seatrial: interrupted; everything that was started has been stopped\n")
    assert "Traceback" not in message


def test_our_scheduler_refuses_what_is_no_kubeconfig(folder: Path) -> None:
    """The scheduler replaces this process, so its own message is what a user sees.
    `scheduler/client/tests/test_kubeconfig.py` has other files."""
    command = [sys.executable, "-m", "seatrial", "scheduler", "--kubeconfig", "a folder"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2, done.stderr
    assert "kubeconfig a folder" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", list(cli.PROGRAMS))
def test_help_of_a_program_names_its_command(folder: Path, program: str) -> None:
    command = [sys.executable, "-m", "seatrial", program, "--help"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.startswith(f"Usage: seatrial {program} ")
    assert "--kubeconfig" in done.stdout


def test_the_version_is_followed_by_the_kernel_in_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SEATRIAL_KERNEL", raising=False)
    assert say(monkeypatch, ["--version"]) == 0
    version, kernel = capsys.readouterr().out.splitlines()
    assert version == seatrial.__version__
    assert kernel in {"kernel: compiled", "kernel: Python (`seatrial build-kernel` compiles it)"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_options(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Commands are imported lazily; a script that misses their options would only offer names."""
    script = cli.app.generate_completion(shell=shell)
    assert "vgpu-monitor" in script
    assert "scheduler-config" in script


def test_completion_is_printed_and_no_file_of_the_user_is_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "home").mkdir()
    assert say(monkeypatch, ["--install-completion", "--shell", "bash"]) == 0
    script, hint = capsys.readouterr()
    assert "complete -F" in script
    assert "seatrial --install-completion --shell bash >" in hint
    assert list((folder / "home").iterdir()) == []
