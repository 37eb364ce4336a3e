"""Warnings for clients: deprecated APIs and fields that probably do not do what they should.

Follows `pkg/api/pod/warnings.go` and the strategies of the kinds.
"""

from collections.abc import Iterator
from typing import Any, Final

from seatrial.harness.apiserver.validation.resources import milli

DEPRECATED: Final = {  # collections whose use is answered with a warning
    ("", "endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
}
_OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_WHOLE = ("memory", "ephemeral-storage")
Object = dict[str, Any]


def pod_warnings(spec: Object) -> list[str]:
    """The warnings for the spec of a pod."""
    return list(_pod_warnings(spec))


def _pod_warnings(spec: Object) -> Iterator[str]:
    for label in spec.get("nodeSelector") or ():
        if label in _OLD_LABELS:
            yield f"spec.nodeSelector[{label}]: {_OLD_LABELS[label]}"
    names: set[str] = set()
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        if alias.get("ip") in names:
            yield f"spec.hostAliases[{index}].ip: duplicate ip {alias['ip']!r}"
        names.add(alias.get("ip"))
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            if isinstance(container, dict):
                yield from _container_warnings(container, f"spec.{field}[{index}]")


def _container_warnings(container: Object, path: str) -> Iterator[str]:
    seen: set[Any] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name = variable.get("name")
        if name in seen:
            yield f'{path}.env[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)
    ports: dict[Any, int] = {}
    for index, port in enumerate(container.get("ports") or ()):
        mark = (port.get("containerPort"), port.get("protocol", "TCP"), port.get("hostIP"), port.get("hostPort"))
        if mark in ports:
            yield f"{path}.ports[{index}]: duplicate port definition with {path}.ports[{ports[mark]}]"
        ports.setdefault(mark, index)
    resources = container.get("resources") or {}
    for field in ("limits", "requests"):
        for name, value in (resources.get(field) or {}).items():
            if name in _WHOLE and (milli(value) or 0) % 1000:
                place = f"{path}.resources.{field}[{name}]"
                yield f'{place}: fractional byte value "{value}" is invalid, must be an integer'
