"""ConfigMaps, node models and annotations of CPU normalization."""

import json

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.scheduler.api.numa import CPU_BASIC_INFO
from seatrial.suites.loadaware.reports import INTERVAL

FAST, PLAIN = "Fast CPU @ 4.00GHz", "Plain CPU @ 2.00GHz"


# Without `enable` Koordinator's manager calculates nothing for a node. Its LoadAwareScheduling waits for reports.
COLOCATION = {"colocation-config": {"enable": True, "metricReportIntervalSeconds": INTERVAL}}


CONFIG = {
    **COLOCATION,
    "cpu-normalization-config": {
        "enable": True,
        "ratioModel": {FAST: {"baseRatio": 1.5, "hyperThreadEnabledRatio": 1.2}, PLAIN: {"baseRatio": 0.8}},
    },
}


def model(trial: Trial, name: str, cpu: str, *, threads: bool = False, turbo: bool = False) -> None:
    """Write the CPU model of a node, as koordlet reports it."""
    info = {"cpuModel": cpu, "hyperThreadEnabled": threads, "turboEnabled": turbo}
    patch = {"metadata": {"annotations": {CPU_BASIC_INFO: json.dumps(info)}}}
    path = f"/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/{name}"
    accepted(trial.call("PATCH", path, patch), f"write the CPU model of {name}")


def annotation(trial: Trial, name: str, key: str) -> str:
    annotation: str = (trial.node(name)["metadata"].get("annotations") or {}).get(key, "")
    return annotation
