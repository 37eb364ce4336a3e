"""The search of the documentation site shows guides before pages of the specification.

`score` computes what Material's search does in the browser: lunr's BM25 with a prefix match for each word, times the
factors of field and page, and more if all words of the query are found.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIELDS = ("title", "text")
SATURATION, LENGTH = 1.2, 0.75  # k1 and b of BM25


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The search index of the site, built without the reference of the Python API, which takes most of the time."""
    pytest.importorskip("mkdocs")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    site = tmp_path_factory.mktemp("site")
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(site), plugins=["material/search"])
    config.plugins.run_event("startup", command="build", dirty=False)
    build(config)
    document: dict[str, Any] = json.loads((site / "search" / "search_index.json").read_bytes())
    return document


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9_.`]+", unescape(re.sub(r"<[^>]+>", " ", text)).lower())


def ranking(index: dict[str, Any], query: str) -> Iterator[tuple[float, str]]:
    """Score and address of each page with a word of the query, best first."""
    sections = index["docs"]
    terms = words(query)
    counts = [{field: Counter(words(section[field])) for field in FIELDS} for section in sections]
    documents = Counter(word for count in counts for word in {*count["title"], *count["text"]})
    rarity = {word: math.log(1 + abs((len(sections) - n + 0.5) / (n + 0.5))) for word, n in documents.items()}
    mean = {field: sum(count[field].total() for count in counts) / len(sections) for field in FIELDS}
    best: dict[str, float] = {}
    for section, count in zip(sections, counts, strict=True):
        score, matched = 0.0, set()
        for field in FIELDS:
            length = SATURATION * (1 - LENGTH + LENGTH * count[field].total() / mean[field])
            for word, n in count[field].items():
                hits = [term for term in terms if word.startswith(term)]
                matched.update(hits)
                weight = rarity[word] * (SATURATION + 1) * n / (length + n)
                score += weight * bool(hits) * index["config"]["fields"][field]["boost"] * section.get("boost", 1)
        page, _, anchor = section["location"].partition("#")
        score *= 1 + ((not anchor) + (matched == set(terms))) ** 2
        if score:
            best[page] = max(score, best.get(page, 0))
    yield from sorted(((score, page) for page, score in best.items()), reverse=True)


@pytest.mark.parametrize(
    ("query", "guide"),
    [
        pytest.param("load test", "load/", id="load"),
        pytest.param("write a scheduler plugin", "project/contributing/", id="plugin"),
        pytest.param("why is my pod pending", "diagnosis/", id="pending"),
        pytest.param("scale nodes", "local-cluster/", id="scale"),
    ],
)
def test_a_guide_is_found_before_the_specification(index: dict[str, Any], query: str, guide: str) -> None:
    pages = [page for _, page in ranking(index, query)]
    specification = min(number for number, page in enumerate(pages) if page.startswith("spec/"))
    assert pages.index(guide) < min(3, specification), pages[:6]


def test_pages_of_the_specification_have_the_lowest_factor(index: dict[str, Any]) -> None:
    factors: dict[bool, set[float]] = {True: set(), False: set()}
    for section in index["docs"]:
        factors[section["location"].startswith("spec/")].add(section.get("boost", 1))
    assert max(factors[True]) <= min(factors[False])
