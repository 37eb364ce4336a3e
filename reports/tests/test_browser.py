"""The sign-off page in a real browser: it loads nothing, and all of it is readable on a phone and on paper."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.reports.browser import Browser, program
from seatrial.reports.collect import collect
from seatrial.reports.signoff import write_signoff
from seatrial.reports.tests.sample import FEATURES_YAML, sample_run

PHONE = 390  # pixels
PNG, PDF = b"\x89PNG", b"%PDF-"

# Elements that stick out of the window on the right, unless an element around them scrolls by itself.
OUTSIDE = """
[...document.querySelectorAll("body *")].filter(element => {
  const box = element.getBoundingClientRect();
  if (box.width === 0 || box.right <= innerWidth + 1 || element.closest(".unseen")) return false;
  for (let above = element.parentElement; above; above = above.parentElement)
    if (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(above).overflowX)) return false;
  return true;
}).map(element => element.outerHTML.slice(0, 120))
"""
# Texts without a box, or cut off by an element with a fixed height.
UNREADABLE = """
(() => {
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, own = text.parentElement;
    if (!text.data.trim() || own.closest("script, style, title, desc, nav, .unseen")) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect();
    if (box.width === 0 || box.height === 0 || !own.checkVisibility()) {
      found.push("hidden: " + text.data.trim().slice(0, 80));
      continue;
    }
    for (let above = own; above && above !== document.body; above = above.parentElement) {
      const style = getComputedStyle(above), edge = above.getBoundingClientRect();
      const cuts = ["auto", "scroll", "hidden", "clip"];
      const low = cuts.includes(style.overflowY) && box.bottom > edge.bottom + 2;
      const wide = cuts.includes(style.overflowX) && box.right > edge.right + 2;
      if (low || wide) { found.push("cut off: " + text.data.trim().slice(0, 80)); break; }
    }
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = program()
    if found is None:
        pytest.skip("needs a browser; install the Debian package chromium")
    with Browser(found) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    features = home / "features.yaml"
    features.write_text(FEATURES_YAML)
    runs = [sample_run(home / "a"), sample_run(home / "b", seed=9, backend="kind", failing=False)]
    return write_signoff(collect(runs, features=features), home / "signoff.html")


def shown(browser: Browser, expression: str) -> Any:
    found = browser.ask(expression)
    assert isinstance(found, list)
    return found


def test_the_checks_find_what_they_look_for(browser: Browser, tmp_path: Path) -> None:
    """A page that does all that is not allowed; otherwise the other tests could pass on anything."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<body><script>console.error('broken')</script><img src='http://127.0.0.1:9/x.png'>"
        "<p style='width: 900px'>wide</p><details><summary>s</summary><p>folded</p></details>"
        "<pre style='height: 20px; overflow: hidden'>a\n\n\n\nlow</pre></body>"
    )
    console, requests = len(browser.console), len(browser.requests)
    browser.open(bad, width=PHONE)
    assert browser.ask("document.documentElement.scrollWidth") > PHONE
    assert any("900px" in element for element in shown(browser, OUTSIDE))
    assert shown(browser, UNREADABLE) == ["hidden: folded", "cut off: a\n\n\n\nlow"]
    assert "broken" in browser.console[console:]
    assert "http://127.0.0.1:9/x.png" in browser.requests[requests:]


def test_nothing_is_loaded_and_nothing_is_wrong(browser: Browser, page: Path, tmp_path: Path) -> None:
    console, requests = len(browser.console), len(browser.requests)
    browser.open(page)
    assert browser.console[console:] == []
    asked = [url for url in browser.requests[requests:] if not url.startswith("data:")]
    assert asked == [page.resolve().as_uri()]
    assert browser.screenshot(tmp_path / "desktop.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("width", [PHONE, 768, 1280])
def test_the_page_does_not_scroll_sideways(browser: Browser, page: Path, tmp_path: Path, width: int) -> None:
    """With all that can be unfolded unfolded."""
    browser.open(page, width=width, height=844)
    browser.ask("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert shown(browser, OUTSIDE) == []
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.screenshot(tmp_path / f"at-{width}.png").read_bytes().startswith(PNG)


def test_all_text_is_readable_on_paper(browser: Browser, page: Path, tmp_path: Path) -> None:
    """What is folded on the screen is unfolded, and no text is cut off. 703 pixels are the text width of A4 here."""
    browser.open(page, width=703, media="print")
    assert browser.ask("document.querySelectorAll('details:not([open])').length") > 0
    assert shown(browser, UNREADABLE) == []
    assert shown(browser, OUTSIDE) == []
    printed = browser.pdf(tmp_path / "signoff.pdf")
    assert printed.read_bytes().startswith(PDF)
    reader = shutil.which("pdftotext")
    if reader is not None:
        done = subprocess.run([reader, str(printed), "-"], capture_output=True, text=True, check=True)
        words = "".join(done.stdout.split())
        assert "low-6holds1of8cardsonn03" in words  # the evidence of a finding, folded on the screen
