"""Tables that plugins keep by class or request are bounded, and decisions do not depend on what is in them."""

from collections.abc import Sized

import pytest

from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.device import RDMA
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.plugins.deviceshare import plugin as deviceshare
from seatrial.scheduler.plugins.deviceshare.plugin import DeviceShare
from seatrial.scheduler.plugins.nodenuma import plugin as nodenuma
from seatrial.scheduler.plugins.nodenuma.plugin import NodeNUMAResource
from seatrial.scheduler.plugins.noderesources import fit
from seatrial.scheduler.plugins.noderesources.fit import NodeResourcesFit
from seatrial.scheduler.tests.rig import Rig

LIMITS = ((deviceshare, "MAX_REQUESTS"), (nodenuma, "MAX_DEMANDS"), (fit, "MAX_DELTAS"))
MAX = 3


def pod(number: int) -> PodBuilder:
    """Each is a class of its own; every fourth asks for bound CPUs."""
    percent = 10 + number
    shared = {"koordinator.sh/gpu-core": percent, "koordinator.sh/gpu-memory-ratio": percent}
    builder = PodBuilder(f"p{number}").resources({"cpu": 2, "memory": f"{1 + number}Gi", **shared})
    return builder.qos("LSR").bind_cpus("FullPCPUs") if number % 4 == 0 else builder


def played() -> tuple[Rig, list[tuple[str, str, dict[str, str]]]]:
    """A core in which thirty pods came, and where they went with which devices."""
    rig = Rig()
    for number in range(4):
        rig.node(f"n{number}", gpus=4)
    rig.submit(PodBuilder("bounded").resources({"cpu": 1, RDMA: 50}))  # from now on, keys are bounds
    for number in range(30):
        rig.submit(pod(number))
        rig.run()
        if number >= 10:
            rig.core.intake.remove_pod(rig.pods[f"p{number - 10}"].metadata.uid)
    bound = [decision for decision in rig.decisions if isinstance(decision, Bind)]
    return rig, [(bind.info.key, bind.node, dict(bind.annotations)) for bind in bound]


def test_tables_are_bounded_and_decisions_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, unbounded = played()
    assert all(len(table) > MAX for table in tables(rig))
    for module, limit in LIMITS:
        monkeypatch.setattr(module, limit, MAX)
    rig, bounded = played()
    assert bounded == unbounded
    assert len(bounded) > 15
    assert all(len(table) <= MAX for table in tables(rig))


def tables(rig: Rig) -> list[Sized]:
    plugins = {type(plugin).__bases__[0]: plugin for plugin in rig.core.runners["default-scheduler"].profile.all}
    devices, sums, numa = plugins[DeviceShare], plugins[NodeResourcesFit], plugins[NodeNUMAResource]
    assert isinstance(devices, DeviceShare)
    assert isinstance(sums, NodeResourcesFit)
    assert isinstance(numa, NodeNUMAResource)
    return [devices._requests, sums._rises, numa._demands]
