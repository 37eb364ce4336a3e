"""Citations of the specification: all resolve, and the check reports those that do not."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("checks", ROOT / "docs" / "checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_define_their_rules(check: ModuleType) -> None:
    known = check.defined((ROOT / "docs" / "spec").glob("*.md"))
    assert {"DEV-R22", "NUMA-E22", "RSV-E2", "FWK-R47", "QUOTA-M1", "API-A24", "HAMI-GT-15", "QOS-NR-7"} <= known


def test_citations_that_do_not_resolve_are_reported(check: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "docs" / "spec").mkdir(parents=True)
    (tmp_path / "docs" / "spec" / "page.md").write_text(
        "- **DEV-R1** A rule.\n\n### RSV-E1\u2013RSV-E3 several\n", "utf-8"
    )
    bare, missing = "R" + "7", "DEV" + "-R2"  # written apart: the repository's own check reads this file too
    (tmp_path / "a.py").write_text(f'"""See DEV-R1 and RSV-E2."""\n# {missing}\n# {bare} has no page\n', "utf-8")
    problems = list(check.wrong_citations(tmp_path, ["a.py", "docs/spec/page.md"]))
    assert [line.split(" ")[:2] for line in problems] == [["a.py:2:", missing], ["a.py:3:", bare]]
