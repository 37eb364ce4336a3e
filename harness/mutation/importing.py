"""Applies a mutant while the modules that it changes are imported; to be called before these imports."""

import ast
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from seatrial.harness.mutation.catalogue import PACKAGE, Mutant, load, mutated, select
from seatrial.harness.mutation.generated import find


def apply(name: str) -> None:
    """Let this process import the mutant with this ID.

    Raises:
        UsageError: the catalogue has no such mutant.
        RuntimeError: a module that it changes is imported already.
    """
    mutant = find(name)
    if mutant is None:
        (mutant,) = select(load(), ids=[name])
    sys.meta_path.insert(0, MutantFinder(mutant))


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Compiles the mutated code and neither reads nor writes cached bytecode."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> types.CodeType:
        code: types.CodeType = compile(ast.fix_missing_locations(self._tree), self.get_filename(fullname), "exec")
        return code


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds the modules that the mutant changes."""

    def __init__(self, mutant: Mutant) -> None:
        """
        Raises:
            DriftError: the mutant does not apply to today's source.
            RuntimeError: a module that the mutant changes is imported already.
        """
        self._trees = {_module_of(path): tree for path, tree in mutated(mutant).items()}
        loaded = self._trees.keys() & sys.modules.keys()
        if loaded:
            raise RuntimeError(f"mutant {mutant.id} comes too late: {', '.join(sorted(loaded))} is imported already")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._trees:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = MutantLoader(fullname, spec.origin, self._trees[fullname])
        return spec


def _module_of(path: Path) -> str:
    """The module that a file is imported as."""
    return ".".join(["seatrial", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")
