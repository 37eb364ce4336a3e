"""One check of HAMi-core as a test: its measurements are evidence, its breaches are the verdict."""

import json

import pytest

from seatrial.harness.hami.isolation.checks import CHECKS, Bench, Finding
from seatrial.harness.results import ResultsWriter


def finding_of(name: str, bench: Bench, results: ResultsWriter | None, request: pytest.FixtureRequest) -> Finding:
    """The finding of the check of that name, without breaches.

    Raises:
        AssertionError: there are breaches; one on each line.
    """
    finding = CHECKS[name](bench)
    if results is not None:
        results.attach(request.node.nodeid, f"{name}, measured", json.dumps(dict(finding.measured), indent=2))
    assert not finding.breaches, "\n".join(finding.breaches)
    return finding
