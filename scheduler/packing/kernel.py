"""The compiled kernel (`kernel.c`, and `keys.c` of the engine): where it is built, and whether it is used.

It computes the same results as the Python functions in less time. Where it has not been built, or cannot be built,
the Python functions run. `seatrial build-kernel` builds it in the virtual environment that it runs in. The file's name
has a hash of the source, so that a kernel of another version is never loaded.
"""

import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

SWITCH = "SEATRIAL_KERNEL"
OFF = "off"
_NAME = "seatrial_kernel"
_FOLDER = Path(__file__).resolve().parent
_SOURCES = (_FOLDER / "kernel.c", _FOLDER.parent / "engine" / "keys.c")
_HEADER = _FOLDER / "kernel.h"
_FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden")
"""Without contraction: a fused multiplication and addition would round once where Python rounds twice."""


class KernelError(RuntimeError):
    """The kernel cannot be built or loaded."""


def library() -> Path:
    """Where the kernel of this version, for this machine, is built."""
    digest = hashlib.sha256(" ".join((*_FLAGS, platform.machine(), sysconfig.get_platform())).encode())
    for source in (*_SOURCES, _HEADER):
        digest.update(source.read_bytes())
    return Path(sys.prefix) / "lib" / "seatrial" / f"{_NAME}-{digest.hexdigest()[:16]}.abi3.so"


def build(into: Path | None = None) -> Path:
    """Compile the kernel, if it has not been; `into`: the file to write, by default `library()`.

    Raises:
        KernelError: there is no compiler, it refuses, or the folder cannot be written.
    """
    target = into or library()
    if target.exists():
        return target
    compiler = next((program for name in ("cc", "gcc", "clang") if (program := shutil.which(name))), None)
    if compiler is None:
        raise KernelError("no C compiler: expected cc, gcc or clang on PATH (Debian: apt-get install gcc)")
    headers = sysconfig.get_path("include")
    if not (Path(headers) / "Python.h").exists():
        raise KernelError(f"no Python.h in {headers} (Debian: apt-get install python3-dev)")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KernelError(f"{target.parent}: expected a folder that can be written: {error.strerror}") from error
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / target.name
        words = [compiler, *_FLAGS, "-I", headers, "-I", str(_FOLDER), *map(str, _SOURCES), "-o", str(made)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KernelError(f"{compiler} refused the kernel:\n{done.stderr[-2000:]}")
        load(made)  # a kernel that cannot be loaded fails here, not in a scheduler that starts later
        made.replace(target)  # atomic: another process never finds a part of the file
    return target


def load(path: Path) -> Any:
    """The extension module in this file.

    Raises:
        KernelError: it cannot be loaded.
    """
    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise KernelError(f"{path}: {error}") from error
    return module


@cache
def kernel() -> Any | None:
    """The extension module; None where the kernel has not been built, does not load, or is switched off."""
    if os.environ.get(SWITCH) == OFF:
        return None
    path = library()
    if not path.exists():
        return None
    try:
        return load(path)
    except KernelError:
        return None


def described() -> str:
    """Whether the kernel is used, in words."""
    if kernel() is not None:
        return "compiled"
    if os.environ.get(SWITCH) == OFF:
        return f"Python ({SWITCH}={OFF})"
    return "Python (`seatrial build-kernel` compiles it)"
