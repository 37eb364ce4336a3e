"""A process that is ended from outside says nothing about its mutant."""

import asyncio
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
