"""The oracle of volumes: on which nodes the claims of a pod are, or can be, bound to a volume that suits them.

From kubernetes' documentation of PersistentVolumes and the comments of its plugin VolumeBinding: of the volumes that
suit, the smallest; small claims choose before large ones.
"""

from collections.abc import Iterator

from seatrial.harness.apiserver.quantities import units
from seatrial.suites.properties.node_fit import matches, objections, selects
from seatrial.suites.properties.state import Change, Json, State, labels, name_of, node_of

_ONE_POD = "ReadWriteOncePod"


def _claims(pod: Json) -> list[str]:
    volumes = pod["spec"].get("volumes") or ()
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]


def _is_bound(claim: Json) -> bool:
    return claim.get("status", {}).get("phase") == "Bound"


def _size(one: Json) -> int:
    """Bytes that a claim asks for, or that a volume has."""
    spec = one["spec"]
    return units((spec.get("capacity") or spec["resources"]["requests"])["storage"])


def _is_near(volume: Json, node: Json) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or selects(required, node)


def mismatches(volume: Json, claim: Json) -> Iterator[str]:
    """What of the volume does not suit the claim."""
    spec, offered = claim["spec"], volume["spec"]
    if spec["storageClassName"] != offered.get("storageClassName"):
        yield "another class"
    if _size(volume) < _size(claim):
        yield "too small"
    if not set(spec["accessModes"]) <= set(offered["accessModes"]):
        yield f"access modes {offered['accessModes']}"
    selector, values = spec.get("selector") or {}, labels(volume)
    if any(values.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()) or any(
        not matches(each, values) for each in selector.get("matchExpressions") or ()
    ):
        yield "not selected"


def _is_free(volume: Json, claim: Json) -> bool:
    """For this claim: nobody has it, or it was made for the claim."""
    reference = volume["spec"].get("claimRef")
    if reference is not None:
        return bool(reference["name"] == name_of(claim) and reference.get("uid", "") in {"", claim["metadata"]["uid"]})
    return volume["status"].get("phase") == "Available" and "deletionTimestamp" not in volume["metadata"]


def _suiting(state: State, claim: Json, node: Json) -> list[Json]:
    """The volumes that the claim may get on this node, the best first."""
    volumes = [
        volume
        for volume in state.volumes.values()
        if _is_free(volume, claim) and _is_near(volume, node) and not list(mismatches(volume, claim))
    ]
    return sorted(volumes, key=lambda volume: ("claimRef" not in volume["spec"], _size(volume)))


def _obstacles(state: State, pod: Json, node: Json) -> Iterator[str]:
    """What is against the pod's claims on this node."""
    open_ = []
    for name in _claims(pod):
        claim = state.claims.get(name)
        if claim is None or "deletionTimestamp" in claim["metadata"]:
            yield f"no claim {name}"
            continue
        users = [other for other in state.pods.values() if node_of(other) and name in _claims(other) and other != pod]
        if _ONE_POD in claim["spec"]["accessModes"] and users:
            yield f"claim {name} is {name_of(users[0])}'s"
        elif _is_bound(claim):
            if not _is_near(state.volumes[claim["spec"]["volumeName"]], node):
                yield f"the volume of claim {name} is out of reach"
        elif claim["spec"].get("volumeName"):
            yield f"claim {name} waits for its volume"
        elif state.classes[claim["spec"]["storageClassName"]].get("volumeBindingMode") != "WaitForFirstConsumer":
            yield f"claim {name} has no volume yet"
        else:
            open_.append(claim)
    taken: list[str] = []
    for claim in sorted(open_, key=_size):
        match = next((one for one in _suiting(state, claim, node) if name_of(one) not in taken), None)
        if match is None:
            yield f"no volume for claim {name_of(claim)}"
        else:
            taken.append(name_of(match))


def volume_rules(before: State, after: State, change: Change) -> Iterator[str]:
    """A pod waits if and only if no node has room and volumes; claims get volumes that suit, near the pod's node."""
    for pod in after.waiting():
        for name, node in after.nodes.items():
            if not list(objections(after, pod, node)) and not list(_obstacles(after, pod, node)):
                yield f"pod {name_of(pod)} waits although node {name} has room and volumes for it"
    for name, claim in after.claims.items():
        volume = after.volumes.get(claim["spec"].get("volumeName", ""))
        if volume is not None:
            for why in mismatches(volume, claim):
                yield f"claim {name} has volume {name_of(volume)}: {why}"
    for pod in after.bound_since(before):
        yield from _of_bound(before, after, pod, change)


def _of_bound(before: State, after: State, pod: Json, change: Change) -> Iterator[str]:
    name, node = name_of(pod), after.nodes[node_of(pod)]
    for claim_name in _claims(pod):
        claim = after.claims.get(claim_name)
        if claim is None or not _is_bound(claim):
            yield f"pod {name} was bound, and its claim {claim_name} has no volume"
            continue
        volume = after.volumes[claim["spec"]["volumeName"]]
        if not _is_near(volume, node):
            yield f"pod {name} was bound to {name_of(node)}, out of reach of volume {name_of(volume)}"
        was_open = claim_name in before.claims and not before.claims[claim_name]["spec"].get("volumeName")
        if change is Change.ONE and was_open and len(_claims(pod)) == 1:
            smaller = [name_of(one) for one in _suiting(after, claim, node) if _size(one) < _size(volume)]
            late = after.classes[claim["spec"]["storageClassName"]]["volumeBindingMode"] == "WaitForFirstConsumer"
            if smaller and late:
                yield f"claim {claim_name} got volume {name_of(volume)}, and {smaller} are smaller and suit"
    users: dict[str, list[str]] = {}
    for other in after.pods.values():
        for claim_name in _claims(other) if node_of(other) else ():
            users.setdefault(claim_name, []).append(name_of(other))
    for claim_name in _claims(pod):
        claim = after.claims.get(claim_name)
        if claim is not None and _ONE_POD in claim["spec"]["accessModes"] and len(users[claim_name]) > 1:
            yield f"claim {claim_name} is for one pod, and {users[claim_name]} have it"
