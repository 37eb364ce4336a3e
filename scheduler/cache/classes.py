"""Pods of one shape are one class: what scheduling reads of a pod, and nothing else, decides to which it belongs.

The engine keeps a verdict for each class and node, so the fewer classes the better: names, commands and images' order
make none, and neither does the name of the one node that a DaemonSet's pod may go to (`pins`). Plugins of scope CLUSTER
keep no verdicts and read the pod itself, so what they alone look at (its labels, namespace and volumes) makes none
either. A pod's spec arrives as bytes; pods of one template share them, so most pods are classified by one look-up.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from scheduler.api.core import Pod, PodSpec
from scheduler.api.device import RENAMED
from scheduler.api.quantity import Amounts, QuantityError
from scheduler.cache.pins import unpinned
from scheduler.cache.resources import PODS_COLUMN, ResourceIndex
from scheduler.pods.cpu_binding import may_bind
from scheduler.pods.host_ports import host_ports
from scheduler.pods.requests import nonzero_requests, pod_requests


@dataclass(slots=True, eq=False)
class PodClass:
    """One shape. `example` is some pod of it: plugins may read of it what they declared to read, and no more."""

    id: int
    example: Pod
    requests: Amounts
    vector: list[tuple[int, int]]  # (column of the resource, amount), the pod itself counted as one of "pods"
    nonzero: tuple[int, int]
    digest: int  # 31 bits that follow from what makes the class, for what must be even but repeatable
    invalid: str = ""  # why no pod of this shape can be understood, in words for its owner
    facts: dict[str, object] = field(default_factory=dict)  # what plugins worked out from `example`, by plugin
    width: int = field(init=False)  # all columns in `vector` are below

    def __post_init__(self) -> None:
        self.width = 1 + max(column for column, _ in self.vector)


class ClassBook:
    """Gives each pod its class."""

    def __init__(self, resources: ResourceIndex, labels: Iterable[str] = (), annotations: Iterable[str] = ()) -> None:
        """`labels` and `annotations` are the keys that plugins read; all others are taken to mean nothing to them."""
        self._resources = resources
        self._labels = tuple(sorted(labels))
        self._annotations = tuple(sorted(annotations))
        self._by_content: dict[bytes, PodClass] = {}
        self._by_spec: dict[tuple[int, tuple[str | None, ...] | None], tuple[PodSpec, PodClass]] = {}

    def __len__(self) -> int:
        return len(self._by_content)

    def of(self, pod: Pod) -> PodClass:
        """The class of `pod`; the same object for every pod of one shape."""
        metadata = pod.metadata
        values = None
        if metadata.annotations or metadata.labels:
            marks = [metadata.labels.get(key) for key in self._labels]
            marks += [metadata.annotations.get(key) for key in self._annotations]
            if any(mark is not None for mark in marks):
                values = tuple(marks)
        known = self._by_spec.get((id(pod.spec), values))
        if known is not None:
            return known[1]
        found = self._by_reading(pod, values)
        if len(self._by_spec) >= 65536:  # specs of bound pods name their node; do not keep them for ever
            self._by_spec.clear()
        self._by_spec[id(pod.spec), values] = (pod.spec, found)  # the spec is kept so that its id stays its own
        return found

    def _by_reading(self, pod: Pod, values: tuple[str | None, ...] | None) -> PodClass:
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
        content = _encode((
            sorted(requests.items()), nonzero, invalid, values, spec.scheduler_name, sorted(spec.node_selector.items()),
            affinity, spec.tolerations, spec.topology_spread_constraints,
            sorted(host_ports(spec)),
            sorted(container.image for container in (*spec.init_containers, *spec.containers)),
            *(("prod",) if may_bind(pod.metadata.labels, spec) else ()),  # what NUMA reads of the priority
        ))  # fmt: skip
        found = self._by_content.get(content)
        if found is None:
            vector = [(PODS_COLUMN, 1), *((self._resources.column(name), value) for name, value in requests.items())]
            # Where some pod of the class is, or has to go by name, says nothing about the others.
            example = replace(pod, spec=replace(spec, node_name="", affinity=affinity))
            found = PodClass(len(self._by_content), example, requests, vector, nonzero, _digest(content), invalid)
            self._by_content[content] = found
        return found


def renamed(requests: Amounts) -> Amounts:
    """Deprecated device names under their present ones; where both are given the present one stands (DEV-R1)."""
    if not any(name in RENAMED for name in requests):
        return requests
    kept = {name: value for name, value in requests.items() if name not in RENAMED or RENAMED[name] in requests}
    return kept | {
        RENAMED[name]: value for name, value in requests.items() if name in RENAMED and RENAMED[name] not in requests
    }


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=4).digest(), "little") >> 1


_encode = msgspec.json.Encoder(order="deterministic").encode
