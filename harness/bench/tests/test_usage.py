"""The processor meter against a process that is known to be busy, and one that is known to be idle."""

import subprocess
import sys

import pytest

from seatrial.harness.bench.usage import Meter


@pytest.fixture
def busy_and_idle() -> tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"]:
    spin = "import time\nprint(flush=True)\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\ninput()"
    wait = "print(flush=True)\ninput()"

    def start(code: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", code]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    return start(spin), start(wait)


def test_a_busy_process_is_told_from_an_idle_one(
    busy_and_idle: tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"],
) -> None:
    busy, idle = busy_and_idle
    for process in busy_and_idle:
        assert process.stdout is not None
        process.stdout.readline()
    meter = Meter({"busy": busy.pid, "idle": idle.pid})
    assert busy.stdout is not None
    busy.stdout.readline()  # has spent its 0.4 s
    usage = meter.read()
    for process in busy_and_idle:
        process.communicate(b"\n")
    assert usage.shares["busy"] > usage.shares["idle"]  # 0.4 s of processor time, however long that took; and none
    assert usage.others >= 0
