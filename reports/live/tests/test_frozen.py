"""The page of a cluster as a file: what it shows, that texts stay texts, and that it looks right in a browser."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.reports.browser import Browser
from seatrial.reports.live.cluster_view import NODES_PATH, PODS_PATH
from seatrial.reports.live.frozen import frozen_page
from seatrial.reports.live.tests.test_page import wait
from seatrial.reports.tests.test_browser import OUTSIDE
from seatrial.scheduler.api.builders import pod

MARKUP = "</script><script>document.title = 'run'</script>"


def waiting(name: str, message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    manifest = pod(name).manifest
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": "x"}, "status": {"conditions": [condition]}}


def page() -> str:
    objects: dict[str, list[dict[str, Any]]] = {
        NODES_PATH: [{"metadata": {"name": "n1"}}, {"metadata": {"name": 7}}],
        PODS_PATH: [waiting("huge", f"Insufficient cpu {MARKUP}")],
    }
    return frozen_page("trial-x", objects).decode()


def test_what_it_shows() -> None:
    """An object that cannot be read is left out, the others are there, and no text ends the script."""
    text = page()
    match = re.search(r'<script id="rows" type="application/json">(.*?)</script>', text)
    assert match is not None
    rows = orjson.loads(match[1])
    assert list(rows["nodes"]) == ["n1"]
    assert rows["pending"]["x/huge"]["message"] == f"Insufficient cpu {MARKUP}"
    assert MARKUP not in text


@pytest.mark.parametrize("width", [390, 1200])
def test_in_a_browser(browser: Browser, tmp_path: Path, width: int) -> None:
    """Without a server: the rows are drawn, no text is run, and no box is wider than its room."""
    file = tmp_path / "page.html"
    file.write_text(page())
    browser.open(file.as_uri(), width=width)
    wait(browser, "document.querySelectorAll('#pending .list > *').length === 1")
    assert browser.ask("document.title") == "seatrial: trial-x"
    assert browser.ask("document.getElementById('state').innerText") == "as it was"
    assert browser.ask(OUTSIDE) == []
