"""The scheduler under test, for cases that end it or cut its connection."""

from collections.abc import Iterator

import pytest

from seatrial.harness.clusters.faulty import Link
from seatrial.harness.subject.protocol import Subject


@pytest.fixture
def running(subject: Subject | None) -> Subject:
    """The scheduler under test, if the case may end it."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; the harness did not start this one")
    return subject


@pytest.fixture
def link(running: Subject) -> Iterator[Link]:
    """The scheduler's connection to the API server."""
    with running.troubled() as link:
        yield link
