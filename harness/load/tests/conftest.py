"""One embedded cluster with our scheduler for the tests of a module."""

from collections.abc import Iterator

import pytest

from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.subject.protocol import OURS, open_subject


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedBackend().start(fleet="default") as cluster, open_subject(OURS, cluster):
        yield cluster
