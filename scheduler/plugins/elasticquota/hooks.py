"""Hook plugins of ElasticQuota: rules of other packages about quotas and their pods (QUOTA-R82, QUOTA-R83).

A package declares a factory in its metadata. The argument `hookPlugins` names it in `factoryKey`:

    [project.entry-points."seatrial.scheduler.quota_hooks"]
    teamRules = "rules.quota:TeamRules"

A factory is called with `key` and `factoryArgs` and returns a `QuotaHook`. `PodCount` is built in.
Follows Koordinator `pkg/scheduler/plugins/elasticquota/core/hook_plugin.go`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

import msgspec

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.quota.tree import QuotaSpec

GROUP = "seatrial.scheduler.quota_hooks"
MAX_PODS, PODS = "seatrial.dev/max-pods", "seatrial.dev/pods"


class HookPlugin(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One entry of the argument `hookPlugins`."""

    key: str = ""
    factory_key: str = ""
    factory_args: Any = None  # upstream's are a string; an object is accepted too


class QuotaHook:
    """What ElasticQuota calls. All methods are called in the scheduler's thread and must be fast."""

    def __init__(self, key: str) -> None:
        self.key = key

    def is_quota_updated(self, old: QuotaSpec, new: QuotaSpec, quota: ElasticQuota) -> bool:
        """Whether a change matters to the hook although the specs are equal, as that of an annotation."""
        return False

    def pre_quota_update(
        self, old: QuotaSpec | None, new: QuotaSpec | None, quota: ElasticQuota, state: dict[str, Any]
    ) -> None:
        """A quota will be added (`old` None), changed or removed (`new` None). `state` is shared with the next one."""

    def post_quota_update(
        self, old: QuotaSpec | None, new: QuotaSpec | None, quota: ElasticQuota, state: dict[str, Any]
    ) -> None:
        """A quota was added, changed or removed."""

    def on_pod_updated(self, quota: str, old: Pod | None, new: Pod | None) -> None:
        """A pod on a node, or assumed to be there, joined a quota (`old` None), changed, or left it (`new` None)."""

    def update_quota_status(self, quota: ElasticQuota) -> Mapping[str, str]:
        """Annotations to write with the status of a quota."""
        return {}

    def check_pod(self, quota: str, pod: Pod) -> str:
        """Why a pod may not use its quota now; "" if it may. Called after the checks of the quota itself."""
        return ""


Factory = Callable[[str, Any], QuotaHook]


class PodCount(QuotaHook):
    """Bounds the number of pods of a quota: annotation `seatrial.dev/max-pods`, or `maxPods` of the arguments.

    The number of pods on nodes is written to the annotation `seatrial.dev/pods`.
    """

    def __init__(self, key: str, args: Any) -> None:
        super().__init__(key)
        if isinstance(args, str):
            args = msgspec.json.decode(args) if args else {}
        entry = (args or {}).get("maxPods") if isinstance(args, dict | None) else args
        if entry is not None and (not isinstance(entry, int) or entry < 0):
            raise ValueError(f"maxPods: expected a number, found {entry!r}")
        self._default: int | None = entry
        self._limits: dict[str, int] = {}
        self._pods: Counter[str] = Counter()

    def is_quota_updated(self, old: QuotaSpec, new: QuotaSpec, quota: ElasticQuota) -> bool:
        return self._limits.get(quota.name) != _limit(quota)

    def post_quota_update(
        self, old: QuotaSpec | None, new: QuotaSpec | None, quota: ElasticQuota, state: dict[str, Any]
    ) -> None:
        limit = _limit(quota) if new is not None else None
        if limit is None:
            self._limits.pop(quota.name, None)
        else:
            self._limits[quota.name] = limit

    def on_pod_updated(self, quota: str, old: Pod | None, new: Pod | None) -> None:
        self._pods[quota] += (new is not None) - (old is not None)

    def update_quota_status(self, quota: ElasticQuota) -> Mapping[str, str]:
        return {PODS: str(self._pods[quota.name])} if quota.name in self._limits or self._default is not None else {}

    def check_pod(self, quota: str, pod: Pod) -> str:
        limit = self._limits.get(quota, self._default)
        if limit is None or self._pods[quota] < limit:
            return ""
        return f"quota {quota} has {self._pods[quota]} pods on nodes, expected less than {limit}"


def _limit(quota: ElasticQuota) -> int | None:
    return integer(quota.metadata.annotations.get(MAX_PODS, ""), 0)


BUILT_IN: Mapping[str, Factory] = {"podCount": PodCount}


def build_hooks(plugins: Iterable[HookPlugin]) -> list[QuotaHook]:
    """The hooks in the order of the configuration.

    Raises:
        ValueError: entries cannot be used. The message has the reason of each, in upstream's words.
    """
    quota_hooks: list[QuotaHook] = []
    problems: list[str] = []
    for index, plugin in enumerate(plugins):
        key, name = plugin.key, plugin.factory_key
        if not key:
            problems.append(f"failed to initialize index-{index} hook plugin: key is empty")
        elif not name:
            problems.append(f"failed to initialize hook plugin {key}: factory key is empty")
        elif (factory := _factory(name)) is None:
            problems.append(f"failed to initialize hook plugin {key}: factory {name} not found")
        else:
            try:
                quota_hooks.append(factory(key, plugin.factory_args))
            except Exception as error:  # noqa: BLE001 a factory of another package
                problems.append(f"failed to initialize hook-plugin {key} by factory {name}, err={error}")
    if problems:
        raise ValueError("; ".join(problems))
    return quota_hooks


def _factory(name: str) -> Factory | None:
    if name in BUILT_IN:
        return BUILT_IN[name]
    points = [point for point in entry_points(group=GROUP) if point.name == name]
    if not points:
        return None

    def make(key: str, args: Any) -> QuotaHook:
        quota_hook: QuotaHook = points[0].load()(key, args)  # an import that fails is reported as the factory's failure
        return quota_hook

    return make
