"""Draws the pictures of pages that README and docs/scoreboard.md show: `python docs/pictures.py PAGE.html`.

`make pictures` makes the sign-off page by a run of all suites. Its picture has the verdict, latency, throughput and the
fleet; that of a scoreboard has its cases and promises.
"""

import json
import sys
from pathlib import Path

from seatrial.reports.browser import PROGRAMS, Browser, program

WIDTHS = {"signoff": 900, "scoreboard": 1200}
CHARTS = ("Create to bound", "Throughput")  # beginnings of titles; the first chart of each
_KEEP = """
const kept = ['h-performance', 'h-fleet', 'h-suites', 'h-promises'];
for (const section of document.querySelectorAll('main > section'))
  if (!kept.includes(section.getAttribute('aria-labelledby'))) section.remove();
const rests = 'main > nav, main > footer, [aria-labelledby=h-performance] .scroll';
for (const rest of document.querySelectorAll(rests)) rest.remove();
const charts = [...document.querySelectorAll('[aria-labelledby=h-performance] figure')];
const shown = %s.map(title => charts.find(chart => chart.querySelector('h3').textContent.startsWith(title)));
charts.filter(chart => !shown.includes(chart)).forEach(chart => chart.remove());
document.querySelector('main').style.marginBottom = 0
"""


def main(page: Path) -> None:
    """Write the picture of a page."""
    executable = program()
    if executable is None:
        sys.exit(f"pictures: expected one of {', '.join(PROGRAMS)} on PATH, found none")
    with Browser(executable) as browser:
        browser.open(page, width=WIDTHS[page.stem], height=200)
        browser.ask(_KEEP % json.dumps(CHARTS))
        browser.screenshot(Path(__file__).parent / f"{page.stem}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
