"""Pods that are placed one after the other."""

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder


def one_by_one(trial: Trial, expect: Expect, pods: list[PodBuilder], profile: str) -> list[str]:
    """The nodes of pods that are submitted one after the other, each after the previous one was placed."""
    node_names = []
    for builder in pods:
        trial.submit(builder.scheduler(profile))
        node_names.append(expect.bound(builder.name).spec.node_name)
    return node_names
