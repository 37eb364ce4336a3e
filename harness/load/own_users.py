"""The Locust file of a load process with `--locustfile`: takes the user classes from the user's file, or refuses it."""

import sys
import traceback

from locust.util.load_locustfile import load_locustfile

from seatrial.harness.load.locustfile import WORKER, LoadUser
from seatrial.harness.load.settings import FILE_REFUSED

_FILE = WORKER.settings.locustfile


def _refuse(why: str) -> None:
    print(f"--locustfile {_FILE}: {why}", file=sys.stderr)  # noqa: T201 to the parent, which shows it
    sys.exit(FILE_REFUSED)


try:
    _classes, _shapes = load_locustfile(_FILE)
except Exception as error:  # noqa: BLE001 whatever the user's file raises
    _lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
    _where = f"line {_lines[-1]}: " if _lines else ""
    _refuse(f"{_where}{type(error).__name__}: {error}")
else:
    if not _classes or not all(issubclass(each, LoadUser) for each in _classes.values()):
        _refuse(f"expected classes that are a seatrial.testing.load.LoadUser, found {', '.join(_classes) or 'none'}")
    globals().update(_classes | {type(shape).__name__: type(shape) for shape in _shapes})
