"""The recipes of CONTRIBUTING.md work as they are written, and files that the documentation names exist."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
RECIPES = (
    "A scheduler plugin",
    "A device vendor",
    "A suite case",
    "A kubectl column",
    "A backend",
    "A report section",
    "A fault",
    "A fleet model",
)

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_FOLDERS = ("docs/", "fake_devices/", "fixtures/", "harness/", "reports/", "scheduler/", "suites/")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One recipe of the page: its files by name, its commands, and the paths that its text names."""

    files: dict[str, str]
    commands: list[str]
    paths: list[str]


def recipes() -> dict[str, Recipe]:
    """The recipes by title."""
    _, _, chapter = PAGE.read_text(encoding="utf-8").partition("\n## Recipes\n")
    recipes = {}
    for part in chapter.split("\n### ")[1:]:
        title, _, body = part.partition("\n")
        blocks = _BLOCK.findall(body)
        lines = [line for language, _, text in blocks if language == "console" for line in text.splitlines()]
        recipes[title] = Recipe(
            files={name: text for _, name, text in blocks if name},
            commands=[line.removeprefix("$ ") for line in lines],
            paths=[path for path in _CODE.findall(_BLOCK.sub("", body)) if path.startswith(_FOLDERS)],
        )
    return recipes


def test_the_page_has_all_recipes() -> None:
    assert tuple(recipes()) == RECIPES


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_works(title: str, tmp_path: Path) -> None:
    """The recipe's files are written into an empty folder; its commands run there and succeed."""
    recipe = recipes()[title]
    assert recipe.files
    assert recipe.commands
    for name, text in recipe.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for command in recipe.commands:
        done = subprocess.run(
            ["bash", "-c", command],  # noqa: S607
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{title}: {command}\n{done.stdout}{done.stderr}"
        assert re.search(r"\d+ passed", done.stdout), done.stdout
        assert "skipped" not in done.stdout


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_names_files_that_exist(title: str) -> None:
    paths = recipes()[title].paths
    assert len(paths) >= 3
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_a_page_names_files_that_exist(page: str) -> None:
    text = _BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    paths = [path for path in _CODE.findall(text) if path.startswith(_FOLDERS)]
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
