"""Hooks of the documentation site: pages generated from code, and links that work on the site and in the repository.

Generated: the command-line reference, the feature table, the API reference, and copies of README.md, CHANGELOG.md,
CONTRIBUTING.md, SECURITY.md and the DESIGN.md of each folder. A link to a file that is no page of the site becomes its
path as code; if there is no such file, the link stays, and `mkdocs build --strict` fails on it.
"""

import logging
import os
import pkgutil
import posixpath
import re
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

log = logging.getLogger("mkdocs.hooks")  # with --strict a warning of this logger is an error

ROOT = Path(__file__).resolve().parents[1]
PROJECT = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
API = ("seatrial.scheduler.api", "seatrial.scheduler.framework")  # a page each, with all of their modules
LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
# Factors of the search's score, by the beginning of a page's path. The specification has more words than all guides, so
# without them it comes first for many queries. What it alone has is still found.
SEARCH_BOOST = {
    "project/contributing.md": 4,
    "load.md": 3,
    "diagnosis.md": 3,
    "own-suites.md": 2,
    "backends.md": 2,
    "local-cluster.md": 2,
    "scoreboard.md": 2,
    "api-conformance.md": 0.2,
    "design/": 0.2,
    "reference/": 0.1,
    "project/changelog.md": 0.05,
    "spec/": 0.05,
}
EXTERNAL = re.compile(r"\]\((?P<inline>https?:[^)]*)\)|<(?P<bare>https?:[^>]*)>")
PATH_OF_PAGE = re.compile(r"(!?\[[^\]\n]*\]\()(?!https?:|mailto:|#)([^)\s#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    sources = {"README.md": "index.md", **{name: page for name, page in PROJECT.items() if (ROOT / name).is_file()}}
    for design in sorted(ROOT.glob("*/DESIGN.md")):
        sources[f"{design.parent.name}/DESIGN.md"] = f"design/{design.parent.name}.md"
    pages = {source: f"docs/{file.src_uri}" for file in files.documentation_pages() for source in [file.src_uri]}
    where = {f"docs/{source}": source for source in pages} | sources
    generated = {page: relink((ROOT / source).read_text(), source, page, where) for source, page in sources.items()}
    generated |= {
        "reference/cli.md": cli_reference(),
        "reference/features.md": feature_table(),
        "reference/testing.md": "# Own suites: `seatrial.testing`\n\n::: seatrial.testing\n\n"
        "## Users of a load: `seatrial.testing.load`\n\n::: seatrial.testing.load\n",
    }
    for package in API:
        generated[f"reference/{package.rpartition('.')[2]}.md"] = api_reference(package)
    for page, content in generated.items():
        files.append(File.generated(config, page, content=content))
    config.extra["where"] = where
    return files


def on_page_markdown(markdown: str, page: object, config: MkDocsConfig, **_: object) -> str:
    """Links of pages below docs/ that leave it, and the search's factor; a malformed link is a warning."""
    uri: str = page.file.src_uri  # type: ignore[attr-defined]
    boost = next((factor for beginning, factor in SEARCH_BOOST.items() if uri.startswith(beginning)), None)
    if boost is not None:
        page.meta.setdefault("search", {})["boost"] = boost  # type: ignore[attr-defined]
    for link in malformed_links(markdown):
        log.warning("%s: expected a link with scheme, host and path, found %r", uri, link)
    where: dict[str, str] = config.extra["where"]
    return relink(markdown, f"docs/{uri}", uri, where) if f"docs/{uri}" in where else markdown


def malformed_links(markdown: str) -> list[str]:
    """Links to other sites that no browser can follow. Whether the page exists is not asked: builds work offline."""
    links = []
    for match in EXTERNAL.finditer(markdown):
        link = match["inline"] or match["bare"]
        try:
            parts = urlsplit(link)
            valid = "." in (parts.hostname or "") and (parts.port is None or parts.port > 0)
        except ValueError:
            valid = False
        if not valid or re.search(r"[\s<>\"\\^`{|}]", link):
            links.append(link)
    return links


def relink(text: str, source: str, page: str, where: dict[str, str]) -> str:
    """The text of the file `source` with its links as they are seen from `page`."""

    def replaced(match: "re.Match[str]") -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        if target in where:
            relative = posixpath.relpath(where[target], posixpath.dirname(page) or ".")
            return f"[{match[1]}]({relative}{match[3] or ''})"
        return (
            match[1]
            if (ROOT / target).exists() and match[1].strip("`") == target
            else (f"{match[1]} (`{target}`)" if (ROOT / target).exists() else match[0])
        )

    def image(match: "re.Match[str]") -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[2]))
        if not match[1].startswith("!") or not target.startswith("docs/"):
            return match[0]
        return match[1] + posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(page) or ".")

    return PATH_OF_PAGE.sub(image, LINK.sub(replaced, text))


