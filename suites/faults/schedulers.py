"""The scheduler under test, for cases that end it or cut its connection; waiting for it."""

from collections.abc import Iterator

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import pod


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


def pause(trial: Trial, seconds: float, *, real: float) -> None:
    """Let `seconds` pass in virtual time, or `real` seconds in real time."""
    virtual = Capability.VIRTUAL_TIME in trial.cluster.capabilities
    trial.pass_time(seconds if virtual else real)


def witnessed(trial: Trial, expect: Expect) -> None:
    """Wait until the scheduler has received the nodes: a bound pod shows it."""
    trial.submit(pod("witness"))
    expect.bound("witness", within=90)
    trial.delete("witness")
    pause(trial, 1, real=1)
