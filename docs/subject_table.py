"""Print a table of docs/subjects.md from run folders: `python docs/subject_table.py RUN…`.

For each suite file: how many of the tests that gave a verdict passed. Then each test that failed or was broken, with
its case ID and the first line of its reason.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from seatrial.harness.results import Case, read_run

LONGEST = 160  # characters of a reason


def lines(cases: Iterable[Case]) -> Iterator[str]:
    """The two tables in Markdown."""
    judged = [case for case in cases if case.verdict != "skipped"]
    counts = Counter((suite_of(case), case.verdict) for case in judged)
    yield "| suite | passed |"
    yield "| --- | --- |"
    for suite in sorted({suite_of(case) for case in judged}):
        passed = counts[suite, "passed"]
        total = sum(count for (of, _), count in counts.items() if of == suite)
        yield f"| {suite} | {passed}/{total} |"
    yield ""
    yield "| case | test | verdict | reason |"
    yield "| --- | --- | --- | --- |"
    for case in sorted(judged, key=lambda found: (found.case, found.nodeid)):
        if case.verdict != "passed":
            name = case.nodeid.rpartition("::")[2]
            first = next((line.strip() for line in case.reason.splitlines() if line.strip()), "")
            yield f"| {case.case} | {name} | {case.verdict} | {first[:LONGEST].replace('|', '/')} |"


def suite_of(case: Case) -> str:
    """The folder and file, as `descheduling/test_rounds`."""
    path = Path(case.nodeid.partition("::")[0])
    return f"{path.parent.name}/{path.stem}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("expected folders of runs, found none: python docs/subject_table.py RUN...")
    print("\n".join(lines(case for folder in sys.argv[1:] for case in read_run(Path(folder)).cases)))  # noqa: T201
