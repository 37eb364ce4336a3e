"""Applies a mutant while the modules that it changes are imported; to be called before these imports."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from seatrial.harness.mutation.catalogue import Mutant, load, mutated, select


def apply(name: str) -> None:
    """Let this process import the mutant with this ID.

    Raises:
        UsageError: the catalogue has no such mutant.
        RuntimeError: a module that it changes is imported already.
    """
    (mutant,) = select(load(), ids=[name])
    sys.meta_path.insert(0, MutantFinder(mutant))


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Compiles the mutated source and neither reads nor writes cached bytecode."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> types.CodeType:
        path = Path(self.get_filename(fullname))
        file = fullname.removeprefix("seatrial.").replace(".", "/")
        file += "/__init__.py" if path.name == "__init__.py" else ".py"
        code: types.CodeType = compile(mutated(self._mutant, file, path.read_text()), str(path), "exec")
        return code


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds the modules that the mutant changes."""

    def __init__(self, mutant: Mutant) -> None:
        """
        Raises:
            RuntimeError: a module that the mutant changes is imported already.
        """
        self._mutant = mutant
        loaded = self._modules() & sys.modules.keys()
        if loaded:
            raise RuntimeError(f"mutant {mutant.id} comes too late: {', '.join(sorted(loaded))} is imported already")

    def _modules(self) -> frozenset[str]:
        return frozenset(module.removesuffix(".__init__") for module in self._mutant.modules)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._modules():
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = MutantLoader(fullname, spec.origin, self._mutant)
        return spec
