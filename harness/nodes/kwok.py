"""Nodes in the format of KWOK, as `kubectl` creates them: an annotation, and capacity or allocatable in the status.

Follows https://kwok.sigs.k8s.io/docs/user/kwok-manage-nodes-and-pods/. A node without amounts has those of a plain
simulated node; KWOK has 1000 cores and 1 Ti there. Other resources of the manifest stay in the status. No device is
behind them: the node refuses pods that ask for a vendor's device (`nvidia.com/gpu`), as a kubelet without its plugin
does.
"""

from collections.abc import Mapping
from typing import Any

from seatrial.harness.apiserver.quantities import CPU, MEMORY, PODS, Quantity, QuantityError, units
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import SIMULATED_LABEL

FAKE_ANNOTATION = "kwok.x-k8s.io/node"
FAKE = "fake"


def is_fake(annotations: Mapping[str, str]) -> bool:
    """Whether a Node is marked as KWOK's nodes are."""
    return annotations.get(FAKE_ANNOTATION) == FAKE


def is_simulated(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a Node is simulated and of no run: it has our label with the value "true", or only KWOK's annotation."""
    value = labels.get(SIMULATED_LABEL)
    return value == "true" if value is not None else is_fake(annotations)


def size_of(amounts: Mapping[str, Quantity]) -> dict[str, Any]:
    """The part of a fleet file's entry that gives a node these amounts of CPU, memory and pods.

    Raises:
        UsageError: an amount is not a quantity.
    """
    try:
        return {name: units(amounts[name]) for name in (CPU, MEMORY, PODS) if name in amounts}
    except QuantityError as error:
        raise UsageError(f"status.capacity: {error}") from error
