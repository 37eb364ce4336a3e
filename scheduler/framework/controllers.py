"""Controllers of plugins: they write objects of the API server besides bindings and the status of pods."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.framework.decisions import Bind, Reject


class Controller:
    """Writes objects of one kind while this scheduler leads. Override what is of use."""

    def start(self) -> None:
        """All that is followed is known, and this scheduler leads."""

    def work(self) -> None:
        """Something may have changed. Called before decisions, in each turn of a leader."""

    def stop(self) -> None:
        """Stop writing and start no timer any more."""


class DecisionWriter(Controller, ABC):
    """A controller that writes the decisions about some pods, as about reserve pods, which are no pods of the API."""

    @abstractmethod
    def writes(self, pod: Pod) -> bool:
        """Whether it writes the decisions about this pod."""

    @abstractmethod
    def bind(self, decision: Bind, settled: Callable[[], None]) -> None:
        """Write the node. `settled` is called once, with the API server's final answer."""

    @abstractmethod
    def reject(self, decision: Reject) -> None:
        """Write why no node is feasible."""


class BindingResults(Protocol):
    """Takes the results of bindings that a `DecisionWriter` wrote."""

    def bound(self, uid: str) -> None:
        """The API server accepted the binding."""

    def bind_failed(self, uid: str, message: str, *, retry: bool) -> None:
        """It did not: the pod gives its place back, and with `retry` is tried again."""


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What a controller writes with. `work` has the `work` of all controllers called soon."""

    rest: Rest
    clock: Clock
    events: EventRecorder
    results: BindingResults
    work: Callable[[], None]


ControllerFactory = Callable[[ControllerContext], Controller]
