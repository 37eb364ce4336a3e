"""The scheduler under test, for cases that end it or cut its connection; waiting for it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.subject.protocol import Subject, open_subject
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


@contextmanager
def with_arguments(
    backend: ClusterBackend, subject: str, folder: Path, plugin: str, args: Mapping[str, object], *, profile: str
) -> Iterator[Trial]:
    """A cluster and a scheduler of its own, of which one plugin has these arguments."""
    config = folder / "config.yaml"
    profiles = [{"schedulerName": profile, "pluginConfig": [{"name": plugin, "args": dict(args)}]}]
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(yaml.safe_dump({**kind, "profiles": profiles}))
    with backend.start() as cluster, open_subject(subject, cluster, seed=0, config=config):
        yield Trial(cluster, "case")


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
