"""The table's layout: no padding that compilers could disagree about, and what C sees is what Python wrote."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from seatrial.fake_devices.build import NO_COMPILER, compiler
from seatrial.fake_devices.layout import STRUCTURES, c_header, layout_hash


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda item: item.__name__)
def test_a_structure_has_no_hidden_padding(structure: type[ctypes.Structure]) -> None:
    assert ctypes.sizeof(structure) == sum(ctypes.sizeof(kind) for _, kind, *_ in structure._fields_)
    assert ctypes.sizeof(structure) % 8 == 0


def test_the_header_compiles_and_its_own_size_checks_hold(tmp_path: Path) -> None:
    command = compiler()
    if command is None:
        pytest.skip(NO_COMPILER)
    (tmp_path / "table.h").write_text(c_header())
    (tmp_path / "check.c").write_text('#include "table.h"\nint main(void) { return 0; }\n')
    words = [*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", str(tmp_path / "check.c")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_hash_is_in_the_header() -> None:
    assert f"{layout_hash():#x}" in c_header()
