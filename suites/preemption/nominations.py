"""Preemptors and victims on a frozen node, whose victims end when the case lets them."""

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, pod


def of(level: str, name: str, cpu: int) -> PodBuilder:
    """A pod of a priority class."""
    return pod(name).request(cpu=cpu).priority_class(f"trial-{level}")


def freeze(trial: Trial, name: str) -> None:
    """Keep victims of the node terminating until `thaw`."""
    trial.inject({"node": name, "verb": "frozen"})


def thaw(trial: Trial, name: str) -> None:
    """Let the node's terminating pods end."""
    trial.heal(name)


def preempt_on_frozen(trial: Trial, expect: Expect, *victims: PodBuilder, by: PodBuilder) -> None:
    """Run the victims on n1, freeze it, and submit a pod: it is nominated to n1 and the victims terminate."""
    names = [victim.name for victim in victims]
    trial.submit(*victims)
    expect.running(*names)
    freeze(trial, "n1")
    trial.submit(by)
    expect.gone(*names)
    expect.nominated(by.name, "n1")


def end(trial: Trial, name: str) -> None:
    """Delete a pod whether or not its node confirms it."""
    assert trial.call("DELETE", f"/api/v1/namespaces/{trial.name}/pods/{name}?gracePeriodSeconds=0").ok
