"""The oracle of volumes: on which nodes the claims of a pod are, or can be, bound to a volume that suits them.

From kubernetes' documentation of PersistentVolumes and StorageClasses, and the comments of its plugins VolumeBinding
and VolumeZone: of the volumes that suit, the smallest; small claims choose before large ones; a volume is made, where a
class has a provisioner, on a node in its allowed topologies if none suits.
"""

from collections.abc import Iterator

from seatrial.harness.apiserver.quantities import units
from seatrial.scheduler.api.storage import SELECTED_NODE
from seatrial.suites.properties.node_fit import matches, objections, selects
from seatrial.suites.properties.state import Change, Json, State, annotations, labels, name_of, node_of

_ONE_POD = "ReadWriteOncePod"
_LATE, _NOBODY = "WaitForFirstConsumer", "kubernetes.io/no-provisioner"
_ZONE, _OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"


def _claims(pod: Json) -> list[str]:
    """Names of its claims, that of its own volume included."""
    return [
        f"{name_of(pod)}-{each['name']}" if "ephemeral" in each else each["persistentVolumeClaim"]["claimName"]
        for each in pod["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in each or "ephemeral" in each
    ]


def _is_bound(claim: Json) -> bool:
    return claim.get("status", {}).get("phase") == "Bound"


def _size(one: Json) -> int:
    """Bytes that a claim asks for, or that a volume has."""
    spec = one["spec"]
    return units((spec.get("capacity") or spec["resources"]["requests"])["storage"])


def _is_near(volume: Json, node: Json) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or selects(required, node)


def _is_in_zone(volume: Json, node: Json) -> bool:
    """Whether the zones in the labels of a bound volume have the node; a node without a zone is in all."""
    zones = [values.split("__") for key in (_ZONE, _OLD_ZONE) if (values := labels(volume).get(key))]
    return _ZONE not in labels(node) or all(labels(node)[_ZONE] in each for each in zones)


def _is_allowed(one: Json, node: Json) -> bool:
    """Whether the class has a provisioner that may make a volume for the node."""
    terms = one.get("allowedTopologies")
    return one["provisioner"] != _NOBODY and (
        not terms
        or any(
            all(labels(node).get(each["key"]) in each["values"] for each in term["matchLabelExpressions"])
            for term in terms
        )
    )


def mismatches(volume: Json, claim: Json) -> Iterator[str]:
    """What of the volume does not suit the claim."""
    spec, offered = claim["spec"], volume["spec"]
    if spec["storageClassName"] != offered.get("storageClassName"):
        yield "another class"
    if spec.get("volumeMode", "Filesystem") != offered.get("volumeMode", "Filesystem"):
        yield "another volume mode"
    if _size(volume) < _size(claim):
        yield "too small"
    if not set(spec["accessModes"]) <= set(offered["accessModes"]):
        yield f"access modes {offered['accessModes']}"
    selector, values = spec.get("selector") or {}, labels(volume)
    if any(values.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()) or any(
        not matches(each, values) for each in selector.get("matchExpressions") or ()
    ):
        yield "not selected"


def _is_reserved(volume: Json, claim: Json) -> bool:
    """Whether the volume names this claim."""
    reference = volume["spec"].get("claimRef")
    return reference is not None and bool(
        (reference["namespace"], reference["name"]) == (claim["metadata"]["namespace"], name_of(claim))
        and reference.get("uid", "") in {"", claim["metadata"]["uid"]}
    )


def _is_free(volume: Json, claim: Json) -> bool:
    """For this claim: nobody has it, or it was made for the claim."""
    if volume["spec"].get("claimRef") is not None:
        return _is_reserved(volume, claim)
    return volume["status"].get("phase") == "Available" and "deletionTimestamp" not in volume["metadata"]


def _suiting(state: State, claim: Json, node: Json) -> list[Json]:
    """The volumes that the claim may get on this node, the best first."""
    volumes = [
        volume
        for volume in state.volumes.values()
        if _is_free(volume, claim) and _is_near(volume, node) and not list(mismatches(volume, claim))
    ]
    return sorted(volumes, key=lambda volume: ("claimRef" not in volume["spec"], _size(volume)))


def _is_late(state: State, claim: Json) -> bool:
    return bool(state.classes[claim["spec"]["storageClassName"]].get("volumeBindingMode") == _LATE)


def _home(claim: Json) -> str:
    """The node for which a volume is being made; "" if none is."""
    return "" if claim["spec"].get("volumeName") else annotations(claim).get(SELECTED_NODE, "")


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
            volume = state.volumes.get(claim["spec"]["volumeName"])
            if volume is None or not (_is_near(volume, node) and _is_in_zone(volume, node)):
                yield f"the volume of claim {name} is out of reach"
        elif claim["spec"].get("volumeName"):
            yield f"claim {name} waits for its volume"
        elif not _is_late(state, claim):
            yield f"claim {name} has no volume yet"
        elif _home(claim):
            yield f"the volume of claim {name} is being made for node {_home(claim)}"
        else:
            open_.append(claim)
    taken: list[str] = []
    for claim in sorted(open_, key=_size):
        match = next((one for one in _suiting(state, claim, node) if name_of(one) not in taken), None)
        if match is not None:
            taken.append(name_of(match))
        elif not _is_allowed(state.classes[claim["spec"]["storageClassName"]], node):
            yield f"no volume for claim {name_of(claim)}"


def volume_rules(before: State, after: State, change: Change) -> Iterator[str]:
    """A pod waits if and only if no node has room and volumes; claims get volumes that suit, near the pod's node."""
    homes = {_home(claim) for claim in after.claims.values()}  # a pod may have room there already
    for pod in after.waiting():
        for name, node in after.nodes.items():
            if name not in homes and not list(objections(after, pod, node)) and not list(_obstacles(after, pod, node)):
                yield f"pod {name_of(pod)} waits although node {name} has room and volumes for it"
    for name, claim in after.claims.items():
        volume = after.volumes.get(claim["spec"].get("volumeName", ""))
        earlier = before.claims.get(name, claim)
        again = earlier["metadata"]["uid"] != claim["metadata"]["uid"]
        if volume is None or earlier["spec"].get("volumeName") or again:
            continue
        offered = before.volumes.get(name_of(volume), volume)
        for why in () if _is_reserved(offered, claim) else mismatches(volume, claim):
            yield f"claim {name} has volume {name_of(volume)}: {why}"
        if not _is_free(offered, claim):
            yield f"claim {name} has volume {name_of(volume)}, which was not free"
    for name, claim in after.claims.items():
        home = after.nodes.get(_home(claim))
        if home is not None and not _home(before.claims.get(name, {"spec": {}, "metadata": {}})):
            if change is Change.ONE and not _is_allowed(after.classes[claim["spec"]["storageClassName"]], home):
                yield f"a volume is to be made for claim {name} on node {name_of(home)}, which its class does not allow"
            for one in _suiting(after, claim, home) if change is Change.ONE else ():
                yield f"a volume is to be made for claim {name}, and {name_of(one)} suits"
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
        if change is not Change.UNSEEN and not _is_near(volume, node):
            yield f"pod {name} was bound to {name_of(node)}, out of reach of volume {name_of(volume)}"
    yield from _of_choice(before, after, pod, node) if change is Change.ONE else ()
    users: dict[str, list[str]] = {}
    for other in after.pods.values():
        for claim_name in _claims(other) if node_of(other) else ():
            users.setdefault(claim_name, []).append(name_of(other))
    for claim_name in _claims(pod):
        claim = after.claims.get(claim_name)
        if claim is not None and _ONE_POD in claim["spec"]["accessModes"] and len(users[claim_name]) > 1:
            yield f"claim {claim_name} is for one pod, and {users[claim_name]} have it"


def _of_choice(before: State, after: State, pod: Json, node: Json) -> Iterator[str]:
    """The smallest claim that got its volume with the pod has the smallest one that suits."""
    claims = [after.claims[name] for name in _claims(pod) if name in after.claims]
    if any("volumeName" in before.claims.get(name_of(claim), claim)["spec"] for claim in claims):
        return
    claims.sort(key=_size)
    if not claims or (len(claims) > 1 and _size(claims[0]) == _size(claims[1])) or not _is_late(after, claims[0]):
        return
    volume = after.volumes.get(claims[0]["spec"].get("volumeName", ""))
    if volume is not None and name_of(volume) in before.volumes:
        smaller = [name_of(one) for one in _suiting(before, claims[0], node) if _size(one) < _size(volume)]
        if smaller and not _is_reserved(before.volumes[name_of(volume)], claims[0]):
            yield f"claim {name_of(claims[0])} got volume {name_of(volume)}, and {smaller} are smaller and suit"
