"""`matchLabelKeys` and `mismatchLabelKeys` of a new pod (`pkg/registry/core/pod/strategy.go`).

kube-apiserver merges them into the selectors, as no scheduler since 1.33 does.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from seatrial.harness.apiserver.names import Object

_OPERATORS: Final = {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}
_AFFINITIES: Final = ("podAffinity", "podAntiAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def merge_label_keys(spec: dict[str, Any], labels: Mapping[str, str]) -> None:
    """Add requirements for the pod's own values of the keys to the selectors, in place; other parts may be shared."""
    if not any(keys in term for term in _terms(spec) for keys in _OPERATORS):
        return
    for part in ("affinity", "topologySpreadConstraints"):
        if spec.get(part):
            spec[part] = copy.deepcopy(spec[part])
    for term in _terms(spec):
        selector = term.get("labelSelector")
        more = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for keys, operator in _OPERATORS.items()
            for key in term.get(keys) or ()
            if key in labels
        ]
        if more and selector is not None:
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *more]


def _terms(spec: dict[str, Any]) -> Iterator[Object]:
    yield from spec.get("topologySpreadConstraints") or ()
    for kind in _AFFINITIES:
        rules = (spec.get("affinity") or {}).get(kind) or {}
        yield from rules.get(_REQUIRED) or ()
        for preferred in rules.get(_PREFERRED) or ():
            yield preferred.get("podAffinityTerm") or {}
