"""What must hold in a cluster, computed from its objects as plain JSON.

It shares no code with the auditor (`harness/audit`) and none with the scheduler, so that an error in one of them is no
error in the other. `wrong_now` holds at every moment, `wrong_at_rest` when nothing has changed for minutes.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

Json = dict[str, Any]
Objects = Mapping[str, Sequence[Json]]  # kind → objects
Numbers = dict[str, Decimal]

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
RESERVED = "scheduling.koordinator.sh/reservation-allocated"
GROUP = "pod-group.scheduling.sigs.k8s.io"
QUOTA = "quota.scheduling.koordinator.sh/name"
MODE = "gang.scheduling.koordinator.sh/mode"
CARDS, CORE, NVIDIA = "koordinator.sh/gpu", "koordinator.sh/gpu-core", "nvidia.com/gpu"
PERCENT = 100  # of a card
_UNITS: Mapping[str, Decimal | int] = {
    "m": Decimal("0.001"),
    "k": 10**3,
    "Ki": 2**10,
    "M": 10**6,
    "Mi": 2**20,
    "G": 10**9,
    "Gi": 2**30,
}


def wrong_now(objects: Objects) -> list[str]:
    """What is wrong at any moment, one sentence each."""
    cards = [*_cards(objects), *_claims(objects), *_parts(objects), *_nodes(objects), *_conditions(objects)]
    return sorted({*cards, *_quotas(objects), *_owners(objects)})


def wrong_at_rest(objects: Objects) -> list[str]:
    """What is wrong when all faults ended minutes ago."""
    gangs = [*_gangs(objects), *_status_of_quotas(objects), *_status_of_reservations(objects), *_jobs(objects)]
    return sorted({*wrong_now(objects), *gangs, *_lost(objects), *_unused_claims(objects)})


def unplaced(objects: Objects) -> list[str]:
    """Pods without a node, where there is room for all of them."""
    return [f"pod {_name(pod)} has no node, although it fits" for pod in _live(objects) if not _node(pod)]


def _cards(objects: Objects) -> Iterator[str]:
    """No card is given to more than its 100 percent, and each pod has the cards that it asks for."""
    known = {
        (device["metadata"]["name"], each["minor"])
        for device in objects["Device"]
        for each in device["spec"].get("devices", ())
        if each["type"] == "gpu"
    }
    values: dict[tuple[str, int], list[tuple[str, Decimal]]] = defaultdict(list)
    inside: dict[tuple[str, int, str], Decimal] = defaultdict(Decimal)  # by card and reservation
    for pod in _live(objects):
        if not _node(pod):
            continue
        grants = _grants(pod)
        requests = _requests(pod)
        by_name = PERCENT * requests[NVIDIA] if any(node == _node(pod) for node, _ in known) else 0  # else by a claim
        request = max(requests[CARDS], requests[CORE], by_name)
        if sum(grants.values()) != request:
            yield f"pod {_name(pod)} asks for {request} percent of a card and has {sum(grants.values())}"
        for minor, share in grants.items():
            card = (_node(pod), minor)
            if card not in known:
                yield f"pod {_name(pod)} has card {minor}, which node {_node(pod)} has not"
            values[card].append((_name(pod), share))
            inside[(*card, _reservation_of(pod))] += share
    for reservation in _available(objects):
        for minor, share in _grants(reservation).items():
            card = (reservation["status"]["nodeName"], minor)
            left = share - inside[(*card, reservation["metadata"]["uid"])]
            if left > 0:
                values[card].append((f"reservation {reservation['metadata']['name']}", left))
    for (node, minor), holders in sorted(values.items()):
        if sum(share for _, share in holders) > PERCENT:
            names = ", ".join(f"{name} {share}" for name, share in sorted(holders))
            yield f"card {minor} of node {node} is given out beyond {PERCENT} percent: {names}"


def _claims(objects: Objects) -> Iterator[str]:
    """No device is in two claims, and a pod on a node has the devices of its claims there."""
    holders: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    claims = {item["metadata"]["name"]: item for item in objects["ResourceClaim"]}
    for name, claim in claims.items():
        for result in _results(claim):
            if not result.get("shareID"):
                holders[result["driver"], result["pool"], result["device"]].append(name)
    for device, names in sorted(holders.items()):
        if len(names) > 1:
            yield f"device {'/'.join(device)} is in the claims {', '.join(sorted(names))}"
    for pod in _live(objects):
        for name in _claims_of(pod) if _node(pod) else ():
            claim = claims.get(name, {})
            own = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName"), pod["metadata"]["uid"]
            if not any(user["uid"] == own[1] or _group_of(user) == own[0] for user in _users(claim)):
                yield f"pod {_name(pod)} on {_node(pod)} uses claim {name}, which is not reserved for it"
            for result in _results(claim):
                if result["pool"] != _node(pod):
                    yield f"pod {_name(pod)} on {_node(pod)} has device {result['device']} of {result['pool']}"
            if not _results(claim):
                yield f"pod {_name(pod)} on {_node(pod)} uses claim {name}, which has no devices"


def _parts(objects: Objects) -> Iterator[str]:
    """Partitions of a card take no more than its counters, and shares of a device no more than its capacity."""
    have: dict[tuple[str, ...], Decimal] = {}
    devices: dict[tuple[str, str, str], Json] = {}
    for published in objects["ResourceSlice"]:
        spec = published["spec"]
        pool = spec["driver"], spec["pool"]["name"]
        for counters in spec.get("sharedCounters", ()):
            for name, counter in counters["counters"].items():
                have[*pool, counters["name"], name] = _number(counter["value"])
        for device in spec.get("devices", ()):
            devices[*pool, device["name"]] = device
            for name, capacity in device.get("capacity", {}).items():
                have[*pool, device["name"], name] = _number(capacity["value"])
    used: dict[tuple[str, ...], Decimal] = defaultdict(Decimal)
    for claim in objects["ResourceClaim"]:
        for result in _results(claim):
            place = result["driver"], result["pool"], result["device"]
            for name, amount in result.get("consumedCapacity", {}).items():
                used[*place, name] += _number(amount)
            for consumed in devices.get(place, {}).get("consumesCounters", ()):
                for name, counter in consumed["counters"].items():
                    used[*place[:2], consumed["counterSet"], name] += _number(counter["value"])
    for key, amount in sorted(used.items()):
        if amount > have.get(key, amount):
            yield f"claims have {amount} of {have[key]} of {'/'.join(key)}"


def _unused_claims(objects: Objects) -> Iterator[str]:
    """A claim that has devices is used by pods that are there.

    One that users made keeps them after a refused binding, and is reserved for no pod (DRA-R67).
    """
    there = {pod["metadata"]["uid"] for pod in _live(objects)}
    for item in objects["ResourceClaim"]:
        users = _users(item)  # a group keeps its claims as long as it is there
        if not users and not item["metadata"].get("ownerReferences"):
            continue
        if _results(item) and not there & {user["uid"] for user in users} and not any(map(_group_of, users)):
            yield f"claim {item['metadata']['name']} has devices and no pod"


def _nodes(objects: Objects) -> Iterator[str]:
    """No node has more on it than it can take, with what is left of its reservations."""
    used: dict[str, Numbers] = defaultdict(lambda: defaultdict(Decimal))
    for pod in _live(objects):
        if _node(pod):
            _add(used[_node(pod)], {**_requests(pod), "pods": Decimal(1)})
    for reservation in _available(objects):
        left = _amounts(reservation["status"].get("allocatable") or {})
        for pod in _owners_of(objects, reservation):
            for key, value in _requests(pod).items():
                left[key] = max(left.get(key, Decimal()) - value, Decimal())
        _add(used[reservation["status"]["nodeName"]], left)
    known = {node["metadata"]["name"]: _amounts(node["status"]["allocatable"]) for node in objects["Node"]}
    for name, sums in sorted(used.items()):
        for key in ("cpu", "memory", "pods") if name in known else ():
            if sums[key] > known[name].get(key, Decimal()):
                yield f"node {name} has {sums[key]} of {known[name].get(key)} {key}"


def _lost(objects: Objects) -> Iterator[str]:
    """No pod is on a node that is gone. A scheduler whose watch is late binds pods there; a controller deletes them."""
    known = {node["metadata"]["name"] for node in objects["Node"]}
    for pod in _live(objects):
        if _node(pod) and _node(pod) not in known:
            yield f"pod {_name(pod)} is on node {_node(pod)}, which is not there"


def _conditions(objects: Objects) -> Iterator[str]:
    """A pod that is bound is not said to be unscheduled, nor is a pod said to be scheduled that has no node."""
    for pod in _live(objects):
        for condition in pod["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled" and (condition["status"] == "True") != bool(_node(pod)):
                where = _node(pod) or "no node"
                yield f"pod {_name(pod)} on {where} has PodScheduled={condition['status']}: {condition.get('message')}"
    for reservation in objects["Reservation"]:
        name, status = reservation["metadata"]["name"], reservation.get("status") or {}
        for condition in status.get("conditions", ()):
            if condition["type"] == "Scheduled" and (condition["status"] == "True") != bool(status.get("nodeName")):
                yield f"reservation {name} on {status.get('nodeName')} has Scheduled={condition['status']}"


def _quotas(objects: Objects) -> Iterator[str]:
    """The pods of a quota use no more than its max."""
    used = _use_by_quota(objects)
    for quota in objects["ElasticQuota"]:
        name = quota["metadata"]["name"]
        for key, most in _amounts(quota["spec"].get("max") or {}).items():
            if used[name].get(key, Decimal()) > most:
                yield f"quota {name} uses {used[name][key]} of {most} {key}"


def _owners(objects: Objects) -> Iterator[str]:
    """A pod in a reservation is on the reservation's node; a reservation for one pod has one."""
    of = {item["metadata"]["uid"]: item for item in objects["Reservation"]}
    for pod in _live(objects):
        entry = of.get(_reservation_of(pod))
        if entry is not None and _node(pod) and entry["status"].get("nodeName") not in {None, _node(pod)}:
            where = entry["status"]["nodeName"]
            yield f"pod {_name(pod)} on {_node(pod)} is in reservation {entry['metadata']['name']} on {where}"
    for entry in of.values():
        owners = [_name(pod) for pod in _owners_of(objects, entry)]
        if len(owners) > 1 and entry["spec"].get("allocateOnce", True):
            yield f"reservation {entry['metadata']['name']} is for one pod and has {', '.join(owners)}"


