"""A pod's request for CPUs and NUMA nodes, independent of any node (NUMA-R1 to NUMA-R5, NUMA-R15)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.numa import (
    DEFAULT,
    FULL_PCPUS,
    NUMA_POLICIES,
    NUMA_TOPOLOGY_SPEC,
    PREFERRED,
    REQUIRED,
    RESOURCE_SPEC,
    SPREAD_BY_PCPUS,
    NumaTopologySpec,
    ResourceSpec,
)
from seatrial.scheduler.api.quantity import CPU, Amounts
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.nodenuma.accumulator import CpuPreference
from seatrial.scheduler.plugins.nodenuma.allocation import WHOLE, Need
from seatrial.scheduler.plugins.nodenuma.options import Options
from seatrial.scheduler.pods.cpu_binding import may_bind

BIND_POLICIES = frozenset({FULL_PCPUS, SPREAD_BY_PCPUS})
NOT_WHOLE = Status.unresolvable("the requested CPUs must be integer")
NO_TOPOLOGY = Status.unresolvable("node(s) invalid CPU Topology")
CONFLICT = Status.unresolvable("node(s) cpu bind policy conflicts with pod's required cpu bind policy")
NOT_CORES = Status.unresolvable("node(s) requested cpus not multiple cpus per core")
OTHER_POLICY = Status.unresolvable("node(s) NUMA Topology policy not match")
NO_SPEC = ResourceSpec()

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Demand:
    """The request of a pod; `bind`: whether it requests bound CPUs."""

    requests: tuple[tuple[str, int], ...]
    bind: bool = False
    required: str = ""
    preferred: str = ""
    exclusive: str = ""
    numa_policy: str = ""
    numa_exclusive: str = ""
    spec: ResourceSpec = NO_SPEC  # the annotation as given, the base of what is written back

    @property
    def plain(self) -> bool:
        """Whether only the node's policies can affect the pod."""
        return not self.bind and not self.numa_policy

    @property
    def cpu(self) -> int:
        return next((value for name, value in self.requests if name == CPU), 0)

    def excludes(self, policy: str) -> bool:
        """Whether the pod requires exclusive NUMA nodes under the node's policy (NUMA-R15, NUMA-R46)."""
        if not policy:
            return False
        return self.numa_exclusive == REQUIRED or (not self.numa_exclusive and bool(self.numa_policy))

    def policy_on(self, policy: str) -> str | Status:
        """The effective NUMA policy on a node with this policy (NUMA-R7)."""
        if self.numa_policy and policy and self.numa_policy != policy:
            return OTHER_POLICY
        return self.numa_policy or policy

    def need_on(self, options: Options, per_core: int, *, most: bool) -> Need | Status:
        """The request on a node with these options, or why the node fails (NUMA-R9, NUMA-R10)."""
        policy = options.bind_policy
        if not self.bind and not (policy and self.cpu):
            return Need(self.requests, None)
        if self.cpu % WHOLE:
            return NOT_WHOLE
        if not per_core:
            return NO_TOPOLOGY
        if policy and self.required and self.required != policy:
            return CONFLICT
        required = policy or self.required
        if required == FULL_PCPUS and self.cpu // WHOLE % per_core:
            return NOT_CORES
        return Need(self.requests, CpuPreference(required or self.preferred, self.exclusive, bool(required), most))


def demand_of(pod: Pod, requests: Amounts, default_policy: str) -> Demand | Status | None:
    """The request of a pod; None if it requests nothing, a status if it is invalid."""
    if not requests:
        return None
    annotations = pod.metadata.annotations
    try:
        spec = _read(annotations, RESOURCE_SPEC, ResourceSpec)
        numa = _read(annotations, NUMA_TOPOLOGY_SPEC, NumaTopologySpec)
    except msgspec.DecodeError as error:
        return Status.unresolvable(str(error))
    for result, expected, key in (
        (numa.policy, NUMA_POLICIES, "numaTopologyPolicy"),
        (numa.exclusive, {PREFERRED, REQUIRED}, "singleNUMANodeExclusive"),
    ):
        if result and result not in expected:
            return Status.unresolvable(
                f"{NUMA_TOPOLOGY_SPEC}: {key}: expected one of {', '.join(sorted(expected))}, found {result!r}"
            )
    amounts = tuple(sorted(requests.items()))
    bind, required, preferred, exclusive = False, "", "", ""
    if may_bind(pod.metadata.labels, pod.spec):
        required = spec.required_cpu_bind_policy
        required = default_policy if required == DEFAULT else required
        preferred = required or spec.preferred_cpu_bind_policy
        preferred = default_policy if preferred in {"", DEFAULT} else preferred
        bind = preferred in BIND_POLICIES and requests.get(CPU, 0) > 0
        if bind and requests[CPU] % WHOLE:
            return NOT_WHOLE
        exclusive = spec.preferred_cpu_exclusive_policy if bind else ""
    if not bind:
        required = preferred = ""
    return Demand(amounts, bind, required, preferred, exclusive, numa.policy, numa.exclusive, spec)


def written_back(demand: Demand, preference: CpuPreference) -> str | None:
    """The resource-spec with the effective policy (NUMA-R61); None if the annotation has it already."""
    spec = demand.spec
    required, preferred = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
    if preference.required and required in {"", DEFAULT}:
        required = preference.policy
    if preferred == DEFAULT or (not required and not preferred):
        preferred = preference.policy
    if (required, preferred) == (spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy):
        return None
    resource_spec = ResourceSpec(required, preferred, spec.preferred_cpu_exclusive_policy)
    return msgspec.json.encode(resource_spec).decode()


def _read(annotations: Mapping[str, str], key: str, kind: type[T]) -> T:
    text = annotations.get(key)
    if not text:
        return kind()
    try:
        return decode_as(text, kind)
    except msgspec.DecodeError as error:
        raise msgspec.DecodeError(f"{key}: {error}") from error
