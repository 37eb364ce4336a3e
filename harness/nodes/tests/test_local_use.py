"""Use by pod on this machine: whose a process is, and what a stand-in's script becomes in reports."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.harness.devices.stand_in import stand_in
from seatrial.harness.nodes.local import LocalHardware, LocalMachine
from seatrial.harness.nodes.local_agent import LocalAgent
from seatrial.harness.nodes.local_use import SAMPLE_EVERY, owner_of
from seatrial.harness.nodes.runtimes.protocol import Work
from seatrial.harness.nodes.runtimes.simulated import SimulatedRuntime, Stages
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.harness.nodes.usage import NODE_METRICS, USAGE_ANNOTATION
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY

GIB = 1 << 30
TEAM = ("team", "a")


def chain(folder: Path, *links: tuple[int, int]) -> Path:
    """A /proc of processes and their parents."""
    for pid, parent in links:
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "stat").write_text(f"{pid} (a) b) S {parent} 1 1 0")
    return folder


@pytest.mark.parametrize(
    ("pid", "owner"),
    [
        pytest.param(20, TEAM, id="the-first-process-itself"),
        pytest.param(40, TEAM, id="a-grandchild"),
        pytest.param(50, None, id="a-stranger"),
        pytest.param(60, None, id="one-that-is-gone"),
        pytest.param(70, None, id="a-circle-that-cannot-be"),
    ],
)
def test_whose_a_process_is(tmp_path: Path, pid: int, owner: tuple[str, str] | None) -> None:
    proc = chain(tmp_path, (20, 10), (30, 20), (40, 30), (50, 1), (70, 71), (71, 70))
    assert owner_of(pid, {20: TEAM}, proc) == owner


def test_a_real_child_is_found_by_its_parent() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert owner_of(child.pid, {os.getpid(): TEAM}) == TEAM
    finally:
        child.communicate(b"\n", timeout=600)


class WithProcesses(SimulatedRuntime):
    """Simulated pods that are this very process, so that there is one for the driver to name."""

    def processes(self, work: Work) -> tuple[int, ...]:
        return (os.getpid(),)


class Rig:
    """The agent of node `box` over a stand-in, with one pod on one card."""

    def __init__(self, agent: Callable[..., LocalAgent], clock: SimClock) -> None:
        self.clock, self.api = clock, LittleApi(clock)
        self.agent = agent(self.api)
        self.agent.start()
        clock.settle()
        self.api.put(NODE_METRICS, {"metadata": {"name": "box", "uid": "m"}, "spec": {}})
        one = pod("a").namespace("default").node_name("box").resources({"nvidia.com/gpu": 1})
        one.annotation(USAGE_ANNOTATION, '{"core": 40, "memory": "6Gi"}')
        one.manifest["status"] = {}
        self.api.put("/api/v1/namespaces/default/pods", one.manifest)
        clock.advance(60.0 + SAMPLE_EVERY)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.api.get(f"{NODE_METRICS}/box")["status"]
        return status


def rows(usage: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        device["id"]: (device["resources"][GPU_CORE], device["resources"][GPU_MEMORY]) for device in usage["devices"]
    }


def test_a_script_is_read_back_through_the_library_and_ends_with_the_pod() -> None:
    clock = SimClock()
    with stand_in("a10:2") as cards, LocalHardware(cards.providers(), LocalMachine(8, 64 * GIB)) as hardware:
        runtime = WithProcesses(clock, stages=Stages(start=(1.0, 1.0)))
        rig = Rig(
            lambda api: LocalAgent(
                api, clock, "box", hardware, runtime, run_blocking=lambda ask, answer: answer(ask()), stand_in=cards
            ),
            clock,
        )
        (held,) = rig.api.get("/api/v1/namespaces/default/pods/a")["status"]["containerStatuses"]
        uuid = held["allocatedResourcesStatus"][0]["resources"][0]["resourceID"]
        (mine,) = rig.status()["podsMetric"]
        assert (mine["namespace"], mine["name"]) == ("default", "a")
        assert rows(mine["podUsage"]) == {uuid: ("40", str(6 * GIB))}
        others = {device.uuid: ("0", "0") for device in hardware.devices() if device.uuid != uuid}
        assert rows(rig.status()["nodeMetric"]["nodeUsage"]) == {uuid: ("40", str(6 * GIB)), **others}

        rig.api.drop("/api/v1/namespaces/default/pods/a")
        clock.advance(60.0 + SAMPLE_EVERY)
        assert rig.status()["podsMetric"] == []
        assert rows(rig.status()["nodeMetric"]["nodeUsage"])[uuid] == ("0", "0")

        faults = orjson.dumps([{"verb": "lost", "device": 0}]).decode()
        rig.api.patch("/api/v1/nodes/box", {"metadata": {"annotations": {"seatrial.dev/faults": faults}}})
        clock.advance(60.0 + SAMPLE_EVERY)
        assert len(rows(rig.status()["nodeMetric"]["nodeUsage"])) == 1
        rig.agent.stop()
