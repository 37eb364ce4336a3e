"""Composition: builds a descheduler from plain data, a transport and a clock."""

from typing import Any

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.descheduler.config import ConfigError, load, parse
from seatrial.scheduler.descheduler.metrics import render
from seatrial.scheduler.descheduler.shell import Shell
from seatrial.scheduler.framework.routes import Answer, Routes, text

__all__ = ["ConfigError", "build_descheduler", "build_routes", "load", "parse"]


def build_descheduler(transport: Transport, clock: Clock, configuration: Any) -> Shell:
    """A descheduler for a DeschedulerConfiguration as plain data. It does nothing until `start`.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    return Shell(parse(configuration), transport, clock)


def build_routes(shell: Shell) -> Routes:
    """The HTTP routes: health and metrics."""
    routes = Routes()
    routes.add("GET", "/healthz", lambda _: text("ok"))
    routes.add("GET", "/readyz", lambda _: text("ok") if shell.ready else text("not synced", 503))
    routes.add("GET", "/metrics", lambda _: Answer(200, render(shell)))
    return routes
