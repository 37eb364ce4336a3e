"""Arguments of NodeNUMAResource in a configuration file."""

from msgspec import field

from seatrial.scheduler.api.numa import FULL_PCPUS, SPREAD_BY_PCPUS
from seatrial.scheduler.api.wire import Wire
from seatrial.scheduler.framework.extension_points import Args
from seatrial.scheduler.plugins.nodenuma.scoring import Scorer

STRATEGIES = frozenset({"LeastAllocated", "MostAllocated"})


class ResourceWeight(Wire, frozen=True, forbid_unknown_fields=True):
    """A resource and its weight in scores."""

    name: str
    weight: int = 1


class ScoringStrategy(Wire, frozen=True, forbid_unknown_fields=True):
    """The direction of scores, and the resources that count."""

    type: str = "LeastAllocated"
    resources: tuple[ResourceWeight, ...] = (ResourceWeight("cpu"), ResourceWeight("memory"))

    def scorer(self) -> Scorer:
        return Scorer(self.type, {resource.name: resource.weight or 1 for resource in self.resources})


class NodeNUMAResourceArgs(Args, frozen=True):
    """Upstream's arguments, followed by ours."""

    # "": pods without a policy get none
    default_cpu_bind_policy: str = field(default=FULL_PCPUS, name="defaultCPUBindPolicy")
    scoring_strategy: ScoringStrategy | None = ScoringStrategy()
    numa_scoring_strategy: ScoringStrategy | None = ScoringStrategy()
    node_label_first: bool = False  # Koordinator's order: the label overrides the kubelet's policy

    def check(self) -> None:
        if self.default_cpu_bind_policy not in {"", FULL_PCPUS, SPREAD_BY_PCPUS}:
            raise ValueError("must specified CPU bind policy FullPCPUs or SpreadByPCPUs")
        if self.scoring_strategy is None:
            raise ValueError("scoring strategy must be specified")
        if self.scoring_strategy.type not in STRATEGIES:
            raise ValueError(f"scoring strategy {self.scoring_strategy.type} is not supported")
        if self.numa_scoring_strategy is None:
            raise ValueError("NUMA scoring strategy must be specified")
        if self.numa_scoring_strategy.type not in STRATEGIES:
            raise ValueError(f"numa scoring strategy {self.numa_scoring_strategy.type} is not supported")
