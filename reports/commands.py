"""`seatrial report`, `seatrial compare` and `seatrial matrix`: pages and verdicts from the files of runs."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from seatrial.harness.errors import UsageError
from seatrial.reports.allure import build_html
from seatrial.reports.collect import Collection, collect, fingerprint
from seatrial.reports.compare import Comparison
from seatrial.reports.compare import compare as hold_against
from seatrial.reports.matrix import filled_in
from seatrial.reports.matrix import matrix as table_of
from seatrial.reports.policy import read_policy
from seatrial.reports.reasons import sentence
from seatrial.reports.release import release_of
from seatrial.reports.signoff import headline, stamp_of, write_markdown, write_signoff

PAGE = "signoff.html"
MAX_NAMED = 3  # cases that are named of a group that is no regression

Json = Annotated[bool, Parameter(name="--json", negative="")]
Percent = Annotated[float, Parameter(validator=validators.Number(gte=0))]


def report(
    *folders: Path,
    output: Path | None = None,
    features: Path | None = None,
    title: str = "",
    require: Path | None = None,
    base: Path | None = None,
    history: Path | None = None,
    markdown: Path | None = None,
    json_: Json = False,
) -> int:
    """Write the sign-off page from the files of runs, and Allure's HTML if its command is installed.

    Exit status: 0 passed, 1 failed, incomplete, a demand of --require is not met or a figure is worse than in --base,
    2 the files or the use of this command are at fault.

    Args:
        folders: Run folders, or folders that hold run folders.
        output: File of the page; by default signoff.html in the first folder.
        features: The feature list, a YAML list of {id, title, release, group}; by default that of the suites.
        title: Title of the page; by default the subject's name and version.
        require: A release policy in YAML: rows to verify, each at its grade of evidence, and figures to reach.
        base: The run folder (or folder of runs) of the last release; the page shows what changed since.
        history: A folder that holds older run folders; the page shows figures and verdicts over these runs.
        markdown: Also write a summary in Markdown to this file, as for a pull request.
        json_: Print the verdict and the counts as JSON.
    """
    policy = read_policy(require) if require is not None else None
    result = collect(folders or (Path("seatrial-report"),), features=features)
    release = release_of(result, policy=policy, base=base, history=history, features=features)
    file = output or (folders[0] if folders else Path("seatrial-report")) / PAGE
    page = write_signoff(result, file, title=title, release=release)
    if markdown is not None:
        write_markdown(result, markdown, release)
    allure = [build_html(run) for run in result.runs]
    if json_:
        unmet = [f"{outcome.demand}: {outcome.why}" for outcome in release.unmet]
        results = summary(result, page) | {"unmet": unmet, "regressed": [figure.text for figure in release.worse]}
        if release.fails:
            results["verdict"] = "failed"
        print(json.dumps(results | {"allure": [str(line) for line in allure]}, indent=2))
    else:
        print(f"{stamp_of(result, release)}: {result.coverage}. {headline(result)}")
        print(f"requirements: {_states(result)}")
        for outcome in release.unmet:
            print(f"not met: {outcome.demand}: {outcome.why}")
        for figure in release.worse:
            print(f"regressed: {figure.text}")
        for note in result.notes:
            print(f"note: {note}")
        print(f"page: {page}")
        for line in dict.fromkeys(map(str, allure)):
            print(f"allure: {line}" if not line.startswith("no ") else line)
    return 0 if result.verdict == "passed" and not release.fails else 1


def compare(base: Path, new: Path, *, tolerance: Percent = 10.0, json_: Json = False) -> int:
    """Compare new results with a base: changed verdicts and figures.

    Exit status: 0 no regression, 1 a case fails that did not fail, or a figure is worse beyond tolerance and noise.

    Args:
        base: The run folder (or folder of runs) to compare with.
        new: The run folder (or folder of runs) to compare.
        tolerance: Percent by which a median may be worse.
        json_: Print as JSON.
    """
    outcome = hold_against(collect([base]), collect([new]), tolerance=tolerance / 100)
    if json_:
        print(json.dumps({"regressed": outcome.regressed, "lost": outcome.lost, **asdict(outcome)}, indent=2))
    else:
        _print_comparison(outcome)
    return 1 if outcome.regressed else 0


def summary(node: Collection, page: Path) -> dict[str, Any]:
    """The verdict and the counts, as `seatrial report --json` prints them."""
    return {
        "verdict": node.verdict,
        "cases": {verdict: node.count(verdict) for verdict in ("passed", "failed", "broken", "skipped")},
        "coverage": node.coverage,
        "requirements": {requirement.feature.id: requirement.state for requirement in node.requirements},
        "promises": {promise.id: promise.state for promise in node.promises},
        "runs": [{"id": run.info.id, "verdict": run.verdict, "sha256": fingerprint(run)} for run in node.runs],
        "notes": list(node.notes),
        "page": str(page),
    }


def _states(device: Collection) -> str:
    states = ", ".join(f"{device.in_state(state)} {state}" for state in ("verified", "failed", "not verified"))
    return f"{states} ({device.not_built} not built)" if device.not_built else states


def _print_comparison(outcome: Comparison) -> None:
    for note in outcome.notes:
        print(f"{'differs':<9}  {note}")
    for group in outcome.groups:
        print(f"{group.change:<9}  {group.text}")
        shown = group.cases if group.change == "regressed" else group.cases[:MAX_NAMED]
        for case in shown:
            reason = f"  {sentence(case.reason)}" if case.reason and group.change != "lost" else ""
            print(f"{'':<9}  - {case.verdicts}  {case.nodeid}{reason}")
        if len(shown) < len(group.cases):
            print(f"{'':<9}  - and {len(group.cases) - len(shown):,} more (--json names them)")
    for figure in outcome.figures:
        change = "not valid" if figure.not_valid else "regressed" if figure.regressed else "figure"
        print(f"{change:<9}  {figure.text}")
    if not outcome.cases and not outcome.figures:
        print("nothing changed")
    if outcome.incomplete:
        print("the new results are incomplete: the run was interrupted, or no case passed")
    print("REGRESSED" if outcome.regressed else "no regression")


def matrix(
    *folders: Path, output: Path | None = None, into: Annotated[list[Path] | None, Parameter(negative="")] = None
) -> int:
    """Print the table suite by backend of several runs as Markdown, with failures and the reasons of skips.

    Args:
        folders: Run folders, or folders that hold run folders. Of a case in several runs on the same backend with the
            same subject, the newest verdict counts.
        output: File to write instead of standard output.
        into: A page with `<!-- matrix: table -->` or `<!-- matrix: reasons -->`, each followed by `<!-- end -->`: what
            stands between the two is replaced. May be given several times.
    """
    if not folders:
        raise UsageError("matrix: expected run folders, found none")
    runs = collect(folders).runs
    pages = {page: filled_in(_read_page(page), runs, name=str(page)) for page in into or ()}
    for page, text in pages.items():
        page.write_text(text)
    if output is not None:
        output.write_text(table_of(runs))
    elif not pages:
        print(table_of(runs), end="")
    return 0


def _read_page(page: Path) -> str:
    try:
        return page.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--into {page}: expected a page in Markdown, found {error}") from error
