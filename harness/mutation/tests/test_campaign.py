"""A process that is ended from outside, or that cannot start, says nothing about its mutant."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.campaign import run_baseline


@pytest.mark.parametrize("number", [9, 15])
def test_a_process_that_is_ended_from_outside_is_no_catch(tmp_path: Path, number: int) -> None:
    file = tmp_path / "test_ended.py"
    kill = f"os.kill(os.getpid(), {number})"
    file.write_text(f"import os\nimport signal\n\n\ndef test_ended():\n    {kill}\n    signal.pause()\n")
    with pytest.raises(UsageError, match=f"the original: its process was ended by signal {number} from outside"):
        asyncio.run(run_baseline([file]))


def test_a_process_that_cannot_start_is_no_catch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named seatrial'\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(UsageError, match="ended before it ran a suite, with exit status 1: No module named seatrial"):
        asyncio.run(run_baseline([tmp_path]))


def test_an_error_ends_a_campaign_with_mutants_that_wait(tmp_path: Path) -> None:
    """In a process of its own, as it would wait for ever."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 0.2\nexit 1\n")
    python.chmod(0o755)
    lines = [
        "import asyncio, sys",
        "from seatrial.harness.mutation.campaign import run_campaign",
        "from seatrial.harness.mutation.catalogue import load",
        f"sys.executable = {str(python)!r}",
        "asyncio.run(run_campaign(load()[:3], jobs=1))",
    ]
    ended = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "its process ended before it ran a suite" in ended.stderr
