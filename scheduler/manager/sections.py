"""Settings of the cluster and of nodes with certain labels: one key of the ConfigMap (C-2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.pods.selectors import selector_matches

Settings = dict[str, Any]


class SettingsError(ValueError):
    """A setting is not usable; the text names it, and what was expected and found."""


@dataclass(frozen=True, slots=True)
class Section:
    """One key of the ConfigMap: settings of the cluster, and of nodes with certain labels."""

    cluster: Settings = field(default_factory=dict)
    overrides: Sequence[tuple[LabelSelector, Settings]] = ()

    def on(self, labels: Mapping[str, str]) -> Settings:
        """The settings for a node: those of the first override whose selector matches go before the cluster's."""
        return overlaid(self.cluster, self.own(labels))

    def own(self, labels: Mapping[str, str]) -> Settings:
        """The settings of the first override whose selector matches a node; empty if there is none."""
        return next((own for selector, own in self.overrides if selector_matches(selector, dict(labels))), {})


def overlaid(lower: Settings, upper: Settings) -> Settings:
    """A JSON overlay: absent fields keep the lower value, maps merge by key, lists are replaced."""
    settings = dict(lower)
    for name, value in upper.items():
        below = settings.get(name)
        settings[name] = overlaid(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return settings
