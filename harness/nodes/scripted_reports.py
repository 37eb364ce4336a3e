"""The use that a simulated node reports: by the scripts in annotations, with the faults of reports."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from seatrial.fake_devices.machine import Machine
from seatrial.harness.devices.provider import Device
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.admission import NodeLedger
from seatrial.harness.nodes.faults import METRICS_GARBAGE, METRICS_SILENT, METRICS_STALE
from seatrial.harness.nodes.numa_usage import NumaUse, divided, zones_of_pod
from seatrial.harness.nodes.pod_run import PodRun
from seatrial.harness.nodes.publisher import Hardware
from seatrial.harness.nodes.usage import NodeUse, scripted_use
from seatrial.harness.nodes.usage_model import Load, UsageModel
from seatrial.harness.nodes.usage_samples import Samples, longest
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.slo import CollectPolicy

log = logging.getLogger(__name__)


class ScriptedReports:
    """What one node reports about the cards, CPU and memory that its pods use."""

    def __init__(self, node: str, hardware: Hardware, ledger: NodeLedger, model: UsageModel, clock: Clock) -> None:
        self._node, self._hardware, self._ledger, self._model, self._clock = node, hardware, ledger, model, clock
        self._faults: dict[str, NodeUse | None] = {}  # verb → for stale reports, the last report

    def apply_fault(self, verb: str, *, on: bool) -> None:
        """Start (`on`) or end a fault of the reports, one of `faults.REPORT_VERBS`."""
        self._faults.pop(verb, None)
        if on:
            self._faults[verb] = None

    def report(self, runs: Mapping[str, PodRun], devices: Sequence[Device], policy: CollectPolicy) -> NodeUse | None:
        """The use by running pods; None while reports are off. `runs`: by pod UID."""
        if METRICS_SILENT in self._faults:
            return None
        stale = self._faults.get(METRICS_STALE)
        if stale is not None:
            return stale
        samples, load = self._model.measure(longest(policy))
        pods = []
        for uid, run in runs.items():
            if run.running:
                try:
                    pods.append(scripted_use(run.work.pod, self._ledger.shares(uid), samples.get(uid)))
                except UsageError as error:
                    log.warning("usage refused node=%s why=%s", self._node, error)
        machine = self._hardware.machine
        zones = machine.numa if isinstance(machine, Machine) else 0
        numa = _numa_use(runs, load, samples, zones) if load is not None and zones > 0 else ()
        use = NodeUse(tuple(devices), tuple(pods), load, garbage=METRICS_GARBAGE in self._faults, numa=numa)
        if METRICS_STALE in self._faults:
            use = self._faults[METRICS_STALE] = replace(use, taken=self._clock.now())
        return use


def _numa_use(
    runs: Mapping[str, PodRun], load: Load, samples: Mapping[str, Samples], zones: int
) -> tuple[NumaUse, ...]:
    measured = [
        (samples[uid], zones_of_pod(run.work.pod.metadata.annotations, zones))
        for uid, run in runs.items()
        if uid in samples
    ]
    return divided(load.node, load.system, measured, zones)