def _gangs(objects: Objects) -> Iterator[str]:
    """A Strict gang whose members are all there has either its minimum of them on nodes, or none."""
    for group in objects["PodGroup"]:
        if (group["metadata"].get("annotations") or {}).get(MODE, "Strict") != "Strict":
            continue
        key, least = group["metadata"]["name"], group["spec"].get("minMember", 0)
        members = [
            pod
            for pod in _live(objects)
            if pod["metadata"].get("labels", {}).get(GROUP) == key
            and pod["metadata"]["namespace"] == group["metadata"]["namespace"]
        ]
        bound = sum(bool(_node(pod)) for pod in members)
        if len(members) >= least and 0 < bound < least:
            yield f"gang {key} has {bound} of {least} members on nodes"


def _status_of_quotas(objects: Objects) -> Iterator[str]:
    used = _use_by_quota(objects)
    for quota in objects["ElasticQuota"]:
        name = quota["metadata"]["name"]
        shown = _amounts((quota.get("status") or {}).get("used") or {})
        for key in quota["spec"].get("max") or {} if name in used else {}:
            if shown.get(key, Decimal()) != used[name].get(key, Decimal()):
                yield f"quota {name} shows {shown.get(key)} {key} used, its pods use {used[name].get(key)}"


def _status_of_reservations(objects: Objects) -> Iterator[str]:
    for item in _available(objects):
        shown = sorted(owner["name"] for owner in item["status"].get("currentOwners") or ())
        owners = sorted(pod["metadata"]["name"] for pod in _owners_of(objects, item))
        if shown != owners:
            yield f"reservation {item['metadata']['name']} shows the owners {shown} and has {owners}"


