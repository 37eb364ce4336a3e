"""What a master does with messages of whoever reaches its port. Importing Locust patches a process: one of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from types import SimpleNamespace
from unittest.mock import Mock

from seatrial.harness.load.master import Master

master = Master(SimpleNamespace(folder=sys.argv[1], workers=["a part"]), Mock())
master._parts["client"] = 0
master.file(SimpleNamespace(node_id="client", data={"kind": sys.argv[2], "content": b"{}"}))
"""


@pytest.mark.parametrize(("kind", "written"), [("progress", True), ("../progress", False), ("name", False)])
def test_only_files_of_a_load_are_written(tmp_path: Path, kind: str, written: bool) -> None:
    folder = tmp_path / "load"
    folder.mkdir()

    subprocess.run([sys.executable, "-c", PROGRAM, str(folder), kind], check=True)

    assert (folder / f"{kind}-0").exists() == written
