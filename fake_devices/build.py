"""Builds the C stand-in libraries: compiled at first use, cached by a hash of sources, headers and flags.

`cc` on the path, or the compiler that the package ziglang carries. Where neither is, `compiler()` says so, and what
needs a library is skipped with that reason; in this process NVIDIA's stand-in also exists as a Python object.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from seatrial.fake_devices.layout import c_header

FOLDER = Path(__file__).parent
TABLE_FILE = "device.table"
NO_COMPILER = "no C compiler: install cc (Debian: apt-get install gcc) or the Python package ziglang"
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")


class BuildError(RuntimeError):
    """A stand-in library cannot be built."""


@dataclass(frozen=True, slots=True)
class StandInLibrary:
    """One library: its SONAME, which is also its file name, and the sources beside `attach.c`."""

    soname: str
    sources: tuple[str, ...]
    links: tuple[str, ...] = ("-ldl",)
    aliases: tuple[str, ...] = ()  # other names that loaders ask for


@cache
def compiler() -> tuple[str, ...] | None:
    """The command that compiles C; None if there is none."""
    for name in ("cc", "gcc", "clang"):
        program = shutil.which(name)
        if program:
            return (program,)
    return (sys.executable, "-m", "ziglang", "cc") if importlib.util.find_spec("ziglang") else None


def cache_folder() -> Path:
    """Where built libraries are kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "seatrial" / "abi"


def build(stand: StandInLibrary, *, into: Path | None = None) -> Path:
    """The built library, from the cache if these sources have been compiled before.

    Raises:
        BuildError: no compiler, or it refused.
    """
    command = compiler()
    if command is None:
        raise BuildError(NO_COMPILER)
    sources = [FOLDER / "abi" / "attach.c", *(FOLDER / name for name in stand.sources)]
    headers = sorted({*FOLDER.glob("abi/*.h"), *(header for path in sources for header in path.parent.glob("*.h"))})
    digest = hashlib.sha256(c_header().encode())
    for part in (*command, *_FLAGS, stand.soname, *stand.links):
        digest.update(part.encode())
    for path in (*sources, *headers):
        digest.update(path.read_bytes())
    target = (into or cache_folder()) / digest.hexdigest()[:16] / stand.soname
    if not target.exists():
        _compile(command, stand, sources, target)
    return target


def install(stand: StandInLibrary, folder: Path) -> Path:
    """Copy the library to `folder`. Copies, not links: the loader treats links to one file as one library.

    Raises:
        BuildError: it cannot be built.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / stand.soname
    shutil.copyfile(build(stand), library)
    library.chmod(0o755)
    for alias in stand.aliases:
        (folder / alias).unlink(missing_ok=True)
        (folder / alias).symlink_to(stand.soname)
    return library


def _compile(command: Sequence[str], stand: StandInLibrary, sources: Sequence[Path], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        (Path(scratch) / "table.h").write_text(c_header())
        made = Path(scratch) / stand.soname
        words = [*command, *_FLAGS, f"-Wl,-soname,{stand.soname}", "-I", scratch, "-I", str(FOLDER / "abi")]
        words += [*map(str, sources), "-o", str(made), *stand.links]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{stand.soname}: {command[0]} refused:\n{done.stderr[-2000:]}")
        made.replace(target)  # atomic: a process that builds at the same time finds a whole file or none
