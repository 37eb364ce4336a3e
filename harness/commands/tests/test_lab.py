"""`seatrial lab`, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

from seatrial.harness.lab.lab import open_lab
from seatrial.harness.lab.ledger import PlaceRequest
from seatrial.harness.lab.tests.inventories import plain
from seatrial.harness.tests.command_line import run_command

SHOW = """
import os
print({key: value for key, value in sorted(os.environ.items()) if key.startswith("SEATRIAL_LAB_")})
raise SystemExit(7)
"""


@pytest.fixture
def lab_file(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yaml"
    path.write_text(yaml.safe_dump(plain(ttl=5)))
    return path


def seatrial(lab: Path | None, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {"SEATRIAL_LAB": None if lab is None else str(lab), "CI_JOB_ID": None}
    return run_command("lab", *words, environment=environment)


def test_a_lease_from_acquire_to_release(lab_file: Path) -> None:
    taken = seatrial(
        lab_file, "acquire", "h100", "--cards", "2", "--nics", "1", "--for", "1h", "--holder", "me", "--json"
    )
    assert taken.returncode == 0, taken.stderr
    lease = json.loads(taken.stdout)
    assert (lease["token"], lease["devices"]) == (1, ["big/0", "big/1", "big/mlx5_0"])
    rows = json.loads(seatrial(lab_file, "list", "--json").stdout)["devices"]
    assert [row["device"] for row in rows if row["state"] == "held by me"] == lease["devices"]
    assert len([row for row in rows if row["state"] == "free"]) == 5
    header, first, *_ = (line.split() for line in seatrial(lab_file, "list").stdout.splitlines())
    assert header == ["device", "kind", "model", "state", "tags"]
    assert first[0] == "big/0"
    (shown,) = json.loads(seatrial(lab_file, "who", "--json").stdout)["leases"]
    assert shown["holder"] == "me"
    assert shown["until"] == f"{datetime.fromisoformat(shown['since']) + timedelta(hours=1):%Y-%m-%d %H:%M:%SZ}"
    stdout = seatrial(lab_file, "who").stdout
    assert "token 1: me holds big/0, big/1, big/mlx5_0" in stdout
    assert f"s left, until {shown['until']} at the latest: it was acquired for that time" in stdout
    theirs = seatrial(lab_file, "release", "1", "--holder", "you")
    assert theirs.returncode == 2
    assert "held by 'me', you are 'you'; add --force" in theirs.stderr
    assert seatrial(lab_file, "release", "1", "--holder", "me").stdout == "returned: big/0, big/1, big/mlx5_0\n"
    assert seatrial(lab_file, "who").stdout == "no device is held and no request waits\n"


def test_a_command_runs_with_its_devices_and_its_exit_status(lab_file: Path) -> None:
    command = [sys.executable, "-m", "seatrial", "lab", "acquire", "any", "--machine", "small", "--", sys.executable]
    environment = {**os.environ, "SEATRIAL_LAB": str(lab_file)}
    done = subprocess.run([*command, "-c", SHOW], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    assert done.stdout.strip() == str(
        {"SEATRIAL_LAB_CARDS": "0", "SEATRIAL_LAB_MACHINE": "small", "SEATRIAL_LAB_NICS": "", "SEATRIAL_LAB_TOKEN": "1"}
    )
    assert open_lab(lab_file).snapshot().ledger.leases == ()


def test_a_command_is_ended_when_its_lease_is_lost(lab_file: Path) -> None:
    environment = {**os.environ, "SEATRIAL_LAB": str(lab_file)}
    command = [
        sys.executable,
        "-m",
        "seatrial",
        "lab",
        "acquire",
        "a10",
        "--",
        sys.executable,
        "-uc",
        "import time; print('runs'); time.sleep(600)",
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    open_lab(lab_file).release(1, force=True)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "lease 1 of small/0: the lease is not in the lab's ledger any more" in errors


def test_a_command_that_is_interrupted_returns_its_devices(lab_file: Path) -> None:
    environment = {**os.environ, "SEATRIAL_LAB": str(lab_file)}
    command = [
        sys.executable,
        "-m",
        "seatrial",
        "lab",
        "acquire",
        "a10",
        "--",
        sys.executable,
        "-uc",
        "import time; print('runs'); time.sleep(600)",
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 130
    assert open_lab(lab_file).snapshot().ledger.leases == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["acquire", "h100"], "expected either --for DURATION or a command after `--`, found neither"),
        (["acquire", "h100", "--for", "2 days"], "--for: expected a duration such as 90s, 30m or 2h, found '2 days'"),
        (["acquire", "h200", "--for", "1h"], "no machine of lab 'shelf' has 1 card h200; it has: big: 4 h100"),
        (
            ["acquire", "h100", "--for", "1h", "--wait", "0"],
            "no place for 1 card h100 became free within 0 s; me holds",
        ),
        (
            ["acquire", "h100", "--for", "1h", "--wait", "0.1"],
            "no place for 1 card h100 is free; me holds big/0, big/1, big/2, big/3; 0 in line; waiting up to 0.1 s",
        ),
        (["acquire", "a10", "--", "/no/such/program"], "/no/such/program: cannot be started"),
        (["release", "9"], "token 9: expected that of a lease (1), found no such lease"),
        (["restore", "huge"], "machine: expected one of big, small, found 'huge'"),
    ],
)
def test_mistakes_are_refused_in_words(lab_file: Path, words: list[str], message: str) -> None:
    open_lab(lab_file, holder="me").acquire_for(PlaceRequest("h100", 4), 3600, wait=0)
    done = seatrial(lab_file, *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_who_escapes_control_characters_of_the_ledger(lab_file: Path) -> None:
    """Whoever may write the ledger may write any reason into it."""
    open_lab(lab_file).set_service("big", "\x1b[2J\rgone")
    assert seatrial(lab_file, "who").stdout == "big is out of service: \\x1b[2J\\rgone\n"


def test_without_an_inventory_the_command_says_how_to_give_one() -> None:
    done = seatrial(None, "list")
    assert done.returncode == 2
    assert "give --lab FILE or set $SEATRIAL_LAB" in done.stderr
