"""Arguments of the plugin, as `DeviceShareArgs` in a configuration file spells them."""

from msgspec import field

from scheduler.api.device import NPU_CORE
from scheduler.api.wire import Wire
from scheduler.framework.extension_points import Args
from scheduler.plugins.deviceshare.gpus import Policy
from scheduler.plugins.deviceshare.scoring import DEFAULT_WEIGHTS, Scorer, StrategyType
from scheduler.plugins.noderesources.fit import WeightedResource


class ScoringStrategy(Wire, frozen=True, forbid_unknown_fields=True):
    type: str = "LeastAllocated"
    resources: tuple[WeightedResource, ...] = tuple(WeightedResource(*item) for item in DEFAULT_WEIGHTS.items())


class TemplatesConfig(Wire, frozen=True, forbid_unknown_fields=True):
    """Where the sizes of slices are found, and for requests of which resources they are binding."""

    config_map_namespace: str = "koordinator-system"
    config_map_name: str = "gpu-shared-resource-templates"
    matched_resources: tuple[str, ...] = (NPU_CORE,)


class Model(Wire, frozen=True, forbid_unknown_fields=True):
    vendor: str = ""
    model: str = ""


class DeviceShareArgs(Args, frozen=True):
    """Upstream's arguments, and below them ours."""

    scoring_strategy: ScoringStrategy | None = ScoringStrategy()
    disable_numa_alignment: bool = field(default=False, name="disableDeviceNUMATopologyAlignment")
    gpu_shared_resource_templates_config: TemplatesConfig = TemplatesConfig()
    gpu_share_unsupported_models: tuple[Model, ...] = ()
    allocator: str = ""  # accepted, unused, as upstream
    lowest_partition_score_first: bool = False  # Koordinator's order, which its documentation has the other way round
    device_plugin_adaption: bool = False  # upstream's feature gate of that name
    resize_pod: bool = False  # likewise: a reservation is as large as the devices that it got

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
