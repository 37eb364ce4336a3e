"""Nodes that offer what pods choose between."""

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH


def offer(trial: Trial, name: str, amounts: dict[str, str]) -> None:
    """Add extended resources to a node, as a device plugin does."""
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    answer = trial.call("PATCH", f"/api/v1/nodes/{name}/status", body, kind=STRATEGIC_MERGE_PATCH)
    assert answer.ok, answer.body
