"""Device objects that list what no machine of the catalog has: a case changes what the node's agent wrote."""

from collections.abc import Callable
from typing import Any

from seatrial.fixtures.trial import Trial

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
