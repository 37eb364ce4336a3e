"""Labels that pods must have: Koordinator's enhanced pod validator (V-7), configured by a ConfigMap."""

import logging
from collections.abc import Mapping

import msgspec

from seatrial.scheduler.api.core import ConfigMap
from seatrial.scheduler.api.wire import Wire, decode_as

NAMESPACE, NAME = "koordinator-system", "pod-enhanced-validator-config"
SKIP_LABEL = "pod.koordinator.sh/skip-enhanced-validation"

log = logging.getLogger(__name__)


class LabelRule(Wire, frozen=True):
    """Labels that pods must have outside of the namespaces of the list."""

    name: str = ""
    required_labels: tuple[str, ...] = ()
    namespace_whitelist: tuple[str, ...] = ()


class LabelRules:
    """The rules of the ConfigMap; none without it, or if it does not enable them."""

    def __init__(self) -> None:
        self._rules: tuple[LabelRule, ...] = ()

    def set_config(self, config_map: ConfigMap) -> None:
        """Take in the ConfigMap; one that cannot be read keeps the last rules."""
        try:
            rules = decode_as(config_map.data.get("rules") or "[]", tuple[LabelRule, ...])
        except msgspec.MsgspecError as error:
            log.warning("ConfigMap %s/%s: rules: %s; the last ones stay", NAMESPACE, NAME, error)
            return
        self._rules = rules if config_map.data.get("enable") == "true" else ()

    def remove_config(self, _: ConfigMap) -> None:
        self._rules = ()

    def problems(self, labels: Mapping[str, str], namespace: str) -> list[str]:
        """Why a pod with these labels is refused; all rules must hold."""
        if labels.get(SKIP_LABEL) == "true":
            return []
        messages = []
        for rule in self._rules:
            missing = [name for name in rule.required_labels if name not in labels]
            if missing and namespace not in rule.namespace_whitelist:
                what = (
                    f"required label '{missing[0]}' is missing"
                    if len(missing) == 1
                    else f"required labels are missing: [{' '.join(missing)}]"
                )
                messages.append(f"validation rule '{rule.name}' failed: {what}")
        return messages
