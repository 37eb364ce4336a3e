"""What the serving process puts beside its API when the cluster's one node is this machine."""

import logging
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from seatrial.harness.clusters.abandoned import end_abandoned, new_pods_folder
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport

if TYPE_CHECKING:  # vendors' libraries and Docker are loaded only where there is such a node
    from seatrial.harness.devices.stand_in import StandIn
    from seatrial.harness.nodes.local import LocalHardware
    from seatrial.harness.nodes.local_agent import LocalAgent
    from seatrial.harness.nodes.runtimes.protocol import Runtime

log = logging.getLogger(__name__)

XPU_FOLDER = "xpu-device-infos"
RuntimeName = Literal["process", "docker"]
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class LocalNode:
    """How this machine is a node."""

    runtime: RuntimeName = "process"
    fake: str = ""  # what stands in for the real devices: a server of the catalogue, MODEL or MODEL:COUNT

    def __post_init__(self) -> None:
        if self.runtime not in get_args(RuntimeName):
            raise UsageError(f"runtime {self.runtime!r}: expected one of: {', '.join(get_args(RuntimeName))}")


@contextmanager
def local_agent(local_node: LocalNode, transport: Transport, clock: Clock) -> Iterator["LocalAgent"]:
    """The agent of this machine, not yet started; stopped in the end, with everything that it ran.

    Raises:
        UsageError: the devices or the runtime that were asked for are not to be had.
    """
    from seatrial.harness.devices.stand_in import stand_in
    from seatrial.harness.devices.survey import real_providers
    from seatrial.harness.nodes.local import LocalHardware
    from seatrial.harness.nodes.local_agent import LocalAgent, ThreadRunner

    with ExitStack() as stack:
        cards = stack.enter_context(stand_in(local_node.fake)) if local_node.fake else None
        providers = cards.providers() if cards is not None else real_providers()
        hardware = stack.enter_context(LocalHardware(providers))
        for vendor, why in hardware.missing.items():
            log.info("devices absent vendor=%s why=%s", vendor, why)
        run_blocking = ThreadRunner()
        stack.callback(run_blocking.close)
        end_abandoned()
        root = new_pods_folder()
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        runtime, annotations = _runtime(local_node, clock, root, hardware, cards)
        agent = LocalAgent(
            transport,
            clock,
            node_name(),
            hardware,
            runtime,
            run_blocking=run_blocking,
            annotations=annotations,
            stand_in=cards,
            xpu_folder=root / XPU_FOLDER,
        )
        stack.callback(agent.stop)
        yield agent


def node_name() -> str:
    """This machine's name, as a node may be called."""
    return _NOT_IN_NAMES.sub("-", platform.node().lower()).strip("-") or "this-machine"


def _runtime(
    local_node: LocalNode, clock: Clock, root: Path, hardware: "LocalHardware", stand_in: "StandIn | None"
) -> tuple["Runtime", dict[str, str]]:
    """The runtime, and annotations of the node: how it enforces limits, and below which control group."""
    from seatrial.harness.nodes.local_agent import CGROUP_ANNOTATION, LIMITS_ANNOTATION
    from seatrial.harness.nodes.runtimes import cgroups

    groups = cgroups.find(cgroups.name_for(root))
    if local_node.runtime == "docker":
        from seatrial.harness.nodes.runtimes.docker import DockerRuntime

        libraries = stand_in.libraries if stand_in is not None else None
        engine = DockerRuntime(clock, devices=stand_in is None, libraries=libraries, folder=root, groups=groups)
        return engine, {LIMITS_ANNOTATION: "docker", CGROUP_ANNOTATION: engine.cgroup_parent}
    from seatrial.harness.nodes.runtimes.process import ProcessRuntime

    # A stand-in's cards are in its libraries alone: a pod finds them where the agent itself does.
    env = stand_in.env() if stand_in is not None else None
    runtime = ProcessRuntime(clock, root, groups=groups, cards=hardware.devices, env=env)
    return runtime, {LIMITS_ANNOTATION: runtime.limits, CGROUP_ANNOTATION: groups.path}