def cli_reference() -> str:
    """Every command with its arguments, as its `--help` prints them."""
    os.environ["COLUMNS"] = "120"
    from seatrial.harness.cli import app
    from seatrial.scheduler.__main__ import app as scheduler
    from seatrial.scheduler.descheduler.__main__ import app as descheduler
    from seatrial.scheduler.manager.__main__ import app as manager
    from seatrial.scheduler.webhooks.__main__ import app as webhooks

    parts = [program.generate_docs(heading_level=2) for program in (app, scheduler, descheduler, manager, webhooks)]
    return "# Command line\n\n" + "\n\n".join(parts)


def feature_table() -> str:
    """The rows of suites/features.yaml, with the cases whose markers name them."""
    rows = yaml.safe_load((ROOT / "suites" / "features.yaml").read_bytes())
    index = yaml.safe_load((ROOT / "suites" / "manifests" / "index.yaml").read_bytes())
    naming: dict[str, list[str]] = {}
    for entry in index:
        if "/config/" not in entry["file"]:
            naming[entry["promise"]] = ["manifests/test_released"]
    for path in sorted((ROOT / "suites").glob("*/test_*.py")):
        name = f"{path.parent.name}/{path.stem}"
        for feature in re.findall(r"\"([A-Z]+-\d+(?:\.[a-z0-9.-]+)?)\"", path.read_text()):
            if name not in naming.setdefault(feature, []):
                naming[feature].append(name)
    lines = [
        "# Features",
        "",
        "Rows of `suites/features.yaml`, their promises, and the suites with a case for each promise.",
    ]
    lines += ["", "A grade of evidence that a promise needs is in brackets.", ""]
    group = ""
    for row in sorted(rows, key=lambda row: row["group"]):
        if row["group"] != group:
            group = row["group"]
            lines += ["", f"## {group}", "", "| ID | requirement | release | suites |", "| --- | --- | --- | --- |"]
        suites = ", ".join(f"`{name}`" for name in naming.get(row["id"], ()))
        title = row["title"].replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| **{row['id']}** | **{title}** | {', '.join(map(str, row.get('release', ())))} | {suites} |")
        for name, promise in row.get("promises", {}).items():
            whole = promise if isinstance(promise, dict) else {"text": promise, "needs": []}
            needs = f" [{', '.join(whole['needs'])}]" if whole["needs"] else ""
            suites = ", ".join(f"`{name}`" for name in naming.get(f"{row['id']}.{name}", ())) or "none"
            text = whole["text"].replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| {row['id']}.{name} | {text}{needs} | | {suites} |")
    return "\n".join(lines) + "\n"


def api_reference(package: str) -> str:
    """A page with all public modules of a package."""
    result = import_module(package)
    names = sorted(module.name for module in pkgutil.iter_modules(result.__path__) if module.name != "tests")
    parts = [f"# `{package}`", "", *(f"::: {package}.{name}\n" for name in names if not name.startswith("_"))]
    return "\n".join(parts) + "\n"
