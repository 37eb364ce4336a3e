"""The command, in a process of its own."""

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from seatrial.fake_devices.hami.region import CardLimits, ProcessUsage, new_region, write_region

COMMAND = (sys.executable, "-m", "seatrial", "vgpu-monitor")
UUID = "GPU-8f2e1c4a-0000-1111-2222-333344445555"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One container's region."""
    (tmp_path / "uid_main").mkdir()
    region = new_region("v2.6.1", [CardLimits(UUID, 1 << 30)], [ProcessUsage(1, used=({"data": 42},))])
    write_region(tmp_path / "uid_main" / "uid_main.cache", region)
    return tmp_path


def test_it_serves_until_it_is_told_to_stop(folder: Path) -> None:
    process = subprocess.Popen([*COMMAND, "--folder", str(folder), "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        readline = process.stdout.readline()
        url = next(word for word in readline.split() if word.startswith("http")).rstrip(";")
        assert url.startswith("http://127.0.0.1:")
        page = urllib.request.urlopen(url).read().decode()  # noqa: S310
        assert 'podname="uid"' in page
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_once_prints_and_ends(folder: Path) -> None:
    done = subprocess.run([*COMMAND, "--folder", str(folder), "--once"], capture_output=True, text=True, check=True)
    assert "vGPU_device_memory_usage_in_bytes" in done.stdout


def test_a_folder_that_is_not_there_is_the_user_s_mistake(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--folder", str(tmp_path / "none")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"seatrial: --folder {tmp_path}/none: expected a folder, found nothing\n"
