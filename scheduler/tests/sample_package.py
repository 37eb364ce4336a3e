"""A package with plugins as an installer leaves it in a folder of `sys.path`: module, metadata, entry points."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def install(folder: Path, name: str, plugin: str, entry_points: str) -> None:
    """Write version 1.2 of the package: `plugin` is the source of its module `NAME.plugin`."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    (folder / name / "plugin.py").write_text(plugin)
    metadata = folder / f"{name}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(entry_points)


@contextmanager
def on_path(folder: Path, name: str) -> Iterator[None]:
    """Have this process find the installed package, and forget its modules afterwards.

    The package of the next test has the same name in another folder. A module that stays imported would be looked up
    in the folder of the first, which is gone.
    """
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for module in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[module]
