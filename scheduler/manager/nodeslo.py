"""The NodeSLO of a node: how its agent shares the machine between service classes (NS-1, C-4, C-5)."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from seatrial.scheduler.api.quantity import QuantityError, canonical
from seatrial.scheduler.manager.config import APPLICATIONS, BURST, QOS, SYSTEM, THRESHOLD, SloConfig
from seatrial.scheduler.manager.sections import Settings, overlaid

BANDWIDTH_ANNOTATION = "node.koordinator.sh/network-bandwidth"

# Defaults of Koordinator's pkg/util/sloconfig/nodeslo_config.go. Those of the resource QoS strategy are merged by the
# node agent (NS-3).
BLOCKS: Mapping[str, tuple[str, Settings]] = {
    "resourceUsedThresholdWithBE": (
        THRESHOLD,
        {
            "enable": False,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressPolicy": "cpuset",
            "memoryEvictThresholdPercent": 70,
        },
    ),
    "resourceQOSStrategy": (QOS, {}),
    "cpuBurstStrategy": (
        BURST,
        {
            "policy": "none",
            "cpuBurstPercent": 1000,
            "cfsQuotaBurstPercent": 300,
            "cfsQuotaBurstPeriodSeconds": -1,
            "sharePoolThresholdPercent": 50,
        },
    ),
    "systemStrategy": (SYSTEM, {"totalNetworkBandwidth": "0"}),
}


def node_slo_spec(
    config: SloConfig, labels: Mapping[str, str], annotations: Mapping[str, str], before: Mapping[str, Any]
) -> Settings:
    """The spec for a node. A block whose settings could never be read keeps its content of `before`."""
    spec: Settings = {}
    for block, (key, defaults) in BLOCKS.items():
        if key in config.broken and key not in config.sections:
            if block in before:
                spec[block] = before[block]
            continue
        spec[block] = overlaid(defaults, config.section(key).on(labels))
    bandwidth = annotations.get(BANDWIDTH_ANNOTATION, "")
    if bandwidth and "systemStrategy" in spec:
        with suppress(QuantityError):  # the configured bandwidth stays (C-5)
            spec["systemStrategy"]["totalNetworkBandwidth"] = canonical(bandwidth)
    applications = config.section(APPLICATIONS).on(labels).get("applications")
    if APPLICATIONS in config.broken and APPLICATIONS not in config.sections:
        applications = before.get("hostApplications")
    if applications:
        spec["hostApplications"] = applications
    return spec
