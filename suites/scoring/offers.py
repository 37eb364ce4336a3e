"""Nodes that offer what pods choose between."""

import orjson

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH, Request


def offer(trial: Trial, name: str, amounts: dict[str, str]) -> None:
    """Add extended resources to a node, as a device plugin does."""
    body = orjson.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    request = Request("PATCH", f"/api/v1/nodes/{name}/status", body, STRATEGIC_MERGE_PATCH)
    answer = trial.cluster.call(request)
    assert answer.ok, answer.body
