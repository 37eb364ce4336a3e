"""What the documentation site adds to its pages: links, and references made from code."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs")
    spec = spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "malformed"),
    [
        pytest.param("[a](https://kubernetes.io/docs/#top)", False, id="page"),
        pytest.param("<https://koordinator.sh>", False, id="bare"),
        pytest.param("[a](https:///docs)", True, id="no-host"),
        pytest.param("[a](https://kubernetes/docs)", True, id="host-without-domain"),
        pytest.param("[a](https://kubernetes.io/a b)", True, id="space"),
        pytest.param("[a](http:kubernetes.io)", True, id="no-slashes"),
        pytest.param("[a](https://kubernetes.io:x/)", True, id="port"),
    ],
)
def test_malformed_links_to_other_sites_are_found(hooks: ModuleType, link: str, malformed: bool) -> None:
    assert bool(hooks.malformed_links(f"See {link}.")) is malformed


def test_links_of_all_pages_are_well_formed(hooks: ModuleType) -> None:
    pages = [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]
    assert {page.name: links for page in pages if (links := hooks.malformed_links(page.read_text()))} == {}


def test_the_references_are_made_from_code(hooks: ModuleType) -> None:
    commands = hooks.cli_reference()
    assert all(f"seatrial {name}" in commands for name in ("run", "up", "bench", "load", "report"))
    assert "--leader-elect" in commands
    table = hooks.feature_table()
    assert "| **DEV-1** |" in table
    assert "| DEV-1.whole-cards |" in table
    assert "seatrial.scheduler.framework.extension_points" in hooks.api_reference("seatrial.scheduler.framework")
