"""The CustomResourceDefinitions that ship with the program: Koordinator's kinds, and those it builds on."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent / "crds"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def shipped() -> Iterable[dict[str, Any]]:
    """The definitions that come with the program."""
    for path in sorted(_FOLDER.glob("*.yaml")):
        yield yaml.load(path.read_bytes(), Loader=_Loader)  # noqa: S506 a safe loader, in C where there is one
