"""The sign-off page: one HTML file without scripts and external links, made from run folders alone.

The same files give the same page, byte for byte: the page does not depend on the time or the place at which it is
made. It carries a SHA-256 of each run's files, so that a signed copy can be compared with the files it was made from.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from seatrial.harness.errors import ResultsError
from seatrial.reports.collect import Collection
from seatrial.reports.fleet import describe, occupancy, step_of
from seatrial.reports.markdown import markdown
from seatrial.reports.reasons import sentence
from seatrial.reports.release import Release
from seatrial.reports.run_figures import short
from seatrial.reports.sections import SECTIONS, Section, anchor_of
from seatrial.reports.texts import counted, duration_text, moment_text, name_of, own_text, phrase

TEMPLATES = Path(__file__).parent / "templates"
VERDICTS = {"passed": "PASS", "failed": "FAIL", "incomplete": "INCOMPLETE"}


def signoff(
    collection: Collection, *, title: str = "", sections: Sequence[Section] = SECTIONS, release: Release | None = None
) -> str:
    """The page as HTML, with the given sections and those of the release below the verdict.

    Raises:
        ResultsError: there is no run to report on.
    """
    if not collection.runs:
        raise ResultsError("sign-off page: expected at least one run, found none; run `seatrial run` first")
    release = release or Release()
    sections = (*sections[:1], *release.sections, *sections[1:])
    common = _common(collection, title, release)
    made = environment(sections)
    bodies: list[tuple[Section, Markup]] = []
    for section in sections:
        values = section.values(collection)
        if values is not None:
            html = made.get_template(section.template.name).render({**common, **values})
            bodies.append((section, Markup(html)))  # noqa: S704  # rendered with autoescape
    return made.get_template("signoff.html").render({**common, "sections": bodies})


def write_signoff(
    collection: Collection,
    file: Path,
    *,
    title: str = "",
    sections: Sequence[Section] = SECTIONS,
    release: Release | None = None,
) -> Path:
    """Write the page to `file` and return the file.

    Raises:
        ResultsError: there is no run to report on, or the file cannot be written.
    """
    page = signoff(collection, title=title, sections=sections, release=release)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"sign-off page {file}: cannot be written: {error.strerror}") from error
    return file


def write_markdown(collection: Collection, file: Path, release: Release) -> Path:
    """Write a summary in Markdown to `file` and return the file.

    Raises:
        ResultsError: the file cannot be written.
    """
    text = markdown(
        collection, stamp_of(collection, release), headline(collection), policy=release.policy, changes=release.changes
    )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"summary {file}: cannot be written: {error.strerror}") from error
    return file


def stamp_of(collection: Collection, release: Release | None = None) -> str:
    """The verdict in a word or four: a PASS is qualified unless every requirement is verified."""
    if release is not None and release.fails and collection.verdict == "passed":
        return "FAIL"
    if collection.verdict == "passed" and collection.in_state("verified") < len(collection.requirements):
        return "PASS of what ran"
    return VERDICTS[collection.verdict]


def headline(collection: Collection) -> str:
    """The verdict in a sentence."""
    passed, against = collection.count("passed"), collection.count("failed", "broken")
    skipped, total = collection.count("skipped"), len(collection.cases)
    if collection.verdict == "incomplete" and not against:
        return f"Not all that was asked for was run: {passed} of {total} cases passed, none failed. See the remarks."
    if against:
        return f"{against} of {total} cases failed or broke; {passed} passed, {skipped} did not run."
    text = f"All {passed} cases that ran passed; {skipped} did not run." if skipped else f"All {passed} cases passed."
    unproven = collection.in_state("not verified")
    not_built = f", {collection.not_built} of them because they are not built" if collection.not_built else ""
    listed = len(collection.requirements)
    return f"{text} {unproven} of {listed} requirements are not verified{not_built}." if unproven else text


def environment(sections: Sequence[Section] = ()) -> jinja2.Environment:
    """What renders the templates of pages."""
    folders = [TEMPLATES, *dict.fromkeys(section.template.parent for section in sections)]
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"moment": moment_text, "duration": duration_text, "short": short, "case_name": name_of}
    made.filters |= {"phrase": phrase, "counted": counted, "sentence": sentence}
    made.filters["as_typed"] = shlex.join
    made.globals |= {"occupancy": occupancy, "step_of": step_of, "describe": describe}
    made.globals["style"] = own_text(TEMPLATES / "colors.css", TEMPLATES / "signoff.css")
    return made


def _common(collection: Collection, title: str, release: Release) -> dict[str, Any]:
    """The values that the page and all its sections share."""
    runs = collection.runs
    subjects = list(dict.fromkeys(f"{run.info.subject.name} {run.info.subject.version}".strip() for run in runs))
    ends = [run.info.finished for run in runs if run.info.finished]
    return {
        "title": title or " and ".join(subjects),
        "collection": collection,
        "runs": runs,
        "many": len(runs) > 1,
        "stamp": stamp_of(collection, release),
        "header": "failed" if release.fails else collection.verdict,
        "coverage": collection.coverage,
        "devices": collection.grade.devices,
        "kept": sum(promise.state == "verified" for promise in collection.promises),
        "unmet": len(release.unmet),
        "worse": release.worse,
        "headline": headline(collection),
        "finished": max(ends, default=None),
        "counts": {verdict: collection.count(verdict) for verdict in ("passed", "failed", "broken", "skipped")},
        "states": {state: collection.in_state(state) for state in ("verified", "failed", "not verified")},
        "anchor": anchor_of(collection),
    }
