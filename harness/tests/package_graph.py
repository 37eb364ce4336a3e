"""The drawing of packages in docs/architecture.md: generated from imports by grimp, written as Mermaid.

`python -m seatrial.harness.tests.package_graph` rewrites the page; `test_package_graph.py` fails if the page is out of
date.

A package is a folder with code, named without the import package `seatrial`. Modules that lie directly in a top-level
folder (`harness/errors.py`, `scheduler/config.py`) belong to that folder's own node. Tests are left out.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PREFIX = "seatrial."  # the import package; its packages are the folders of the repository
DRAWINGS = {  # name of a drawing → the top-level folder whose packages it shows; "" shows the folders themselves
    "folders": "",
    "scheduler": "scheduler",
    "harness": "harness",
}
_PLACE = re.compile(r"(<!-- packages: (\w+) -->\n```mermaid\n).*?(```\n<!-- end -->)", re.DOTALL)

Edge = tuple[str, str]


def imports_of_code() -> set[Edge]:
    """All direct imports between our modules, tests left out: (importer, imported)."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    roots = settings.get("root_packages") or [settings["root_package"]]
    graph = grimp.build_graph(*roots, cache_dir=None, exclude_type_checking_imports=True)
    modules = [module for module in graph.modules if ".tests" not in module and not module.endswith(".conftest")]
    return {
        (importer, imported)
        for importer in modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if ".tests" not in imported
    }


def package_of(module: str, folder: str) -> str:
    """The package of a module in the drawing of `folder`; "" if the drawing does not show it.

    In the drawing of `scheduler`, `seatrial.scheduler.cache.columns` is `cache`.
    """
    parts = module.removeprefix(PREFIX).split(".")
    if not folder:
        return parts[0] if (ROOT / parts[0]).is_dir() else ""
    if parts[0] != folder:
        return ""
    if len(parts) > 2 or (ROOT / folder / parts[-1]).is_dir():
        return parts[1] if len(parts) > 1 else folder
    return folder


def edges_between_packages(imports: Iterable[Edge], folder: str) -> list[Edge]:
    """The distinct edges of one drawing, sorted; imports within a package and of other folders are left out."""
    named = {(package_of(importer, folder), package_of(imported, folder)) for importer, imported in imports}
    return sorted(
        (importer, imported) for importer, imported in named if importer and imported and importer != imported
    )


def without_implied(edges: Iterable[Edge]) -> list[Edge]:
    """The edges that no longer path implies (transitive reduction). Edges within a cycle are all kept."""
    kept = set(edges)
    for edge in sorted(kept):
        importer, imported = edge
        rest = kept - {edge}
        if imported in _reached(importer, rest) and importer not in _reached(imported, kept):
            kept = rest
    return sorted(kept)


def _reached(start: str, edges: set[Edge]) -> set[str]:
    names: set[str] = set()
    todo = [start]
    while todo:
        package = todo.pop()
        following = {imported for importer, imported in edges if importer == package} - names
        names |= following
        todo += following
    return names


def mermaid(edges: Iterable[Edge]) -> Iterator[str]:
    """The lines of a Mermaid flowchart; an arrow points from the importer to what it imports."""
    yield "flowchart TD"
    for importer, imported in edges:
        yield f"    {_node(importer)} --> {_node(imported)}"


def _node(package: str) -> str:
    return f"{package}_[{package}]"  # "end" and "graph" are words of Mermaid: no bare name is an identifier


def drawn(page: str) -> str:
    """The page with each drawing made anew from the imports of today."""
    imports = imports_of_code()

    def drawing(match: re.Match[str]) -> str:
        edges = without_implied(edges_between_packages(imports, DRAWINGS[match[2]]))
        return match[1] + "".join(f"{line}\n" for line in mermaid(edges)) + match[3]

    return _PLACE.sub(drawing, page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
