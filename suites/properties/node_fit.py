"""Whether a pod may run on a node: cordons, taints, selectors, affinity, room and host ports.

From kubernetes-api and upstream's documentation of these fields; slow and plain on purpose.
"""

from collections.abc import Iterator

from seatrial.harness.apiserver.quantities import Amounts
from seatrial.suites.properties.state import Json, State, allocatable, labels, name_of, requests, total

CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def matches(expression: Json, values: dict[str, str]) -> bool:
    """One expression of a node selector against labels."""
    key, entry = expression["key"], expression.get("values") or []
    value = values.get(key)
    match expression["operator"]:
        case "In":
            return value in entry
        case "NotIn":
            return value not in entry
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.lstrip("-").isdecimal() and int(value) > int(entry[0])
        case "Lt":
            return value is not None and value.lstrip("-").isdecimal() and int(value) < int(entry[0])
    raise AssertionError(f"no operator of a node selector: {expression}")


def selects(selector: Json, one: Json) -> bool:
    """A node selector: one of its terms holds, and all expressions of that; a term without any holds never."""
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(matches(each, labels(one)) for each in term.get("matchExpressions") or ())
        and all(matches(each, {"metadata.name": name_of(one)}) for each in term.get("matchFields") or ())
        for term in selector["nodeSelectorTerms"]
    )


def tolerates(tolerations: list[Json], taint: Json) -> bool:
    return any(
        each.get("effect", "") in {"", taint["effect"]}
        and (not each.get("key") or each["key"] == taint["key"])
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""))
        for each in tolerations
    )


def _ports(pod: Json) -> set[tuple[int, str]]:
    return {
        (port["hostPort"], port.get("protocol", "TCP"))
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }


def constraints(pod: Json, node: Json) -> Iterator[str]:
    """What the pod or the node says against it, apart from room."""
    spec, taints = pod["spec"], list(node["spec"].get("taints") or ())
    if node["spec"].get("unschedulable"):
        taints.append(CORDON)
    for taint in taints:
        if taint["effect"] != "PreferNoSchedule" and not tolerates(spec.get("tolerations") or [], taint):
            yield f"taint {taint['key']}"
    node_selector = spec.get("nodeSelector") or {}
    if any(labels(node).get(key) != value for key, value in node_selector.items()):
        yield f"nodeSelector {node_selector}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is not None and not selects(required, node):
        yield f"node affinity {required}"


def free(state: State, node: Json, pod: Json) -> Amounts:
    """What the other pods leave of the node."""
    others = [other for other in state.on(name_of(node)) if name_of(other) != name_of(pod)]
    used = total(others)
    room = {key: value - used.get(key, 0) for key, value in allocatable(node).items()}
    return room | {"pods": allocatable(node).get("pods", 0) - len(others)}


def lacking(amounts: Amounts, room: Amounts) -> Iterator[str]:
    """The resources of which there is not enough; what is not asked for does not matter."""
    for key, value in amounts.items():
        if value > room.get(key, 0):
            yield f"{key}: {value} asked for, {room.get(key, 0)} free"


def objections(state: State, pod: Json, node: Json) -> Iterator[str]:
    """All that is against the pod on this node; nothing if it may run there."""
    yield from constraints(pod, node)
    yield from lacking(requests(pod) | {"pods": 1}, free(state, node, pod))
    taken = {port for other in state.on(name_of(node)) if name_of(other) != name_of(pod) for port in _ports(other)}
    for port, protocol in _ports(pod) & taken:
        yield f"host port {port}/{protocol} is taken"