def _jobs(objects: Objects) -> Iterator[str]:
    """Migration jobs have ended, and hold no room any more."""
    available = {item["metadata"]["name"] for item in _available(objects)}
    for job in objects["PodMigrationJob"]:
        name, phase = job["metadata"]["name"], (job.get("status") or {}).get("phase", "")
        if phase not in {"Succeeded", "Failed", "Aborted"}:
            yield f"migration job {name} has not ended: {job.get('status')}"
        elif job["metadata"]["uid"] in available:
            yield f"migration job {name} has ended and its reservation holds room"


# -- reading ----------------------------------------------------------------------------------------------------------


def _live(objects: Objects) -> Iterator[Json]:
    return (pod for pod in objects["Pod"] if pod["status"].get("phase") not in {"Succeeded", "Failed"})


def _available(objects: Objects) -> Iterator[Json]:
    return (
        candidate for candidate in objects["Reservation"] if (candidate.get("status") or {}).get("phase") == "Available"
    )


def _owners_of(objects: Objects, reservation: Json) -> list[Json]:
    uid = reservation["metadata"]["uid"]
    return [pod for pod in _live(objects) if _node(pod) and _reservation_of(pod) == uid]


def _results(claim: Json) -> list[Json]:
    results: list[Json] = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", [])
    return results


