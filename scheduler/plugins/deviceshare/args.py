"""`DeviceShareArgs`: the plugin's arguments in a configuration file."""

from msgspec import field

from seatrial.scheduler.api.device import NPU_CORE
from seatrial.scheduler.api.wire import Wire
from seatrial.scheduler.framework.extension_points import Args
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.scoring import DEFAULT_WEIGHTS, Scorer, StrategyType
from seatrial.scheduler.plugins.noderesources.fit import WeightedResource


class ScoringStrategy(Wire, frozen=True, forbid_unknown_fields=True):
    """Weights of resources and the direction of the score."""

    type: str = "LeastAllocated"
    resources: tuple[WeightedResource, ...] = tuple(WeightedResource(*item) for item in DEFAULT_WEIGHTS.items())


class TemplatesConfig(Wire, frozen=True, forbid_unknown_fields=True):
    """The ConfigMap that lists slice sizes, and the resources whose requests must have one of these sizes."""

    config_map_namespace: str = "koordinator-system"
    config_map_name: str = "gpu-shared-resource-templates"
    matched_resources: tuple[str, ...] = (NPU_CORE,)


class Model(Wire, frozen=True, forbid_unknown_fields=True):
    """A GPU vendor and model."""

    vendor: str = ""
    model: str = ""


class DeviceShareArgs(Args, frozen=True):
    """Upstream's arguments, followed by ours."""

    scoring_strategy: ScoringStrategy | None = ScoringStrategy()
    disable_numa_alignment: bool = field(default=False, name="disableDeviceNUMATopologyAlignment")
    gpu_shared_resource_templates_config: TemplatesConfig = TemplatesConfig()
    gpu_share_unsupported_models: tuple[Model, ...] = ()
    allocator: str = ""  # accepted without effect, as upstream
    lowest_partition_score_first: bool = False  # Koordinator's code; its documentation states the opposite order
    device_plugin_adaption: bool = False  # upstream's feature gate of that name
    resize_pod: bool = False  # upstream's feature gate ResizePod: a reservation gets the size of its devices

    def check(self) -> None:
        if self.scoring_strategy is None:
            raise ValueError("scoring strategy not specified")
        if self.scoring_strategy.type not in {"LeastAllocated", "MostAllocated"}:
            raise ValueError(f"scoring strategy {self.scoring_strategy.type} is not supported")

    def policy(self) -> Policy:
        strategy = self.scoring_strategy or ScoringStrategy()
        kind: StrategyType = "MostAllocated" if strategy.type == "MostAllocated" else "LeastAllocated"
        scorer = Scorer(kind, tuple((resource.name, resource.weight or 1) for resource in strategy.resources))
        return Policy(scorer, self.lowest_partition_score_first)
