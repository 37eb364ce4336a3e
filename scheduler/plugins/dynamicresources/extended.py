"""Extended resources that devices of a DeviceClass serve: the class of a resource, and the claim made for a pod.

Follows `kubernetes: plugins/dynamicresources/extendeddynamicresources.go` (DRA-R105 to DRA-R109). A node that offers
the resource itself, as a device plugin does, serves it without a claim.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec

from seatrial.scheduler.api.core import Container, Pod
from seatrial.scheduler.api.quantity import QuantityError, exact
from seatrial.scheduler.api.resourceclaims import (
    DELETE_PROTECTION,
    EXTENDED_CLAIM,
    ClaimSpec,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    Request,
    ResourceClaim,
)
from seatrial.scheduler.api.wire import ObjectMeta, OwnerReference

IMPLICIT = "deviceclass.resource.kubernetes.io/"  # and the name of any class

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of the random part of generated names, as kube-apiserver has them
_RANDOM = 5
_MAX_PREFIX = 58  # characters of a generated name without its random part

Mapped = tuple[str, str, str]  # container, resource, request


@dataclass(slots=True, eq=False)
class ExtendedClaim:
    """The claim for a pod's extended resources. `mapped`: which requests each container uses.

    `is_sent`: whether it may be on the API server.
    """

    claim: ResourceClaim
    mapped: tuple[Mapped, ...]
    is_sent: bool = False

    def named(self, when: float) -> "ExtendedClaim":
        """The same with a name, as kube-apiserver generates it, and a uid to count it by until it is created.

        The scheduler chooses the name: where the answer to the creation is lost, the claim can be read back.
        """
        owner = self.claim.metadata.owner_references[0]
        uid = str(uuid5(NAMESPACE_OID, f"{owner.uid} {when}"))
        number, letters = int(uid.replace("-", ""), 16), ""
        for _ in range(_RANDOM):
            number, letter = divmod(number, len(_LETTERS))
            letters += _LETTERS[letter]
        metadata = msgspec.structs.replace(
            self.claim.metadata, name=_prefix(owner.name)[:_MAX_PREFIX] + letters, uid=uid
        )
        return ExtendedClaim(msgspec.structs.replace(self.claim, metadata=metadata), self.mapped)

    def body(self) -> dict[str, Any]:
        """The object to create."""
        builtins: dict[str, Any] = msgspec.to_builtins(self.claim)
        del builtins["metadata"]["uid"]
        builtins["metadata"]["generateName"] = _prefix(self.claim.metadata.owner_references[0].name)
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **builtins}

    def status(self) -> dict[str, Any]:
        """The pod's `extendedResourceClaimStatus`."""
        mappings = [
            {"containerName": container, "resourceName": resource, "requestName": request}
            for container, resource, request in self.mapped
        ]
        return {"resourceClaimName": self.claim.metadata.name, "requestMappings": mappings}


def _prefix(pod: str) -> str:
    return f"{pod}-extended-resources-"


def class_of_resources(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The name of the class by extended resource: the newest, and of equally old ones the first by name (DRA-R105)."""
    device_classes: dict[str, DeviceClass] = {}
    for one in sorted(classes, key=lambda one: one.metadata.name):
        for resource in (one.spec.extended_resource_name, IMPLICIT + one.metadata.name):
            if resource and (resource not in device_classes or _created(one) > _created(device_classes[resource])):
                device_classes[resource] = one
    return {resource: one.metadata.name for resource, one in device_classes.items()}


def _created(one: DeviceClass) -> str:
    return one.metadata.creation_timestamp or ""


def extended_claim(pod: Pod, classes: Mapping[str, str]) -> ExtendedClaim:
    """The claim for these resources of a pod, with their classes by resource. It has no name and no uid yet."""
    requests, mapped = requests_of(pod, classes)
    owner = OwnerReference("Pod", pod.metadata.name, pod.metadata.uid, "v1", controller=True)
    metadata = ObjectMeta(
        name="<extended-resources>",  # in messages, as upstream
        namespace=pod.metadata.namespace,
        annotations={EXTENDED_CLAIM: "true"},
        owner_references=(owner,),
        finalizers=(DELETE_PROTECTION,),
    )
    queries = tuple(Request(one.name, msgspec.structs.replace(one, name="")) for one in requests)
    spec = ClaimSpec(DeviceClaim(queries))
    return ExtendedClaim(ResourceClaim(metadata, spec), mapped)


def requests_of(pod: Pod, classes: Mapping[str, str]) -> tuple[list[DeviceRequest], tuple[Mapped, ...]]:
    """A request for each container and resource, and which requests each container uses (DRA-R107, DRA-R108).

    Init containers use the devices of containers that start later, and have one request together for what these lack.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    initial = len(pod.spec.init_containers)
    passing = {at for at in range(initial) if containers[at].restart_policy != "Always"}
    requests: list[DeviceRequest] = []
    mapped: list[Mapped] = []
    for resource in sorted(classes):
        lasting: dict[int, DeviceRequest] = {}
        for at, container in enumerate(containers):
            amount = _amount(container, resource)
            if amount and at not in passing:
                lasting[at] = _request(at, container, resource, classes[resource], amount)
                mapped.append((container.name, resource, lasting[at].name))
        largest: DeviceRequest | None = None
        users: list[tuple[str, list[DeviceRequest], bool]] = []
        for at in sorted(passing):
            amount = _amount(containers[at], resource)
            if not amount:
                continue
            used: list[DeviceRequest] = []
            for later in (one for other, one in sorted(lasting.items()) if other > at):
                if amount <= 0:
                    break
                used.append(later)
                amount -= later.count
            users.append((containers[at].name, used, amount > 0))
            if amount > 0 and (largest is None or largest.count < amount):
                largest = _request(at, containers[at], resource, classes[resource], amount)
        for name, used, lacks in users:
            names = [one.name for one in used] + ([largest.name] if lacks and largest is not None else [])
            mapped += [(name, resource, request) for request in names]
        requests += [*lasting.values(), *([largest] if largest is not None else [])]
    return sorted(requests, key=lambda one: one.name), tuple(mapped)


def _amount(container: Container, resource: str) -> int:
    """How many devices the container asks for; what is not a whole number counts as 0, as upstream's AsInt64."""
    try:
        value = exact(container.resources.requests.get(resource, "0"))
    except QuantityError:
        return 0
    return int(value) if value.denominator == 1 else 0


def _request(at: int, container: Container, resource: str, of_class: str, count: int) -> DeviceRequest:
    place = sorted(container.resources.requests).index(resource)
    return DeviceRequest(f"container-{at}-request-{place}", of_class, count=count)
