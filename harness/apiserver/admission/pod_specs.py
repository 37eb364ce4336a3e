"""Specs of pods that have been completed and found good: the replicas of a workload share one.

A pod's spec goes in as it was sent and comes out with its defaults; both depend on nothing but itself and on the
priority that its class has at the moment. So the second pod of a kind need not be completed and checked again, and
does not keep a copy of its own in memory. Nobody writes to what is stored, so sharing is safe.
"""

from typing import Any, NamedTuple

import orjson

from harness.apiserver.storage.store import Object

LIMIT = 2048  # specs; where each pod has one of its own, remembering them only costs

Key = tuple[bytes, int, str, str]


class Priority(NamedTuple):
    """What a pod's PriorityClass makes of it."""

    value: int
    class_name: str
    policy: str


class Completed(NamedTuple):
    """A spec as it is stored, as its creator owns it (with defaults alone), and its quality of service."""

    spec: Object
    wanted: Object
    quality: str


class PodSpecs:
    """From a spec as it was sent, with its priority, to the spec as it is stored."""

    def __init__(self) -> None:
        self._known: dict[Key, Completed] = {}

    def key(self, spec: dict[str, Any], priority: Priority) -> Key:
        return (orjson.dumps(spec), *priority)

    def get(self, key: Key) -> Completed | None:
        return self._known.get(key)

    def keep(self, key: Key, completed: Completed) -> None:
        """Remember what nobody will write to any more."""
        if len(self._known) >= LIMIT:
            self._known.clear()
        self._known[key] = completed
