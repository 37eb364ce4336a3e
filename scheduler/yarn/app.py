"""Composition: builds an operator."""

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.yarn.operator import Operator


def build_operator(transport: Transport, resource_manager: Transport, clock: Clock) -> Operator:
    """An operator for a cluster and a ResourceManager. It does nothing until `start`."""
    return Operator(transport, resource_manager, clock)
