"""Composition: builds a manager and its HTTP routes."""

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.manager.shell import Manager
from seatrial.scheduler.serving.exposition import CONTENT_TYPE, exposed
from seatrial.scheduler.serving.routes import Answer, Routes, text

__all__ = ["build_manager", "build_routes"]


def build_manager(transport: Transport, clock: Clock, *, selector: str = "") -> Manager:
    """A manager for the nodes that a label selector selects. It does nothing until `start`."""
    return Manager(transport, clock, selector=selector)


def build_routes(manager: Manager) -> Routes:
    """Health and metrics."""
    routes = Routes(manager.faults)
    routes.add_health(lambda: manager.ready, text("not synced", 503))
    routes.add("GET", "/metrics", lambda _: Answer(200, exposed(manager.families()), CONTENT_TYPE))
    return routes
