"""Device objects that list what no machine of the catalog has: a case changes what the node's agent wrote."""

import json
from collections.abc import Callable
from typing import Any

from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import units
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE, GPU_MEMORY_RATIO

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"

Json = dict[str, Any]


def relist(trial: Trial, name: str, change: Callable[[Json], Json | None], **labels: str) -> None:
    """Change every device of the node's Device object, and give the object labels; the scheduler has seen it then.

    The agent writes the object again when a device of the node changes, which these cases do not have happen.
    """
    devices = trial.device(name)["spec"]["devices"]
    changed = [{**one, **(change(one) or {})} for one in devices]
    answer = trial.call("PATCH", f"{DEVICES}/{name}", {"metadata": {"labels": labels}, "spec": {"devices": changed}})
    assert answer.ok, answer.body.decode()
    trial.settle()


def place(numa: int, pcie: str) -> Json:
    return {"topology": {"socketID": 0, "nodeID": numa, "pcieID": pcie, "busID": ""}}


def occupy(trial: Trial, name: str, on: str = "n1", **minors: dict[int, int]) -> None:
    """Have a pod on a node with percent of devices, by type and number: `occupy(trial, "a", gpu={0: 100})`.

    Other components place pods too; where a case chooses, nothing depends on what a scheduler would have chosen.
    """
    listed = {(device["type"], device["minor"]): device for device in trial.device(on)["spec"]["devices"]}
    held: Json = {}
    for kind, parts in minors.items():
        for minor, percent in parts.items():
            one = listed[kind, minor]
            amounts = {key: units(value) * percent // 100 for key, value in one["resources"].items()}
            held.setdefault(kind, []).append({"minor": minor, "id": one["id"], "resources": amounts})
    builder = pod(name).annotation(DEVICE_ALLOCATED, json.dumps(held)).node_name(on)
    if cards := sum(minors.get("gpu", {}).values()):
        builder.resources({GPU_CORE: cards, GPU_MEMORY_RATIO: cards})
    if nics := sum(minors.get("rdma", {}).values()):
        builder.rdma(nics)
    trial.submit(builder)
    trial.settle()
