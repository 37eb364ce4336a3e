"""The identity of seatrial's own source: processes on several machines that work together must run the same."""

import hashlib
from pathlib import Path

import seatrial

SUFFIXES = (".py", ".yaml", ".ini")


def source_digest() -> str:
    """A digest of the files that an installation runs: all code, tables and cases, without our own tests."""
    root = Path(seatrial.__path__[0])
    files = [
        path
        for folder in sorted(root.iterdir())
        for path in ([folder] if folder.is_file() else folder.rglob("*"))
        if path.suffix in SUFFIXES and "tests" not in path.relative_to(root).parts
    ]
    digest = hashlib.sha256()
    for path in sorted(files):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]
