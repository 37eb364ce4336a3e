"""The reference of commands, features and API is generated from the code, so it cannot name what is gone."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from seatrial.harness.cli import app

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.feature("HIL-13.reference")
@pytest.mark.case("VD-020", severity="normal")
def test_every_command_and_module_has_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the command line and each public module of the API vocabulary is in the generated pages."""
    pytest.importorskip("mkdocs", reason="needs the packages for development: make test installs them")
    if not (DOCS / "hooks.py").is_file():
        pytest.skip("needs the repository: an installed package has no documentation")
    spec = spec_from_file_location("seatrial_docs_hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, hooks)
    monkeypatch.setenv("COLUMNS", "120")
    spec.loader.exec_module(hooks)

    commands, modules = hooks.cli_reference(), hooks.api_reference("seatrial.scheduler.api")

    names = [name for name in app if not name.startswith("-")]
    assert "run" in names
    assert [name for name in names if f"seatrial {name}" not in commands] == []
    folder = DOCS.parent / "scheduler" / "api"
    files = [path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")]
    assert [name for name in files if f"::: seatrial.scheduler.api.{name}\n" not in modules] == []
