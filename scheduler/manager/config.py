"""The ConfigMap `slo-controller-config`: what each key sets, for the cluster and for nodes by label (C-1 to C-4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from seatrial.scheduler.api import slo
from seatrial.scheduler.api.core import ConfigMap
from seatrial.scheduler.api.wire import LabelSelector, decode_as
from seatrial.scheduler.manager.sections import Section, SettingsError
from seatrial.scheduler.manager.strategy import checked

NAMESPACE, NAME, COLOCATION = slo.CONFIG_NAMESPACE, slo.CONFIG_NAME, slo.CONFIG_COLOCATION
NORMALIZATION, AMPLIFICATION, APPLICATIONS = (
    "cpu-normalization-config",
    "resource-amplification-config",
    "host-application-config",
)
THRESHOLD, QOS, BURST, SYSTEM = STRATEGIES = slo.CONFIG_STRATEGIES
KEYS = (COLOCATION, NORMALIZATION, AMPLIFICATION, APPLICATIONS, *STRATEGIES)


@dataclass(frozen=True, slots=True)
class SloConfig:
    """All keys. A key in `broken` could not be parsed and was never good."""

    sections: Mapping[str, Section] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()

    def section(self, key: str) -> Section:
        return self.sections.get(key, Section())


def read_config(config_map: ConfigMap, before: SloConfig) -> tuple[SloConfig, dict[str, str]]:
    """The settings, and what is wrong with them by key. A key that cannot be parsed keeps its settings of `before`."""
    sections: dict[str, Section] = {}
    wrong: dict[str, str] = {}
    broken: set[str] = set()
    for key in KEYS:
        text = config_map.data.get(key, "")
        try:
            sections[key] = _section(key, text) if text.strip() else Section()
        except (msgspec.DecodeError, SettingsError) as error:
            wrong[key] = f"ConfigMap {NAMESPACE}/{NAME}: {key}: {error}"
            broken.add(key)
            if key in before.sections:
                sections[key] = before.sections[key]
    return SloConfig(sections, frozenset(broken)), wrong


def _section(key: str, text: str) -> Section:
    """One key.

    Raises:
        msgspec.DecodeError: it is no JSON object.
        SettingsError: an override has no selector, or the strategy of the cluster is not valid.
    """
    document = decode_as(text, dict[str, Any])
    nested = key in STRATEGIES
    name = "nodeStrategies" if nested else "nodeConfigs"
    overrides = []
    for number, entry in enumerate(document.pop(name, None) or ()):
        if not isinstance(entry, dict) or not isinstance(entry.get("nodeSelector"), dict):
            raise SettingsError(f"{name}[{number}].nodeSelector: expected a label selector, found {entry!r:.60}")
        settings = {name: value for name, value in entry.items() if name not in {"name", "nodeSelector"}}
        overrides.append((msgspec.convert(entry["nodeSelector"], LabelSelector), settings))
    cluster = document.get("clusterStrategy") or {} if nested else document
    if not isinstance(cluster, dict):
        raise SettingsError(f"clusterStrategy: expected an object, found {cluster!r:.60}")
    if key == COLOCATION:
        checked(cluster)
    return Section(cluster, tuple(overrides))
