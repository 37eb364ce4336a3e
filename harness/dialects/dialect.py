"""The interface of a dialect, and the intents that it says in a scheduler's own objects."""

import importlib
from abc import ABC
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from seatrial.harness.apiserver.quantities import Quantity
from seatrial.harness.errors import UsageError
from seatrial.harness.subject.recipes import is_recipe, read_recipe
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.transport import Request, Response

Manifest = dict[str, Any]
Amounts = Mapping[str, Quantity]  # by resource
Caller = Callable[[Request], Response]  # sends a request to the cluster
_OF_SCOPE = 40  # characters: they end with the random part
BUILT_IN = ("koordinator", "kubernetes", "volcano", "kai", "kueue", "hami")


class Intent(StrEnum):
    """What one asks of a scheduler beside resources, selectors, taints and priorities, which all spell alike."""

    GANGS = "gangs"  # members that start together or not at all
    TOPOLOGY = "topology"  # gangs whose members are all in one domain of the network
    CARDS = "cards"  # whole devices
    SHARES = "shares"  # a part of a device
    LIMITS = "limits"  # a queue gets no more than this
    FAIR_SHARES = "fair-shares"  # queues with equal claims get equal parts of what is short
    RESERVATIONS = "reservations"  # room that only certain pods get


class Object(NamedTuple):
    """An object to create, and the path of its collection."""

    path: str
    manifest: Manifest


class Dialect(ABC):
    """The words of one project. `scope` is the namespace of the case."""

    name: ClassVar[str]
    unsaid: ClassVar[Mapping[Intent, str]] = {}
    """The intents without words, each with its reason."""

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def own(self, name: str) -> str:
        """A name that no other case has, short enough for a label, for what is named across namespaces."""
        return f"{self.scope[-_OF_SCOPE:].strip('-')}-{name}"

    def node(self, node: NodeBuilder) -> None:  # noqa: B027 most schedulers take nodes as they are
        """Have the node offer its cards as this scheduler's pods ask for them, as its device plugin would."""

    def gang(self, name: str, minimum: int) -> Iterable[Object]:
        """A group of which no pod starts before `minimum` of them have room."""
        raise NotImplementedError

    def topology(self, label: str, domains: Iterable[str]) -> Iterable[Object]:  # noqa: ARG002 labels are enough for some
        """Tell the scheduler that nodes with one value of this label are near each other; `domains`: the values."""
        return ()

    def topology_is_read(self, nodes: int, call: Caller) -> bool:  # noqa: ARG002 most do not say
        """Whether the scheduler has seen this number of nodes in the topology."""
        return True

    def gang_within(self, name: str, minimum: int, label: str) -> Iterable[Object]:
        """A gang whose members are all on nodes with one value of this label."""
        raise NotImplementedError

    def join(self, pod: PodBuilder, gang: str) -> None:
        """Make the pod a member."""
        raise NotImplementedError

    def queue(self, name: str, *, share: Amounts, limit: Amounts) -> Iterable[Object]:
        """A queue or quota: `share` is its part where resources are short, `limit` the most that it gets."""
        raise NotImplementedError

    def enqueue(self, pod: PodBuilder, queue: str) -> None:  # noqa: ARG002
        """Count the pod in a queue, or in the one that all clusters have if `queue` is empty."""
        if queue:
            raise NotImplementedError

    def cards(self, pod: PodBuilder, count: int) -> Iterable[Object]:
        """Have the pod ask for whole cards."""
        raise NotImplementedError

    def share(self, pod: PodBuilder, percent: int) -> Iterable[Object]:
        """Have the pod ask for a part of one card: `percent` of its cores and of its memory."""
        raise NotImplementedError

    def reserve(self, name: str, like: PodBuilder, labels: Mapping[str, str]) -> Iterable[Object]:
        """Keep room for a pod `like` this one with these labels."""
        raise NotImplementedError

    def held(self, pod: Pod, call: Caller) -> Mapping[str, int] | None:  # noqa: ARG002
        """The cards that the scheduler gave a bound pod, with percent of each; None if it leaves them to the node."""
        return None


def dialect_named(name: str) -> type[Dialect]:
    """A dialect that comes with seatrial, or the class `DIALECT` of a module of yours, as in `acme.dialect`.

    Raises:
        UsageError: there is no such module, or it has no dialect.
    """
    path = f"seatrial.harness.dialects.{name}" if name in BUILT_IN else name
    try:
        result = getattr(importlib.import_module(path), "DIALECT", None)
    except (ImportError, TypeError, ValueError) as error:  # the latter two for names as `.x` and `a..b`
        raise UsageError(f"--dialect {name}: expected {', '.join(BUILT_IN)} or a module; {error}") from error
    if not (isinstance(result, type) and issubclass(result, Dialect)):
        raise UsageError(f"--dialect {name}: expected the class DIALECT in this module, a Dialect, found {result!r}")
    return result


def dialect_of(subject: str) -> str:
    """The dialect of a subject: its recipe's, or by the name of its program; Koordinator's where that says nothing."""
    if is_recipe(subject) and (dialect := read_recipe(Path(subject)).dialect):
        return dialect
    words = {"kube-scheduler": "kubernetes", "vc-scheduler": "volcano", "volcano": "volcano", "kai": "kai"}
    program = subject.split(maxsplit=1)[0].rpartition("/")[2] if subject.split() else ""
    return next((dialect for word, dialect in words.items() if word in program), "koordinator")