def _users(claim: Json) -> list[Json]:
    users: list[Json] = (claim.get("status") or {}).get("reservedFor") or []
    return users


def _group_of(user: Json) -> str | None:
    """The name of the PodGroup that is the user of a claim; None: it is a pod."""
    return str(user["name"]) if user["resource"] == "podgroups" else None


def _claims_of(pod: Json) -> Iterator[str]:
    """The names of its claims; "" for one that is not made."""
    made = {
        entry["name"]: entry.get("resourceClaimName", "") for entry in pod["status"].get("resourceClaimStatuses", ())
    }
    for entry in pod["spec"].get("resourceClaims", ()):
        yield entry.get("resourceClaimName") or made.get(entry["name"], "")
    extended = pod["status"].get("extendedResourceClaimStatus")
    if extended:
        yield extended["resourceClaimName"]


def _use_by_quota(objects: Objects) -> dict[str, Numbers]:
    used: dict[str, Numbers] = defaultdict(lambda: defaultdict(Decimal))
    for pod in _live(objects):
        name = pod["metadata"].get("labels", {}).get(QUOTA)
        if name and _node(pod):
            _add(used[name], _requests(pod))
    return used


def _name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _node(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _reservation_of(pod: Json) -> str:
    text = (pod["metadata"].get("annotations") or {}).get(RESERVED, "{}")
    return str(json.loads(text).get("uid", ""))


def _grants(pod: Json) -> dict[int, Decimal]:
    """Percent of each card by minor."""
    text = (pod["metadata"].get("annotations") or {}).get(ALLOCATED, "{}")
    return {each["minor"]: _number(each["resources"][CORE]) for each in json.loads(text).get("gpu", ())}


def _requests(pod: Json) -> Numbers:
    sums: Numbers = defaultdict(Decimal)
    for container in pod["spec"]["containers"]:
        _add(sums, _amounts(container.get("resources", {}).get("requests") or {}))
    return sums


def _add(sums: Numbers, more: Mapping[str, Decimal]) -> None:
    for key, value in more.items():
        sums[key] += value


def _amounts(listed: Mapping[str, Any]) -> Numbers:
    return {key: _number(text) for key, text in listed.items()}


def _number(text: object) -> Decimal:
    value = str(text)
    unit = value.lstrip("0123456789.")
    return Decimal(value.removesuffix(unit)) * _UNITS.get(unit, 1)
