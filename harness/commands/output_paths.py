"""Checks, before a command starts, of files that it writes at its end."""

import os
from pathlib import Path

from seatrial.harness.errors import UsageError


def check_writable(flag: str, path: Path) -> None:
    """Check that a file and the folders above it can be written; nothing is created.

    Raises:
        UsageError: it is a folder, is below a file, or may not be written.
    """
    if path.is_dir():
        raise UsageError(f"{flag} {path}: expected a file, found a folder")
    there = path
    try:
        while not there.exists():
            there = there.parent
    except OSError as error:  # a name too long, a folder without permission
        raise UsageError(f"{flag} {path}: cannot be written: {error.strerror}") from error
    if there != path and not there.is_dir():
        raise UsageError(f"{flag} {path}: expected a folder {there}, found a file")
    if not os.access(there, os.W_OK):
        raise UsageError(f"{flag} {path}: {there} may not be written to")
