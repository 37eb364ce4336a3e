"""The stand-in for libcuda, compiled once a session, and arrangements of tenants that find it."""

import subprocess
from pathlib import Path

import pytest

from fake_devices.build import NO_COMPILER, compiler

SOURCE = Path(__file__).parent / "libcuda.c"


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in's libcuda.so.1, for LD_LIBRARY_PATH."""
    command = compiler()
    if command is None:
        pytest.skip(NO_COMPILER)
    folder = tmp_path_factory.mktemp("libcuda")
    flags = [
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fvisibility=hidden",
        "-Wl,-soname,libcuda.so.1",
    ]
    subprocess.run([*command, *flags, "-o", str(folder / "libcuda.so.1"), str(SOURCE)], check=True)  # noqa: S603
    return folder
