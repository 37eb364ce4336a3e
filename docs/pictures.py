"""Draws the picture of the sign-off page that README shows: `python docs/pictures.py build/pictures/signoff.html`.

`make pictures` makes that page by a run of all suites. The picture has the verdict, latency, throughput and the fleet.
"""

import json
import sys
from pathlib import Path

from seatrial.reports.browser import PROGRAMS, Browser, program

PICTURE = Path(__file__).parent / "signoff.png"
WIDTH = 900
CHARTS = ("Create to bound", "Throughput")  # beginnings of titles; the first chart of each
_KEEP = """
for (const section of document.querySelectorAll('main > section'))
  if (!['h-performance', 'h-fleet'].includes(section.getAttribute('aria-labelledby'))) section.remove();
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
        browser.open(page, width=WIDTH, height=200)
        browser.ask(_KEEP % json.dumps(CHARTS))
        browser.screenshot(PICTURE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
