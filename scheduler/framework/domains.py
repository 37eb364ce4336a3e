"""Where the members of a group may be placed together by the network topology. `coscheduling` implements it."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.nodeinfo import PodInfo


@dataclass(frozen=True, slots=True)
class DomainOffer:
    """What the nodes offer to the members of one attempt, [node] each, by row of `NodeColumns`.

    `slots`: by class of members, how many fit on the node; `wanted`: the number of members of each class. `scores`: of
    the first class.
    """

    slots: Sequence[Ints]
    counts: Sequence[int]
    scores: Ints


@dataclass(frozen=True, slots=True)
class DomainChoice:
    """Nodes that are close to each other and may have room for all members.

    `rows` are ascending. `shares`: row and number of members there, in the order of members.
    """

    name: str
    rows: Sequence[int]
    shares: Sequence[tuple[int, int]]


class DomainPlan(ABC):
    """Domains for one attempt."""

    @abstractmethod
    def choices(self) -> Iterator[DomainChoice]:
        """The domains with enough slots, best first."""

    @abstractmethod
    def failure(self, fit_error: str, tried: Sequence[str]) -> str:
        """Why no domain can hold the members; `tried`: domains with enough slots where a member was rejected."""

    @abstractmethod
    def best_slots(self) -> int:
        """The largest number of members that a domain has slots for."""


class Domains(ABC):
    """Where the members of a group may be placed together by the network topology."""

    @abstractmethod
    def plan(self, offer: DomainOffer, infos: Sequence[PodInfo]) -> DomainPlan: ...

    @abstractmethod
    def plan_unheard(self, offer: DomainOffer, infos: Sequence[PodInfo]) -> DomainPlan:
        """The plan for nodes that are not as offered yet: the words of the last attempt stay."""

    @abstractmethod
    def tell(self, words: str) -> None:
        """Set the explanation of the last attempt."""

    @abstractmethod
    def shape(self) -> Hashable:
        """Requests of equal shapes have equal `rows`, at all times."""

    @property
    @abstractmethod
    def version(self) -> int:
        """A number that grows when `rows` may change."""

    @abstractmethod
    def rows(self) -> Ints | None:
        """The domain of each node, [node], -1 outside; all members must be in one. None: there are no domains."""
