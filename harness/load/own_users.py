"""The Locust file of a load process: the users of its plan or of the user's file (`--locustfile`), and those beside."""

import sys
import traceback
from typing import Any, NoReturn

from locust.util.load_locustfile import load_locustfile

from seatrial.harness.load import locustfile, users_beside
from seatrial.harness.load.locustfile import WORKER, LoadUser
from seatrial.harness.load.settings import FILE_REFUSED

_FILE = WORKER.settings.locustfile


def _refuse(why: str) -> NoReturn:
    print(f"--locustfile {_FILE}: {why}", file=sys.stderr)  # noqa: T201 to the parent, which shows it
    sys.exit(FILE_REFUSED)


def _from_file() -> dict[str, Any]:
    try:
        classes, shapes = load_locustfile(_FILE)
    except Exception as error:  # noqa: BLE001 whatever the user's file raises
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
        where = f"line {lines[-1]}: " if lines else ""
        _refuse(f"{where}{type(error).__name__}: {error}")
    if not classes or not all(issubclass(each, LoadUser) for each in classes.values()):
        _refuse(f"expected classes that are a seatrial.testing.load.LoadUser, found {', '.join(classes) or 'none'}")
    bases = {base for each in classes.values() for base in each.__bases__}  # imported to derive from
    classes = {name: each for name, each in classes.items() if each not in bases}
    return {**classes, **{type(shape).__name__: type(shape) for shape in shapes}}


globals().update(
    _from_file() if _FILE else {"PodUser": locustfile.PodUser}
)  # Locust runs whatever class has a name here
globals().update({name: getattr(users_beside, name) for name in WORKER.beside})
