"""Slice templates: the sizes into which vendors split cards, read from a ConfigMap (DEV-R12, DEV-R45).

`data.yaml` maps `vendor-model` to names to amounts. A new version replaces the old one; an invalid version changes
nothing.
"""

from collections.abc import Mapping

import msgspec
import yaml

from seatrial.scheduler.api.core import ConfigMap
from seatrial.scheduler.api.quantity import Amounts, QuantityError, amounts
from seatrial.scheduler.api.wire import ResourceList
from seatrial.scheduler.api.yaml_files import load_yaml
from seatrial.scheduler.cache.classes import renamed
from seatrial.scheduler.framework.status import Status

NOT_A_SIZE = Status.unresolvable("no matched GPU shared resource template")
_KEY = "data.yaml"

Sizes = Mapping[str, Mapping[str, Amounts]]  # by vendor-model and name


class SliceRegistry:
    """The templates of the ConfigMaps that profiles name, by namespace/name."""

    def __init__(self) -> None:
        self._sizes: dict[str, Sizes] = {}
        self.read: set[str] = set()  # ConfigMaps that some profile names

    def sizes(self, source: str) -> Sizes:
        return self._sizes.get(source, {})

    def replace(self, source: str, config_map: ConfigMap | None) -> tuple[bool, list[str]]:
        """Take in a ConfigMap (None: deleted). Returns whether a size changed, and what is invalid."""
        before = self.sizes(source)
        try:
            sizes = _parse(config_map.data.get(_KEY, "")) if config_map is not None else {}
        except (msgspec.ValidationError, QuantityError, yaml.YAMLError) as error:
            return False, [f"ConfigMap {source}: {_KEY}: {error}"]
        self._sizes[source] = sizes
        return sizes != before, []

    def named(self, source: str, targets: Amounts) -> tuple[tuple[str, str], ...]:
        """Vendor-model and name of every template with exactly the amounts `targets`."""
        return tuple(
            (model, name)
            for model, sizes in self.sizes(source).items()
            for name, size in sizes.items()
            if size == targets
        )


def _parse(text: str) -> Sizes:
    document = msgspec.convert(load_yaml(text.encode()) or {}, dict[str, dict[str, ResourceList]])
    return {model: {name: renamed(amounts(size)) for name, size in sizes.items()} for model, sizes in document.items()}
