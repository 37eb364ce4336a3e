"""The Helm chart `seatrial`, and the Dockerfile of its image. `harness.hami.chart` renders it without Helm."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from seatrial.harness.hami.chart import Manifest, manifests

SEATRIAL = Path(__file__).parent / "seatrial"


def seatrial_manifests(namespace: str, values: Mapping[str, Any] | None = None) -> list[Manifest]:
    """The definitions of custom resources, then all other objects; `values` override the chart's own.

    Raises:
        UsageError: a value that the chart does not have.
    """
    return [*definitions(), *manifests(namespace, values, SEATRIAL)]


def definitions() -> list[Manifest]:
    """The chart's CustomResourceDefinitions, which Helm installs first and never removes."""
    return [yaml.safe_load(path.read_bytes()) for path in sorted((SEATRIAL / "crds").glob("*.yaml"))]
