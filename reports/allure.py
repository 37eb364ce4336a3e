"""Allure: labels of cases, environment, categories and executor of a run, and the HTML report if `allure` is installed.

allure-pytest writes Allure's results while the tests run. This module adds the files about the run as a whole. File
formats: Allure's documentation, "How it works"; environment.properties is a Java properties file.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from seatrial.harness.errors import HarnessError
from seatrial.harness.results import ALLURE, Case, Run
from seatrial.reports.collect import Feature

COMMAND = "allure"
REPORT = "allure-report"
SIGNOFF = "signoff.html"  # beside it
SEVERITIES = frozenset({"blocker", "critical", "normal", "minor", "trivial"})
CATEGORIES = (  # Allure uses the first category that matches
    {"name": "Verdicts on the scheduler", "matchedStatuses": ["failed"]},
    {"name": "The harness or its surroundings were at fault", "matchedStatuses": ["broken"]},
    {"name": "Not verified here", "matchedStatuses": ["skipped"]},
)
KINDS = {".txt": "text/plain", ".json": "application/json", ".yaml": "application/yaml", ".png": "image/png"}
CONFIGURATION = "allurerc.json"
HISTORY = "allure-history.jsonl"
RELEASES = "https://github.com/koordinator-sh/koordinator/releases/tag"
_VERSION = re.compile(r"(\d+)\.\d+\.\d+")
_SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_ESCAPED = re.compile(r"([\\:=\s#!])")


def labels(case: Case, rows: Mapping[str, Feature] | None = None) -> list[tuple[str, str]]:
    """Allure's labels of a case: groups become epics, rows features, promises stories; IDs are tags as well."""
    results: dict[tuple[str, str], None] = {}
    for name in case.features:
        row = (rows or {}).get(name.partition(".")[0])
        if row is None:
            results["feature", name] = None
            continue
        results["epic", row.group] = None
        results["feature", f"{row.id}: {row.title}".rstrip(": ")] = None
        if name != row.id:
            promise = row.promises.get(name.removeprefix(f"{row.id}."))
            results["story", f"{name}: {promise.text}" if promise else name] = None
    return [*results, *_tags(case)]


def links(case: Case, rows: Mapping[str, Feature] | None = None) -> list[tuple[str, str]]:
    """Links of a case as (URL, text): the sign-off page of its run, and the releases that announce its rows."""
    messages = {f"../{SIGNOFF}": "Sign-off page of the run"}
    for name in case.features:
        row = (rows or {}).get(name.partition(".")[0])
        for release in row.release if row is not None else ():
            messages[f"{RELEASES}/{release}.0"] = f"Koordinator {release}"
    return list(messages.items())


def title(case: Case) -> str:
    """The title of a case: the first sentence of its description with its parameters, or its name in words."""
    _, bracket, parameters = case.title.partition(" (")
    paragraph = " ".join(case.description.partition("\n\n")[0].split())
    first = _SENTENCE_END.split(paragraph, maxsplit=1)[0].rstrip(".")
    return f"{first}{bracket}{parameters}" if first else case.title


def _tags(case: Case) -> list[tuple[str, str]]:
    tags = [("tag", feature) for feature in case.features]
    if case.suite:
        tags += [("parentSuite", "seatrial"), ("suite", case.suite)]
    if case.case:
        tags.append(("tag", case.case))
    tags.append(("severity", case.severity if case.severity in SEVERITIES else "normal"))
    return tags


def write_context(run: Run) -> Path:
    """Write the files about the run beside Allure's results; returns that folder.

    environment.properties, categories.json (Allure 2), allurerc.json (Allure 3) and executor.json.
    """
    home = run.folder / ALLURE
    home.mkdir(exist_ok=True)
    lines = [f"{_escaped(key)} = {_value(value)}\n" for key, value in environment(run).items()]
    (home / "environment.properties").write_text("".join(lines), encoding="ascii")
    (home / "categories.json").write_bytes(msgspec.json.format(msgspec.json.encode(CATEGORIES)))
    (home / CONFIGURATION).write_bytes(msgspec.json.format(msgspec.json.encode(configuration(run))))
    executor = {"name": "seatrial", "type": "seatrial", "buildName": run.info.id, "reportName": report_name(run)}
    (home / "executor.json").write_bytes(msgspec.json.format(msgspec.json.encode(executor)))
    return home


def environment(run: Run) -> dict[str, str]:
    """The environment that Allure shows."""
    info = run.info
    subject = f"{info.subject.name} {info.subject.version}".strip()
    known = {"subject": subject, "backend": info.backend, "fleet": info.fleet, "command": shlex.join(info.command)}
    if info.seed is not None:
        known["seed"] = str(info.seed)
    return {key: value for key, value in (known | info.versions | info.host).items() if value}


def configuration(run: Run) -> dict[str, object]:
    """The configuration of Allure 3, which reads categories and the place of its history from it.

    The history is beside the run's folder, so that the next run with a folder there shows what changed.
    """
    rules = [
        {"name": category["name"], "matchers": [{"statuses": category["matchedStatuses"]}]} for category in CATEGORIES
    ]
    return {
        "name": report_name(run),
        "historyPath": str(run.folder.resolve().parent / HISTORY),
        "appendHistory": True,
        "categories": {"rules": rules},
        "environments": {},
        "plugins": {"awesome": {"options": {"groupBy": ["epic", "feature", "story"]}}},
    }


def report_name(run: Run) -> str:
    """The title of Allure's report."""
    return f"{run.info.subject.name} {run.info.subject.version} on {run.info.backend}".strip()


def build_html(run: Run, *, which: Callable[[str], str | None] = shutil.which) -> Path | str:
    """Build Allure's HTML in `allure-report/` of the run's folder; returns its index, or the reason why there is none.

    Raises:
        HarnessError: the command `allure` failed.
    """
    results = run.folder / ALLURE
    if not results.is_dir() or not any(results.glob("*-result.json")):
        return f"no Allure HTML: {results} has no results (allure-pytest writes them while the tests run)"
    command = which(COMMAND)
    if command is None:
        return "no Allure HTML: the command `allure` is not on PATH; install it with `npm install --global allure`"
    write_context(run)
    page = run.folder / REPORT / "index.html"
    if page.is_file():  # an older report; Allure 2 refuses to overwrite
        shutil.rmtree(page.parent)
    line = [command, "generate", str(results), "--output", str(page.parent)]
    if _reads_configuration(command):
        line += ["--config", str((results / CONFIGURATION).resolve())]
    done = subprocess.run(line, capture_output=True, text=True, check=False)  # a list, no shell
    if done.returncode or not page.is_file():
        message = (done.stderr or done.stdout).strip()[-600:] or "no output"
        raise HarnessError(f"allure generate: expected {page}, found exit status {done.returncode}: {message}")
    return page


def _reads_configuration(command: str) -> bool:
    """Whether this is Allure 3 or later.

    Allure 3 looks for its configuration in the working directory only. Allure 2 has an option of the same name for the
    list of its own plugins, and fails on this file.
    """
    process = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)  # a list
    version = _VERSION.search(process.stdout)
    return version is not None and int(version[1]) >= 3


def _escaped(text: str) -> str:
    """A key of a Java properties file."""
    return _unicode(_ESCAPED.sub(r"\\\1", text))


def _value(text: str) -> str:
    """A value of a Java properties file: one line, backslashes doubled."""
    return _unicode(text.replace("\\", "\\\\").replace("\r", "").replace("\n", "\\n"))


def _unicode(text: str) -> str:
    """ASCII with \\uXXXX, which every reader of properties files understands."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[place : place + 2]) for place in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
