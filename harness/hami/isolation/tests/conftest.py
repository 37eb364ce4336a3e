"""The stand-in for libcuda, compiled once a session."""

from pathlib import Path

import pytest

from seatrial.fake_devices.build import NO_COMPILER, compiler
from seatrial.fake_devices.hami.cuda import install_cuda


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in's libcuda.so.1, for LD_LIBRARY_PATH."""
    if compiler() is None:
        pytest.skip(NO_COMPILER)
    folder = tmp_path_factory.mktemp("libcuda")
    install_cuda(folder)
    return folder
