"""The LimitRanger admission plugin: default requests and limits, and checks against LimitRanges.

Follows `plugin/pkg/admission/limitranger`; messages are upstream's to the letter.
"""

from collections.abc import Iterator
from typing import Any

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.defaults.qos import qos_class
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.quantities import canonical, milli
from seatrial.harness.apiserver.storage.store import CollectionKey, Object, Store

LIMIT_RANGES: CollectionKey = ("", "limitranges")
ANNOTATION = "kubernetes.io/limit-ranger"
_PODS, _CLAIMS = ("", "pods"), ("", "persistentvolumeclaims")
_Amounts = dict[str, Any]  # resource → quantity


class LimitRanger:
    """Admission hook for pods and persistent volume claims."""

    def __init__(self, store: Store) -> None:
        self._ranges = store.collection(LIMIT_RANGES)

    def __call__(self, resource: Resource, body: Object, old: Object | None, subresource: str) -> None:
        """Set defaults and check limits on `body`, which is modified in place.

        Raises:
            ApiStatusError: 403, a LimitRange is violated.
        """
        if old is not None or subresource or resource.key not in {_PODS, _CLAIMS} or not len(self._ranges):
            return
        ranges = list(self._ranges.items(body["metadata"]["namespace"]))
        if not ranges or not isinstance(body.get("spec"), dict):
            return
        for item in ranges:
            limits = list((item.obj.get("spec") or {}).get("limits") or ())
            if resource.key == _PODS:
                _complete(body, limits)
                problems = list(_pod_problems(body["spec"], limits))
            else:
                problems = list(_claim_problems(body["spec"], limits))
            problems = list(dict.fromkeys(problems))
            if problems:
                why = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
                raise errors.forbidden(resource.plural, resource.group, body["metadata"].get("name", ""), why)


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _complete(pod: Object, limits: list[Object]) -> None:
    """Set default requests and limits, and list them in the `kubernetes.io/limit-ranger` annotation."""
    requests: _Amounts = {}
    ceilings: _Amounts = {}
    for limit in limits:
        if limit.get("type") == "Container":
            requests.update(limit.get("defaultRequest") or {})
            ceilings.update(limit.get("default") or {})
    changes = []
    spec = pod["spec"]
    for where, kind in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(where) or ():
            by_part = container.setdefault("resources", {})
            for part, defaults, word in (("requests", requests, "request"), ("limits", ceilings, "limit")):
                missing = {name: value for name, value in defaults.items() if name not in (by_part.get(part) or {})}
                if missing:
                    by_part[part] = {**(by_part.get(part) or {}), **missing}
                    changes.append(f"{', '.join(sorted(missing))} {word} for {kind} {container.get('name', '')}")
    if changes:
        metadata = pod["metadata"]
        message = "LimitRanger plugin set: " + "; ".join(changes)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), ANNOTATION: message}
        pod["status"] = {**(pod.get("status") or {}), "qosClass": qos_class(spec)}


def _pod_problems(spec: Object, limits: list[Object]) -> Iterator[str]:
    for limit in limits:
        kind = limit.get("type", "")
        if kind == "Container":
            for container in _containers(spec):
                resources = container.get("resources") or {}
                yield from _problems(limit, kind, resources.get("requests") or {}, resources.get("limits") or {})
        elif kind == "Pod":
            yield from _problems(limit, kind, _sum(spec, "requests"), _sum(spec, "limits"))


def _claim_problems(spec: Object, limits: list[Object]) -> Iterator[str]:
    requests = (spec.get("resources") or {}).get("requests") or {}
    for limit in limits:
        if limit.get("type") != "PersistentVolumeClaim":
            continue
        for name, enforced in sorted((limit.get("min") or {}).items()):
            yield from _below(name, "PersistentVolumeClaim", enforced, requests, {})
        for name, enforced in sorted((limit.get("max") or {}).items()):
            head = f"maximum {name} usage per PersistentVolumeClaim is {canonical(enforced)}"
            if name not in requests:
                yield f"{head}.  No request is specified"
            elif milli(requests[name]) > milli(enforced):
                yield f"{head}, but request is {canonical(requests[name])}"


def _sum(spec: Object, part: str) -> _Amounts:
    """The pod's total of `part`: the sum over containers, or the largest init container if that is more."""
    total: dict[str, int] = {}
    shown: _Amounts = {}
    for container in spec.get("containers") or ():
        for name, value in ((container.get("resources") or {}).get(part) or {}).items():
            shown[name] = value if name not in total else None
            total[name] = total.get(name, 0) + milli(value)
    for container in spec.get("initContainers") or ():
        for name, value in ((container.get("resources") or {}).get(part) or {}).items():
            if milli(value) > total.get(name, 0):
                total[name], shown[name] = milli(value), value
    return {name: shown[name] if shown[name] is not None else _text(name, value) for name, value in total.items()}


def _text(name: str, thousandths: int) -> str:
    """An amount in thousandths as the quantity format usual for the resource."""
    binary = name in {"memory", "ephemeral-storage"} and thousandths % (1000 << 10) == 0
    return canonical(f"{thousandths // (1000 << 10)}Ki" if binary else f"{thousandths}m")


def _problems(limit_range: Object, kind: str, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    for name, enforced in sorted((limit_range.get("min") or {}).items()):
        yield from _below(name, kind, enforced, requests, limits)
    for name, enforced in sorted((limit_range.get("max") or {}).items()):
        yield from _above(name, kind, enforced, requests, limits)
    for name, ratio in sorted((limit_range.get("maxLimitRequestRatio") or {}).items()):
        yield from _uneven(name, kind, ratio, requests, limits)


def _below(name: str, kind: str, enforced: Any, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    head = f"minimum {name} usage per {kind} is {canonical(enforced)}"
    if name not in requests:
        yield f"{head}.  No request is specified"
    elif milli(requests[name]) < milli(enforced):
        yield f"{head}, but request is {canonical(requests[name])}"
    elif name in limits and milli(limits[name]) < milli(enforced):
        yield f"{head}, but limit is {canonical(limits[name])}"


def _above(name: str, kind: str, enforced: Any, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    head = f"maximum {name} usage per {kind} is {canonical(enforced)}"
    if name not in limits:
        yield f"{head}.  No limit is specified"
    elif milli(limits[name]) > milli(enforced):
        yield f"{head}, but limit is {canonical(limits[name])}"
    elif name in requests and milli(requests[name]) > milli(enforced):
        yield f"{head}, but request is {canonical(requests[name])}"


def _uneven(name: str, kind: str, ratio: Any, requests: _Amounts, limits: _Amounts) -> Iterator[str]:
    head = f"{name} max limit to request ratio per {kind} is {canonical(ratio)}"
    request, limit = milli(requests.get(name, 0)), milli(limits.get(name, 0))
    if not request:
        yield f"{head}, but no request is specified or request is 0"
    elif not limit:
        yield f"{head}, but no limit is specified or limit is 0"
    elif limit * 1000 > milli(ratio) * request:
        yield f"{head}, but provided ratio is {limit / request:f}"
