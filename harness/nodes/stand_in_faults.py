"""Faults of a stand-in machine, injected by the annotation of its Node."""

import logging
from collections.abc import Callable, Mapping

from seatrial.harness.devices.stand_in import StandIn
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION, FaultScript
from seatrial.harness.nodes.hardware import NodeHardware
from seatrial.harness.nodes.local import LocalHardware
from seatrial.harness.nodes.local_use import RunBlocking
from seatrial.scheduler.api.clock import Clock

log = logging.getLogger(__name__)


class StandInFaults:
    """The faults of one stand-in. `on_node(verb, on)` is called for each fault of the node itself."""

    def __init__(
        self,
        node: str,
        stand_in: StandIn,
        hardware: LocalHardware,
        clock: Clock,
        run_blocking: RunBlocking,
        *,
        on_node: Callable[[str, bool], None],
    ) -> None:
        self._node, self._stand_in, self._hardware, self._run_blocking = node, stand_in, hardware, run_blocking
        self._devices = NodeHardware(node, stand_in.machine, table=stand_in.table)
        self._script = FaultScript(self._devices, clock, on_devices=self._devices_changed, on_node=on_node)

    def follow(self, annotations: Mapping[str, str]) -> None:
        """Start and end faults by the Node's annotations; entries that cannot be applied are logged."""
        for problem in self._script.follow(annotations.get(FAULTS_ANNOTATION, "")):
            log.warning("fault refused node=%s why=%s", self._node, problem)

    def close(self) -> None:
        self._script.close()

    def _devices_changed(self) -> None:
        """Healthy devices were repaired, so providers forget their earlier faults."""
        self._stand_in.sync()
        well = [device.uuid for device in self._devices.devices() if device.health.ok]

        def forget() -> bool:
            self._hardware.forget(well)
            return False

        self._run_blocking(forget, lambda _: None)
