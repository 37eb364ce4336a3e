"""Equivalence classes: pods that are equal in everything that the plugins of scope NODE and NODE_PODS read.

The engine keeps results for each class and node, so fewer classes are better. Pod names, commands and the order of
images are not part of a class, nor is the node name of a DaemonSet's pod (`pins`). Plugins of scope CLUSTER keep no
results and read the pod itself, so labels, namespace and volumes are not part of a class either. Pods of one template
share their decoded spec, so most pods are classified by one look-up.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary, ref

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.core import Pod, PodSpec
from seatrial.scheduler.api.device import RENAMED
from seatrial.scheduler.api.quantity import PODS, Amounts, QuantityError
from seatrial.scheduler.cache.pins import unpinned
from seatrial.scheduler.cache.resources import PODS_COLUMN, ResourceIndex
from seatrial.scheduler.pods.cpu_binding import may_bind
from seatrial.scheduler.pods.host_ports import host_ports
from seatrial.scheduler.pods.requests import nonzero_requests, pod_requests

_SpecKey = tuple[int, tuple[str | None, ...] | None]  # identity of the spec, and the marks of its pod


@dataclass(slots=True, eq=False, weakref_slot=True)
class EquivalenceClass:
    """One class. `example` is one of its pods: plugins must read only what they declared of it.

    `id` is never given to another class.
    """

    id: int
    example: Pod
    requests: Amounts
    vector: list[tuple[int, int]]  # (resource column, amount), with 1 of "pods", then in the order of `requests`
    nonzero: tuple[int, int]
    digest: int  # 31 bits of a hash of the content of the class, for tie-breaks
    invalid: str = ""  # why pods of this class cannot be scheduled, for messages
    facts: dict[str, object] = field(default_factory=dict)  # what plugins computed from `example`, by plugin
    width: int = field(init=False)  # greater than all columns in `vector`

    def __post_init__(self) -> None:
        self.width = 1 + max(column for column, _ in self.vector)

    @property
    def named(self) -> list[tuple[str, int, int]]:
        """`vector` with names: (resource name, column, amount)."""
        return [(name, *part) for name, part in zip((PODS, *self.requests), self.vector, strict=True)]


class ClassRegistry:
    """Finds the class of each pod. A spec is known while some pod has it, and a class while someone refers to it."""

    def __init__(self, resources: ResourceIndex, labels: Iterable[str] = (), annotations: Iterable[str] = ()) -> None:
        """`labels`, `annotations`: the keys that plugins read. Other keys are not part of a class."""
        self._resources = resources
        self._labels = tuple(sorted(labels))
        self._annotations = tuple(sorted(annotations))
        self._distinctions: list[Callable[[Pod], object]] = []
        self._by_content: WeakValueDictionary[bytes, EquivalenceClass] = WeakValueDictionary()
        self._by_spec: dict[_SpecKey, tuple[ref[EquivalenceClass], ref[PodSpec]]] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._by_content)

    @property
    def specs(self) -> int:
        """The number of specs whose class is known without reading them; several with different marks count each."""
        return len(self._by_spec)

    def distinguish(self, by: Callable[[Pod], object]) -> None:
        """Make pods for which `by` differs members of different classes, and pods of DaemonSets of classes apart.

        `by` must depend on the spec and on declared labels and annotations alone; its result must be encodable as JSON.
        Call before the first pod is known.
        """
        if by not in self._distinctions:
            self._distinctions.append(by)

    def of(self, pod: Pod) -> EquivalenceClass:
        """The class of `pod`; equal pods get the same object."""
        metadata = pod.metadata
        values = None
        if metadata.annotations or metadata.labels:
            marks = [metadata.labels.get(key) for key in self._labels]
            marks += [metadata.annotations.get(key) for key in self._annotations]
            if any(mark is not None for mark in marks):
                values = tuple(marks)
        if self._distinctions and of_daemon_set(pod):
            values = (*(values or ()), "of a DaemonSet")
        key = (id(pod.spec), values)
        known = self._by_spec.get(key)
        if known is not None:
            reading = known[0]()
            if reading is not None:
                return reading
        reading = self._by_reading(pod, values)
        # Removed with the spec, before another one can have its id. The class is not held: its example has a spec too.
        self._by_spec[key] = ref(reading), ref(pod.spec, lambda _: self._by_spec.pop(key, None))
        return reading

    def _by_reading(self, pod: Pod, values: tuple[str | None, ...] | None) -> EquivalenceClass:
        spec = pod.spec
        affinity = unpinned(spec.affinity)
        invalid = ""
        requests: Amounts = {}
        nonzero = (0, 0)
        try:
            requests = renamed(pod_requests(spec))
            nonzero = nonzero_requests(spec)
        except QuantityError as error:
            invalid = str(error)
        content = _encode(
            (
                sorted(requests.items()),
                nonzero,
                invalid,
                values,
                spec.scheduler_name,
                sorted(spec.node_selector.items()),
                affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                sorted(host_ports(spec)),
                sorted(container.image for container in (*spec.init_containers, *spec.containers)),
                *(("prod",) if may_bind(pod.metadata.labels, spec) else ()),  # what NUMA reads of the priority
                *(by(pod) for by in self._distinctions),
            )
        )
        pod_class = self._by_content.get(content)
        if pod_class is None:
            # Node names of one pod must not affect the class.
            example = replace(pod, spec=replace(spec, node_name="", affinity=affinity))
            pod_class = EquivalenceClass(
                self._made, example, requests, self._vector(requests), nonzero, _digest(content), invalid
            )
            self._made += 1
            self._by_content[content] = pod_class
        return pod_class

    def _vector(self, requests: Amounts) -> list[tuple[int, int]]:
        return [(PODS_COLUMN, 1), *(self._resources.part(name, value) for name, value in requests.items())]

    def offered(self, names: Iterable[str]) -> set[int]:
        """Nodes or ResourceClaims offer these resources from now on, or no longer do.

        Returns the ids of the classes whose vectors changed.
        """
        new = set(names)
        changed: set[int] = set()
        for shape in list(self._by_content.values()):
            if not new.isdisjoint(shape.requests):
                shape.vector = self._vector(shape.requests)
                shape.width = 1 + max(column for column, _ in shape.vector)
                changed.add(shape.id)
        return changed


def of_daemon_set(pod: Pod) -> bool:
    """Whether a DaemonSet owns the pod."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def renamed(requests: Amounts) -> Amounts:
    """Replace deprecated device resource names; if both names are present the new one is used (DEV-R1)."""
    if not any(name in RENAMED for name in requests):
        return requests
    kept = {name: value for name, value in requests.items() if name not in RENAMED or RENAMED[name] in requests}
    return kept | {
        RENAMED[name]: value for name, value in requests.items() if name in RENAMED and RENAMED[name] not in requests
    }


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=4).digest(), "little") >> 1


_encode = msgspec.json.Encoder(order="deterministic").encode
