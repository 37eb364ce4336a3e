"""Composition: builds a descheduler from plain data, a transport and a clock."""

from typing import Any

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.client.leader import Elector
from seatrial.scheduler.descheduler.config import ConfigError, Configuration, load, parse
from seatrial.scheduler.descheduler.metrics import render
from seatrial.scheduler.descheduler.shell import Shell
from seatrial.scheduler.serving.routes import Answer, Routes, text

__all__ = ["ConfigError", "build_descheduler", "build_routes", "load", "parse"]


def build_descheduler(transport: Transport, clock: Clock, configuration: Any, identity: str) -> "ElectedShell":
    """A descheduler for a DeschedulerConfiguration as plain data. It does nothing until `start`.

    `identity`: its name in leader elections, different for each run.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    return ElectedShell(parse(configuration), transport, clock, identity)


class ElectedShell:
    """A descheduler that works while it is elected, or always if its configuration has no election."""

    def __init__(self, configuration: Configuration, transport: Transport, clock: Clock, identity: str) -> None:
        election = configuration.leader_election
        self.shell = Shell(configuration, transport, clock, standby=bool(election.leader_elect))
        self._elector = Elector(
            transport, clock, election, identity, on_leading=self.shell.lead, on_lost=self.shell.stop
        )
        self._elects = bool(election.leader_elect)

    def start(self) -> None:
        self.shell.start()
        if self._elects:
            self._elector.start()

    def stop(self) -> None:
        """Stop; a leader releases its Lease."""
        self.shell.stop()
        if self._elects:
            self._elector.stop()


def build_routes(shell: Shell) -> Routes:
    """The HTTP routes: health and metrics."""
    routes = Routes(shell.faults)
    routes.add_health(lambda: shell.ready, text("not synced", 503))
    routes.add("GET", "/metrics", lambda _: Answer(200, render(shell)))
    return routes
