"""Names that are participles: the check reports each kind of binding, and nothing else."""

import importlib.util
from pathlib import Path

import pytest

SPEC = importlib.util.spec_from_file_location("checks", Path(__file__).resolve().parents[2] / "docs" / "checks.py")
assert SPEC is not None
assert SPEC.loader is not None
check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("found = 1", id="variable"),
        pytest.param("_WANTED: int = 1", id="constant"),
        pytest.param("[told for told in ()]", id="comprehension"),
        pytest.param("lambda said: 1", id="parameter"),
        pytest.param("self.found, b = 1, 2", id="attribute"),
        pytest.param("def _told(): ...", id="function"),
        pytest.param("class Wanted: ...", id="class"),
        pytest.param("import a as found", id="import"),
        pytest.param("try: ...\nexcept OSError as said: ...", id="exception"),
        pytest.param("match a:\n  case [*found]: ...", id="pattern"),
    ],
)
def test_a_participle_is_reported(source: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(source)
    (problem,) = check.participles(tmp_path, ["a.py"])
    assert problem.startswith("a.py:")
    assert "is a participle; name it with a noun" in problem


def test_words_within_names_in_strings_and_in_comments_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("not_found = 'found'  # found\nprint(answer.found)\n")
    assert list(check.participles(tmp_path, ["a.py"])) == []
