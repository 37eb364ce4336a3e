"""The collect policy of usage reports."""

import orjson

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.suites.loadaware.reports import Manifest


def policy(trial: Trial, name: str) -> Manifest:
    response = trial.call("GET", f"{NODE_METRICS_PATH}/{name}")
    if response.code == 404:
        return {}
    metric_collect_policy: Manifest = orjson.loads(response.body)["spec"]["metricCollectPolicy"]
    aggregated = metric_collect_policy.get("nodeAggregatePolicy") or {}
    if "durations" in aggregated:  # programs in Go write 1m0s
        aggregated["durations"] = [go_duration(duration) for duration in aggregated["durations"]]
    return metric_collect_policy
