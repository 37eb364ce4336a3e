"""Renders the manifests of the chart hami-daemon without Helm.

The chart uses a subset of Helm's language: `{{ .Values.a.b }}`, `{{ .Release.Namespace }}` and `{{- if .Values.a }}`
around a whole file. Anything else is refused, so that Helm renders the same.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from seatrial.harness.errors import UsageError

CHART = Path(__file__).parent / "chart"
Manifest = dict[str, Any]

_WHOLE = re.compile(r"\A\{\{- if (\.[\w.]+) \}\}\n(.*)\{\{- end \}\}\n?\Z", re.DOTALL)
_NAME = re.compile(r"\{\{ (\.[\w.]+) \}\}")


def manifests(namespace: str, values: Mapping[str, Any] | None = None, chart: Path = CHART) -> list[Manifest]:
    """All objects of the chart; `values` override the chart's own, as in Helm.

    Raises:
        UsageError: a value that the chart does not have, or a template construct that is not supported here.
    """
    own = yaml.safe_load((chart / "values.yaml").read_text())
    known = {"Values": _over(own, values or {}, "values"), "Release": {"Namespace": namespace}}
    statuses: list[Manifest] = []
    for path in sorted((chart / "templates").glob("*.yaml")):
        statuses += [document for document in yaml.safe_load_all(_rendered(path, known)) if document]
    return statuses


def _rendered(path: Path, known: Mapping[str, Any]) -> str:
    text = path.read_text()
    whole = _WHOLE.match(text)
    if whole is not None:
        if not _value(path, whole[1], known):
            return ""
        text = whole[2]
    text = _NAME.sub(lambda match: str(_value(path, match[1], known)), text)
    if "{{" in text:
        line = next(row for row in text.splitlines() if "{{" in row)
        raise UsageError(f"chart {path}: expected only names and one `if` around the file, found {line.strip()!r}")
    return text


def _value(path: Path, name: str, known: Mapping[str, Any]) -> Any:
    value: Any = known
    for part in name.strip(".").split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UsageError(f"chart {path}: expected a known name, found {name!r}")
        value = value[part]
    return value


def _over(own: Mapping[str, Any], container: Mapping[str, Any], where: str) -> dict[str, Any]:
    for name in container:
        if name not in own:
            raise UsageError(f"{where}: expected one of {', '.join(own)}, found {name!r}")
    return {
        name: _over(value, container.get(name, {}), f"{where}.{name}")
        if isinstance(value, dict)
        else container.get(name, value)
        for name, value in own.items()
    }
