"""A stand-in for `libcuda.so.1`, for programs and libraries that are tested without a GPU. Nothing is computed.

It can keep HAMi's limits by itself, or leave that to the real library in front of it (`STANDIN_LAX=1`); see libcuda.c.
"""

import subprocess
from pathlib import Path

from seatrial.fake_devices.build import NO_COMPILER, BuildError, compiler

SOURCE = Path(__file__).parent / "libcuda.c"
SONAME = "libcuda.so.1"
_FLAGS = ("-std=gnu11", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")


def install_cuda(folder: Path) -> Path:
    """Build it into a folder, for LD_LIBRARY_PATH.

    Raises:
        BuildError: there is no compiler, or it refused.
    """
    command = compiler()
    if command is None:
        raise BuildError(NO_COMPILER)
    library = folder / SONAME
    words = [*command, *_FLAGS, f"-Wl,-soname,{SONAME}", "-o", str(library), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{SOURCE.name} does not compile: {done.stderr}")
    return library
