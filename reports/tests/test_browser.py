"""The sign-off page in a real browser: it loads nothing, and all of it is readable on a phone and on paper."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seatrial.harness.results import Case, ResultsWriter, RunInfo, Subject, Verdict, moment
from seatrial.reports.browser import Browser
from seatrial.reports.collect import FEATURES, collect, read_features
from seatrial.reports.grades import GRADES
from seatrial.reports.release import release_of
from seatrial.reports.signoff import write_signoff
from seatrial.reports.tests.sample import FEATURES_YAML, sample_run
from seatrial.scheduler.api.clock import SIM_EPOCH

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
    if (!text.data.trim() || own.closest("script, style, title, desc, nav, .unseen, details.screen")) continue;
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
# Boxes that scroll sideways: what is not seen at first.
SCROLLED = """
[...document.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth)
  .map(box => `${box.ariaLabel}: ${box.scrollWidth} > ${box.clientWidth}`)
"""
# Rows of the requirement table of which the ID, the text or the result is outside of the window, or has no width.
ROWS_OUTSIDE = """
[...document.querySelectorAll(".matrix tbody tr:not(.group)")].filter(row =>
  [".id", ".text", ".result"].some(name => {
    const box = row.querySelector(name).getBoundingClientRect();
    return box.left < 0 || box.right > innerWidth || box.width < 30;
  })
).map(row => row.innerText.slice(0, 80))
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    features = home / "features.yaml"
    features.write_text(FEATURES_YAML)
    runs = [sample_run(home / "a"), sample_run(home / "b", seed=9, backend="kind", failing=False)]
    return write_signoff(collect(runs, features=features), home / "signoff.html")


@pytest.fixture(scope="module")
def long_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The feature list of the suites with long case IDs, at all grades of evidence, from two runs."""
    home = tmp_path_factory.mktemp("long")
    ids = [f"{row.id}.{name}" for row in read_features(FEATURES) for name in row.promises]
    long = "whole-cores-LSR-on-one-NUMA-node-with-a-parameter"
    for number, backend in enumerate(("virtual", "kubelet")):
        with ResultsWriter(home / str(number)) as writer:
            subject = Subject("seatrial-scheduler", "0.2.0")
            writer.run(RunInfo(f"{backend}-20261127-150000", moment(SIM_EPOCH + number), (), backend, subject))
            for place, promise in enumerate(ids):
                case = f"XX-{place:03d}[{long}]"
                grades = (GRADES[place % len(GRADES)],)
                node = f"suites/x/test_x.py::test_{long}[{place}]"
                verdict: Verdict = "failed" if place % 40 == 0 else "passed"
                writer.case(Case(node, verdict, case=case, features=(promise,), grades=grades, suite="x"))
            labels = {"workload": "steady", "profile": "most-allocated-with-a-long-name", "mix": "shared-and-whole"}
            writer.measure("create_to_bound", "ms", values=range(1, 90), labels=labels)
            writer.finish()
    result = collect([home / "0", home / "1"])
    return write_signoff(result, home / "signoff.html", release=release_of(result, base=home / "0", history=home))


def shown(browser: Browser, expression: str) -> Any:
    answer = browser.ask(expression)
    assert isinstance(answer, list)
    return answer


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
    matches = [url for url in browser.requests[requests:] if not url.startswith("data:")]
    assert matches == [page.resolve().as_uri()]
    assert browser.screenshot(tmp_path / "desktop.png").read_bytes().startswith(PNG)


def test_a_picture_ends_where_a_shortened_page_ends(browser: Browser, page: Path, tmp_path: Path) -> None:
    """As docs/pictures.py takes it; a PNG has its width and height at byte 16."""
    browser.open(page, width=900, height=200)
    browser.ask("document.querySelectorAll('main > section').forEach(section => section.remove())")
    size = struct.unpack(">II", browser.screenshot(tmp_path / "short.png").read_bytes()[16:24])
    assert list(size) == browser.ask("[innerWidth, document.documentElement.offsetHeight]")


@pytest.mark.parametrize("width", [PHONE, 768, 1280])
def test_the_page_does_not_scroll_sideways(browser: Browser, page: Path, tmp_path: Path, width: int) -> None:
    """With all that can be unfolded unfolded."""
    browser.open(page, width=width, height=844)
    browser.ask("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert shown(browser, OUTSIDE) == []
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.screenshot(tmp_path / f"at-{width}.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("width", [1200, 1920])
@pytest.mark.parametrize("which", ["page", "long_page"])
def test_no_table_scrolls_sideways(browser: Browser, request: pytest.FixtureRequest, which: str, width: int) -> None:
    browser.open(request.getfixturevalue(which), width=width)
    browser.ask("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert shown(browser, SCROLLED) == []


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("width", [PHONE, 768, 1200])
def test_each_requirement_shows_its_id_its_text_and_its_result(
    browser: Browser, long_page: Path, width: int, folded: bool
) -> None:
    browser.open(long_page, width=width, height=844)
    if not folded:
        browser.ask("document.querySelectorAll('details').forEach(element => element.open = true)")
    assert browser.ask("document.querySelectorAll('.matrix .result').length") > 80
    assert shown(browser, ROWS_OUTSIDE) == []


def test_the_verdict_is_on_one_line_and_the_menu_follows_the_header(browser: Browser, page: Path) -> None:
    """Of all verdicts the longest one is shown."""
    browser.open(page, width=1200, height=900)
    answer = browser.ask("""(() => {
        const stamp = document.querySelector(".stamp");
        stamp.textContent = "PASS of what ran";
        const range = document.createRange();
        range.selectNodeContents(stamp);
        const [header, menu] = ["header", "nav"].map(name => document.querySelector(name).getBoundingClientRect());
        return [new Set([...range.getClientRects()].map(line => line.top)).size, menu.top - header.bottom];
    })()""")
    assert answer == [1, 0]


def test_a_release_that_passed_is_less_than_twenty_pages_of_paper(browser: Browser, tmp_path: Path) -> None:
    """Sixteen cases for each requirement; verified promises, passed cases and files stay folded."""
    rows = read_features(FEATURES)
    with ResultsWriter(tmp_path / "run") as writer:
        writer.run(RunInfo("day", moment(SIM_EPOCH), (), "virtual", Subject("seatrial-scheduler", "0.2.0")))
        for row in rows:
            ids = [f"{row.id}.{name}" for name in row.promises] or [row.id]
            for place in range(16):
                promise = ids[place % len(ids)]
                case = Case(f"suites/x/{row.id}.py::test_{place}", "passed", case=f"{row.id}-{place:03d}")
                writer.case(msgspec.structs.replace(case, features=(promise,), grades=GRADES, suite=row.group))
        writer.attach("", "scheduler configuration", "plugins: {}\n" * 500)
        writer.finish()
    browser.open(write_signoff(collect([tmp_path / "run"]), tmp_path / "signoff.html"), width=703, media="print")
    assert 3 < browser.pdf(tmp_path / "signoff.pdf").read_bytes().count(b"/Type /Page\n") < 20


def test_all_text_is_readable_on_paper(browser: Browser, page: Path, tmp_path: Path) -> None:
    """Evidence that is folded on the screen is unfolded, and no text is cut off. 703 pixels are the width of A4."""
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
