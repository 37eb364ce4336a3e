"""Dynamic resource allocation: the fields of resource.k8s.io/v1 that scheduling reads (`api: resource/v1/types.go`)."""

from typing import Any

from msgspec import field

from seatrial.scheduler.api.core import NodeSelector, PodSchedulingGroup, Toleration
from seatrial.scheduler.api.wire import Condition, ObjectMeta, ResourceList, Wire

GROUP_PATH = "/apis/resource.k8s.io/v1"
CLASSES_PATH = f"{GROUP_PATH}/deviceclasses"
CLAIMS_PATH = f"{GROUP_PATH}/resourceclaims"
SLICES_PATH = f"{GROUP_PATH}/resourceslices"
TAINT_RULES_PATH = f"{GROUP_PATH}/devicetaintrules"

DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"  # finalizer of each allocated claim
POD_GROUPS = ("scheduling.k8s.io", "podgroups")  # API group and resource of PodGroups that use claims
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"  # annotation of claims that schedulers make
ALL, EXACT_COUNT = "All", "ExactCount"
MAX_RESULTS = 32  # devices of one claim
MAX_RESERVED = 256  # pods of one claim


def claims_path(namespace: str) -> str:
    """The URL path of the claims of a namespace."""
    return f"{GROUP_PATH}/namespaces/{namespace}/resourceclaims"


def claim_path(namespace: str, name: str, subresource: str = "") -> str:
    """The URL path of a claim; names of these kinds need no escaping."""
    path = f"{claims_path(namespace)}/{name}"
    return f"{path}/{subresource}" if subresource else path


class Cel(Wire, frozen=True):
    """An expression about one device."""

    expression: str = ""


class Selector(Wire, frozen=True):
    """What a device must be."""

    cel: Cel = Cel()


class Opaque(Wire, frozen=True):
    """A configuration that only its driver reads."""

    driver: str = ""
    parameters: Any = None


class Config(Wire, frozen=True):
    """A configuration, of the named requests, or of all."""

    requests: tuple[str, ...] = ()
    opaque: Opaque | None = None


class ClassSpec(Wire, frozen=True):
    """The devices of a class, and how they are set up."""

    selectors: tuple[Selector, ...] = ()
    config: tuple[Config, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Wire, frozen=True):
    """A DeviceClass."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClassSpec = ClassSpec()


class CapacityRequests(Wire, frozen=True):
    """How much of a shared device is asked for."""

    requests: ResourceList = {}


class DeviceRequest(Wire, frozen=True):
    """A request for devices of one class: `exactly`, or with a name one entry of `firstAvailable`."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequests | None = None


class Request(Wire, frozen=True):
    """A request of a claim."""

    name: str = ""
    exactly: DeviceRequest | None = None
    first_available: tuple[DeviceRequest, ...] = ()


class Constraint(Wire, frozen=True):
    """What the devices of some requests have in common, or must not; all requests where none is named."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(Wire, frozen=True):
    """What a claim asks for."""

    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Config, ...] = ()


class ClaimSpec(Wire, frozen=True):
    """A claim's spec."""

    devices: DeviceClaim = DeviceClaim()


class Result(Wire, frozen=True):
    """One allocated device."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str = field(default="", name="shareID")
    consumed_capacity: ResourceList = {}


class ResultConfig(Wire, frozen=True):
    """A configuration that holds for an allocation, and where it is from."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: Opaque | None = None


class AllocationDevices(Wire, frozen=True):
    """The devices of an allocation."""

    results: tuple[Result, ...] = ()
    config: tuple[ResultConfig, ...] = ()


class Allocation(Wire, frozen=True):
    """What a claim got, and the nodes where that can be used; None: all."""

    devices: AllocationDevices = AllocationDevices()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class Consumer(Wire, frozen=True):
    """Who may use a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""

    def is_group(self, group: PodSchedulingGroup | None) -> bool:
        """Whether it is the PodGroup that a pod names. A pod does not know its uid."""
        own = (self.api_group, self.resource) == POD_GROUPS
        return own and group is not None and group.pod_group_name == self.name


class DeviceStatus(Wire, frozen=True):
    """The conditions that a driver reports of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = field(default="", name="shareID")
    conditions: tuple[Condition, ...] = ()


class ClaimStatus(Wire, frozen=True):
    """A claim's status."""

    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()
    devices: tuple[DeviceStatus, ...] = ()


class ResourceClaim(Wire, frozen=True):
    """A ResourceClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class Attribute(Wire, frozen=True):
    """The value of an attribute: exactly one field is set."""

    int_: int | None = field(default=None, name="int")
    bool_: bool | None = field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class ValidRange(Wire, frozen=True):
    """The amounts that may be asked for: `min` and steps up to `max`."""

    min: str | int = "0"
    max: str | int | None = None
    step: str | int | None = None


class RequestPolicy(Wire, frozen=True):
    """How amounts that are asked for are rounded."""

    default: str | int | None = None
    valid_values: tuple[str | int, ...] = ()
    valid_range: ValidRange | None = None


class Capacity(Wire, frozen=True):
    """An amount that a device has."""

    value: str | int = "0"
    request_policy: RequestPolicy | None = None


class Counter(Wire, frozen=True):
    """An amount of a counter set."""

    value: str | int = "0"


class CounterConsumption(Wire, frozen=True):
    """What a device takes of a counter set."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class CounterSet(Wire, frozen=True):
    """Amounts that several devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Wire, frozen=True):
    """A taint of a device."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Wire, frozen=True):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class Pool(Wire, frozen=True):
    """The pool of a slice."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Wire, frozen=True):
    """Devices of a pool, or the counters that they share."""

    driver: str = ""
    pool: Pool = Pool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Wire, frozen=True):
    """A ResourceSlice."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpec = SliceSpec()


class DeviceSelector(Wire, frozen=True):
    """The devices of a rule: all fields that are given must agree."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(Wire, frozen=True):
    """A taint for all devices that are selected; none where there is no selector."""

    device_selector: DeviceSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Wire, frozen=True):
    """A DeviceTaintRule."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TaintRuleSpec = TaintRuleSpec()
