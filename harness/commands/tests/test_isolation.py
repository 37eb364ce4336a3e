"""The command where nothing can be measured: it says so, with the key and the reason."""

import subprocess
import sys

import pytest

COMMAND = (sys.executable, "-m", "seatrial", "isolation")

# In a process of its own: other tests load a stand-in with NVML's SONAME into this one, and the loader would return it.
PROBE = """
from seatrial.harness.devices.nvidia import NvidiaProvider
missing = NvidiaProvider().probe()
print(missing.why if missing else "")
"""


def test_an_unknown_check_is_named() -> None:
    done = subprocess.run([*COMMAND, "totls"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("seatrial: no check 'totls'; expected all, or some of: totals, filling, ")


def test_a_machine_without_a_gpu_says_so() -> None:
    why = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout.strip()
    if not why:
        pytest.skip("this machine has a GPU; suites/isolation/test_real_gpu.py measures there")
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"seatrial: isolation cannot be measured here (no-gpu): {why}\n"
