"""A package with plugins as an installer leaves it in a folder of `sys.path`: module, metadata, entry points."""

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
