"""Builders of manifests for tests and load: `pod("a").gpu_share(50)`, `node("n").gpus("a100-80g", 8)`.

A method changes the builder and returns it. The result is a manifest as plain data, like that
of a user's YAML file.
"""

from typing import Any, Self

import msgspec

from seatrial.scheduler.api import device, extension, numa
from seatrial.scheduler.api import quota as quota_words
from seatrial.scheduler.api import reservation as reservation_words
from seatrial.scheduler.api.networktopology import DEFAULT_TOPOLOGY, GATHER_SPEC, NODE_LAYER
from seatrial.scheduler.api.podgroup import GANG_GROUPS, GANG_MATCH_POLICY, GANG_MIN, GANG_MODE, GANG_NAME
from seatrial.scheduler.api.quantity import Quantity
from seatrial.scheduler.api.wire import to_json

Manifest = dict[str, Any]

PROBE_IMAGE = "busybox:stable"
PROBE_COMMAND = (
    "sh",
    "-c",
    (
        "env; ls -d /dev/nvidia* /dev/davinci* /dev/vdavinci* /dev/cambricon* /dev/infiniband/* /dev/kfd /dev/dri/*"
        " 2>/dev/null"
        " | sed 's/^/device=/'; sed -n 's/^[^ ]* \\([^ ]*\\) .*/mount=\\1/p' /proc/mounts; exec sleep 2147483647"
    ),
)


class _Object:
    """Name, labels and annotations of a manifest."""

    def __init__(self, api_version: str, kind: str, name: str) -> None:
        self.manifest: Manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    def namespace(self, namespace: str) -> Self:
        self.manifest["metadata"]["namespace"] = namespace
        return self

    def label(self, key: str, value: str) -> Self:
        self.manifest["metadata"].setdefault("labels", {})[key] = value
        return self

    def annotation(self, key: str, value: str) -> Self:
        self.manifest["metadata"].setdefault("annotations", {})[key] = value
        return self

    def _json_annotation(self, key: str) -> Manifest:
        """The current value of an annotation that is JSON."""
        body: Manifest = msgspec.json.decode(self.manifest["metadata"].get("annotations", {}).get(key, "{}"))
        return body


class PodBuilder(_Object):
    """A pod with one container that prints its environment, devices and mounts, and then waits for its end."""

    def __init__(self, name: str) -> None:
        super().__init__("v1", "Pod", name)
        self._container: Manifest = {"name": "main", "image": PROBE_IMAGE, "command": list(PROBE_COMMAND)}
        self.manifest["spec"] = {"containers": [self._container], "terminationGracePeriodSeconds": 1}

    def request(self, **resources: Quantity) -> Self:
        """Requests and equal limits; `request(cpu=1, memory="1Gi")`."""
        return self.resources(resources)

    def resources(self, amounts: dict[str, Quantity]) -> Self:
        """Requests and equal limits, by full resource name."""
        have = self._container.setdefault("resources", {})
        for name, quantity in amounts.items():
            have.setdefault("requests", {})[name] = have.setdefault("limits", {})[name] = str(quantity)
        return self

    def limits(self, amounts: dict[str, Quantity]) -> Self:
        """Limits apart from the requests, by full resource name."""
        have = self._container.setdefault("resources", {})
        have.setdefault("limits", {}).update({name: str(quantity) for name, quantity in amounts.items()})
        return self

    def quota(self, name: str, *, preemptible: bool = True) -> Self:
        """The elastic quota that counts it."""
        if not preemptible:
            self.label(quota_words.PREEMPTIBLE, "false")
        return self.label(quota_words.QUOTA_NAME, name)

    def gpus(self, cards: int) -> Self:
        """Whole cards by Koordinator's resource name."""
        return self.resources({device.GPU: 100 * cards})

    def nvidia(self, cards: int) -> Self:
        """Whole cards by NVIDIA's resource name."""
        return self.resources({device.NVIDIA_GPU: cards})

    def gpu_share(self, percent: int) -> Self:
        """A slice of one card: `percent` of its cores and of its memory."""
        return self.resources({device.GPU_CORE: percent, device.GPU_MEMORY_RATIO: percent})

    def gpu_memory(self, memory: Quantity, *, core: int | None = None) -> Self:
        """A slice of one card by bytes of memory, and percent of its cores if given."""
        self.resources({device.GPU_MEMORY: memory})
        return self if core is None else self.resources({device.GPU_CORE: core})

    def rdma(self, percent: int) -> Self:
        """A share of one NIC in percent; multiples of 100 are whole NICs."""
        return self.resources({device.RDMA: percent})

    def hint(self, device_type: device.DeviceType, **words: Any) -> Self:
        """One type's part of `device-allocate-hint`, by its own field names: `hint("gpu", requiredTopologyScope=…)`."""
        manifest = self._json_annotation(device.DEVICE_ALLOCATE_HINT)
        return self.annotation(device.DEVICE_ALLOCATE_HINT, to_json({**manifest, device_type: words}).decode())

    def jointly(self, *types: device.DeviceType, same_pcie: bool = False) -> Self:
        """Devices of these types close to each other, the first is primary; `same_pcie`: on the same switches."""
        message = {"deviceTypes": types} | ({"requiredScope": "SamePCIe"} if same_pcie else {})
        return self.annotation(device.DEVICE_JOINT_ALLOCATE, to_json(message).decode())

    def partition(self, policy: str = "", *, bandwidth: str = "") -> Self:
        """Cards from the node's partition table only: `Restricted` or `BestEffort`, with a minimum ring bandwidth."""
        messages = {"allocatePolicy": policy, "ringBusBandwidth": bandwidth}
        return self.annotation(
            device.GPU_PARTITION_SPEC, to_json({key: value for key, value in messages.items() if value}).decode()
        )

    def isolated(self) -> Self:
        """Request HAMi-core as isolation provider of the share."""
        return self.label(device.GPU_ISOLATION_PROVIDER, device.HAMI_CORE)

    def qos(self, qos_class: str) -> Self:
        """Koordinator's quality of service: LSE, LSR, LS, BE or SYSTEM."""
        return self.label(numa.QOS_LABEL, qos_class)

    def bind_cpus(self, preferred: str = "", *, required: str = "", exclusive: str = "") -> Self:
        """CPU bind policy of an LSR or LSE pod: FullPCPUs or SpreadByPCPUs; exclusive: PCPULevel or NUMANodeLevel."""
        messages = {
            "requiredCPUBindPolicy": required,
            "preferredCPUBindPolicy": preferred,
            "preferredCPUExclusivePolicy": exclusive,
        }
        return self.annotation(
            numa.RESOURCE_SPEC, to_json({key: value for key, value in messages.items() if value}).decode()
        )

    def align(self, policy: str, *, exclusive: str = "") -> Self:
        """All resources from the same NUMA nodes: BestEffort, Restricted or SingleNUMANode."""
        messages = {"numaTopologyPolicy": policy, "singleNUMANodeExclusive": exclusive}
        return self.annotation(
            numa.NUMA_TOPOLOGY_SPEC, to_json({key: value for key, value in messages.items() if value}).decode()
        )

    def into_reservation(self, **words: Any) -> Self:
        """Require a reservation: `reservation-affinity` by its own field names; without any, every matching one."""
        return self.annotation(reservation_words.RESERVATION_AFFINITY, to_json(words).decode())

    def exactly(self, *resources: str) -> Self:
        """Only reservations with the same amounts of these resources."""
        json = to_json({"resourceNames": resources}).decode()
        return self.annotation(reservation_words.EXACT_MATCH, json)

    def ignores_reservations(self) -> Self:
        """Amounts reserved for other pods are free for this pod."""
        return self.label(reservation_words.RESERVATION_IGNORED, "true")

    def priority(self, value: int) -> Self:
        """A priority without class; real API servers accept it only through a class (`priority_class`)."""
        self.manifest["spec"]["priority"] = value
        return self

    def priority_class(self, name: str) -> Self:
        self.manifest["spec"]["priorityClassName"] = name
        return self

    def never_preempts(self) -> Self:
        """It waits instead of evicting pods (`preemptionPolicy: Never`)."""
        self.manifest["spec"]["preemptionPolicy"] = "Never"
        return self

    def in_gang(self, name: str) -> Self:
        """A member of the PodGroup of that name."""
        return self.label(extension.POD_GROUP_LABEL, name)

    def in_native_gang(self, name: str) -> Self:
        """A member of the PodGroup of scheduling.k8s.io of that name."""
        self.manifest["spec"]["schedulingGroup"] = {"podGroupName": name}
        return self

    def in_light_gang(self, name: str, minimum: int | str) -> Self:
        """A member of a gang without a PodGroup."""
        return self.annotation(GANG_NAME, name).annotation(GANG_MIN, str(minimum))

    def on(self, **labels: str) -> Self:
        """Only nodes with these labels; for keys with slashes use `select`."""
        return self.select(labels)

    def select(self, labels: dict[str, str]) -> Self:
        """Add labels that its node must have; labels that were given before stay."""
        self.manifest["spec"].setdefault("nodeSelector", {}).update(labels)
        return self

    def tolerate(self, key: str, *, value: str = "", effect: str = "") -> Self:
        """Add a toleration: of any value where `value` is empty, of every effect where `effect` is empty."""
        toleration = {"key": key, "operator": "Equal" if value else "Exists", "value": value, "effect": effect}
        self.manifest["spec"].setdefault("tolerations", []).append({k: v for k, v in toleration.items() if v})
        return self

    def claim(self, entry: str, *, name: str = "", template: str = "", request: str = "") -> Self:
        """Devices of the claim `name`, or of one made from `template`, for its container; `request`: of that only."""
        entries = self.manifest["spec"].setdefault("resourceClaims", [])
        if all(known["name"] != entry for known in entries):
            source = {"resourceClaimName": name} if name else {"resourceClaimTemplateName": template}
            entries.append({"name": entry, **source})
        resources = self._container.setdefault("resources", {})
        query = {"name": entry, "request": request} if request else {"name": entry}
        resources.setdefault("claims", []).append(query)
        return self

    def scheduler(self, name: str) -> Self:
        """Name the scheduler, or the profile of ours, that places it."""
        self.manifest["spec"]["schedulerName"] = name
        return self

    def node_name(self, name: str) -> Self:
        """Bind it to this node at its creation: no scheduler is asked."""
        self.manifest["spec"]["nodeName"] = name
        return self


class QuotaBuilder(_Object):
    """An ElasticQuota: `quota("team").min(cpu=2).max(cpu=8)`."""

    def __init__(self, name: str) -> None:
        super().__init__("scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", name)
        self.manifest["spec"] = {"min": {}, "max": {}}

    def min(self, **amounts: Quantity) -> Self:
        """What is guaranteed."""
        self.manifest["spec"]["min"] |= {key: str(quantity) for key, quantity in amounts.items()}
        return self

    def max(self, **amounts: Quantity) -> Self:
        """The bound."""
        self.manifest["spec"]["max"] |= {key: str(quantity) for key, quantity in amounts.items()}
        return self

    def limits(self, least: dict[str, Quantity], most: dict[str, Quantity]) -> Self:
        """Min and max by full resource name."""
        self.manifest["spec"] = {
            "min": {key: str(quantity) for key, quantity in least.items()},
            "max": {key: str(quantity) for key, quantity in most.items()},
        }
        return self

    def below(self, parent: str) -> Self:
        """Make it a child of the quota of that name."""
        return self.label(quota_words.PARENT, parent)

    def parent(self) -> Self:
        """It has child quotas and no pods."""
        return self.label(quota_words.IS_PARENT, "true")

    def weight(self, **amounts: Quantity) -> Self:
        """Its weight where siblings compete."""
        return self.annotation(quota_words.SHARED_WEIGHT, to_json(amounts).decode())

    def keeps(self) -> Self:
        """It does not lend the unused part of its min."""
        return self.label(quota_words.ALLOW_LENT, "false")

    def namespaces(self, *names: str) -> Self:
        """Pods of these namespaces count in it without a label."""
        return self.annotation(quota_words.NAMESPACES, to_json(names).decode())


class NodeBuilder:
    """One node of a fleet: its hardware, with the fields of the fleet file."""

    def __init__(self, name: str) -> None:
        self.manifest: Manifest = {"name": name}

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    def cpu(self, cores: int) -> Self:
        """Allocatable cores."""
        self.manifest["cpu"] = cores
        return self

    def memory(self, quantity: Quantity) -> Self:
        """Allocatable memory, as a Kubernetes quantity (`64Gi`) or in bytes."""
        self.manifest["memory"] = str(quantity)
        return self

    def pods(self, count: int) -> Self:
        """The number of pods that it takes."""
        self.manifest["pods"] = count
        return self

    def gpus(self, model: str, count: int) -> Self:
        """Cards by model name of the catalogue, of any vendor."""
        return self.devices(model, count)

    def cards(self, count: int, *, vendor: str = "nvidia") -> Self:
        """Cards of any model of the vendor: nvidia, huawei, cambricon or amd."""
        self.manifest.setdefault("devices", []).append({"vendor": vendor, "count": count})
        return self

    def nics(self, model: str, count: int) -> Self:
        """RDMA NICs by model name of the catalogue."""
        return self.devices(model, count)

    def devices(self, model: str, count: int) -> Self:
        """Devices by model name of the catalogue; a second call adds to the first."""
        self.manifest.setdefault("devices", []).append({"model": model, "count": count})
        return self

    def server(self, model: str) -> Self:
        """A whole machine of the catalogue, with its devices and topology."""
        self.manifest["server"] = model
        return self

    def isolation(self, provider: str = device.HAMI_CORE) -> Self:
        """The label that says which program isolates shares of its GPUs."""
        return self.label(device.GPU_ISOLATION_PROVIDER, provider)

    def kubelet(self, *, topology_policy: str = "", full_pcpus_only: bool = False, reserved_cpus: str = "") -> Self:
        """Kubelet settings; a topology manager policy includes its scope: SingleNUMANodePodLevel."""
        messages = {
            "topology_policy": topology_policy,
            "full_pcpus_only": full_pcpus_only,
            "reserved_cpus": reserved_cpus,
        }
        self.manifest["kubelet"] = {key: value for key, value in messages.items() if value}
        return self

    def processor(self, model: str, *, hyper_threading: bool = False, turbo: bool = False) -> Self:
        """The CPU model that the node agent reports."""
        self.manifest["processor"] = {"model": model, "hyper_threading": hyper_threading, "turbo": turbo}
        return self

    def dra(self, way: str = "whole") -> Self:
        """Its devices are offered in ResourceSlices, for claims, and not in a Device object: whole cards, `partitions`
        of them, or `shares`."""
        self.manifest["dra"] = way
        return self

    def numa_policy(self, policy: str) -> Self:
        """The node's NUMA topology policy by its label: BestEffort, Restricted or SingleNUMANode."""
        return self.label(numa.NUMA_TOPOLOGY_POLICY_LABEL, policy)

    def label(self, key: str, value: str) -> Self:
        self.manifest.setdefault("labels", {})[key] = value
        return self

    def annotation(self, key: str, value: str) -> Self:
        self.manifest.setdefault("annotations", {})[key] = value
        return self

    def extended(self, name: str, amount: int) -> Self:
        """A resource that a device plugin of another project offers."""
        self.manifest.setdefault("extended", {})[name] = amount
        return self

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        self.manifest.setdefault("taints", []).append({"key": key, "value": value, "effect": effect})
        return self


class ClaimBuilder(_Object):
    """A ResourceClaim, or a template of claims: `claim("a").asks("gpu", "gpu.nvidia.com", count=2)`."""

    def __init__(self, name: str, *, template: bool) -> None:
        super().__init__("resource.k8s.io/v1", "ResourceClaimTemplate" if template else "ResourceClaim", name)
        self._devices: Manifest = {"requests": []}
        spec = {"devices": self._devices}
        self.manifest["spec"] = {"spec": spec} if template else spec

    def asks(self, name: str, device_class: str, *selectors: str, **fields: Any) -> Self:
        """A request for devices of a class for which the CEL expressions hold; `fields` as the API spells them."""
        self._devices["requests"].append({"name": name, "exactly": _device_request(device_class, selectors, fields)})
        return self

    def asks_first(self, name: str, *alternatives: Manifest) -> Self:
        """A request that the first alternative serves that can: `alternative("big", CLASS, count=2)`."""
        self._devices["requests"].append({"name": name, "firstAvailable": list(alternatives)})
        return self

    def matching(self, attribute: str, *requests: str) -> Self:
        """All devices of the requests, or of all, have one value of the attribute."""
        return self._constraint({"matchAttribute": attribute}, requests)

    def distinct(self, attribute: str, *requests: str) -> Self:
        """No two devices of the requests, or of all, have one value of the attribute."""
        return self._constraint({"distinctAttribute": attribute}, requests)

    def _constraint(self, manifest: Manifest, requests: tuple[str, ...]) -> Self:
        if requests:
            manifest["requests"] = list(requests)
        self._devices.setdefault("constraints", []).append(manifest)
        return self


def _device_request(device_class: str, selectors: tuple[str, ...], fields: Manifest) -> Manifest:
    chosen = [{"cel": {"expression": selector}} for selector in selectors]
    return {"deviceClassName": device_class, **({"selectors": chosen} if chosen else {}), **fields}


class GangBuilder(_Object):
    """A PodGroup."""

    def __init__(self, name: str, min_member: int) -> None:
        super().__init__("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", name)
        self.manifest["spec"] = {"minMember": min_member}

    def waiting_time(self, seconds: int) -> Self:
        """Seconds for which members hold room while others are missing."""
        self.manifest["spec"]["scheduleTimeoutSeconds"] = seconds
        return self

    def mode(self, mode: str) -> Self:
        """`Strict` or `NonStrict`."""
        return self.annotation(GANG_MODE, mode)

    def together_with(self, *ids: str) -> Self:
        """Place it together with these PodGroups `namespace/name`; the list has its own id too."""
        return self.annotation(GANG_GROUPS, to_json(list(ids)).decode())

    def match_policy(self, policy: str) -> Self:
        """Which members count: Koordinator's `once-satisfied`, `only-waiting` or `waiting-and-running`."""
        return self.annotation(GANG_MATCH_POLICY, policy)

    def gather(self, layer: str, strategy: str, *, multiple: int = 0) -> Self:
        """Add a rule for a layer of the network: `MustGather` or `PreferGather`, and podCountMultiple."""
        gather_spec = self.manifest["metadata"].get("annotations", {}).get(GATHER_SPEC, '{"gatherStrategy": []}')
        spec: Manifest = msgspec.json.decode(gather_spec)
        rule: Manifest = {"layer": layer, "strategy": strategy}
        spec["gatherStrategy"].append({**rule, "podCountMultiple": multiple} if multiple else rule)
        return self.annotation(GATHER_SPEC, to_json(spec).decode())


def network_topology(*layers: tuple[str, str]) -> Manifest:
    """The ClusterNetworkTopology `default` of these layers above the nodes, topmost first, each with its node label."""
    parents = ["", *(layer for layer, _ in layers)]
    entries = [
        {"topologyLayer": layer, "labelKey": [key], **({"parentTopologyLayer": parent} if parent else {})}
        for (layer, key), parent in zip(layers, parents, strict=False)
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": DEFAULT_TOPOLOGY},
        "spec": {"networkTopologySpec": [*entries, {"topologyLayer": NODE_LAYER, "parentTopologyLayer": parents[-1]}]},
    }


class ReservationBuilder(_Object):
    """A reservation for future pods: `reservation("r").like(pod("p").gpus(1)).for_labels(app="a")`."""

    def __init__(self, name: str) -> None:
        super().__init__("scheduling.koordinator.sh/v1alpha1", "Reservation", name)
        self.manifest["spec"] = {"template": {"spec": {"containers": []}}, "owners": [], "ttl": "24h"}

    def like(self, pod: PodBuilder) -> Self:
        """Reserve the resources of this pod, under its placement constraints."""
        metadata = {key: value for key, value in pod.manifest["metadata"].items() if key != "name"}
        template = {"spec": pod.manifest["spec"]}
        self.manifest["spec"]["template"] = ({"metadata": metadata} if metadata else {}) | template
        return self

    def owner(self, **fields: Manifest) -> Self:
        """Add an owner: `object=`, `controller=` or `labelSelector=`, as in the API."""
        self.manifest["spec"]["owners"].append(fields)
        return self

    def for_labels(self, **labels: str) -> Self:
        """Add an owner: pods with these labels."""
        return self.owner(labelSelector={"matchLabels": labels})

    def for_pod(self, name: str, namespace: str = "default") -> Self:
        """Add an owner: the pod of that name."""
        return self.owner(object={"name": name, "namespace": namespace})

    def many(self) -> Self:
        """For as many pods as fit, one after the other or at once; without it the first pod takes all."""
        self.manifest["spec"]["allocateOnce"] = False
        return self

    def policy(self, policy: str) -> Self:
        """Allocate policy: `Aligned` or `Restricted`."""
        self.manifest["spec"]["allocatePolicy"] = policy
        return self

    def closed(self) -> Self:
        """Admit no new pods."""
        self.manifest["spec"]["unschedulable"] = True
        return self

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        self.manifest["spec"].setdefault("taints", []).append({"key": key, "value": value, "effect": effect})
        return self

    def ttl(self, duration: str) -> Self:
        """Lifetime as a Go duration; `0s`: unlimited."""
        self.manifest["spec"]["ttl"] = duration
        return self

    def order(self, number: int) -> Self:
        """Smaller order first."""
        return self.label(reservation_words.RESERVATION_ORDER, str(number))

    def within(self, namespace: str) -> Self:
        """Use the placement of a pod of that namespace."""
        self.manifest["spec"]["template"].setdefault("metadata", {})["namespace"] = namespace
        return self

    def select(self, labels: dict[str, str]) -> Self:
        """Only nodes with these labels."""
        self.manifest["spec"]["template"]["spec"].setdefault("nodeSelector", {}).update(labels)
        return self


def reservation(name: str) -> ReservationBuilder:
    """A builder of a Reservation."""
    return ReservationBuilder(name)


def pod(name: str) -> PodBuilder:
    """A builder of a pod with one container that prints its environment and devices."""
    return PodBuilder(name)


def pods(prefix: str, count: int) -> list[PodBuilder]:
    """`count` pods named `prefix`-0, `prefix`-1 and so on."""
    return [PodBuilder(f"{prefix}-{index}") for index in range(count)]


def node(name: str) -> NodeBuilder:
    """A builder of a node."""
    return NodeBuilder(name)


def nodes(prefix: str, count: int) -> list[NodeBuilder]:
    """`count` nodes named `prefix`-0, `prefix`-1 and so on."""
    return [NodeBuilder(f"{prefix}-{index}") for index in range(count)]


def quota(name: str) -> QuotaBuilder:
    """A builder of an ElasticQuota."""
    return QuotaBuilder(name)


def claim(name: str) -> ClaimBuilder:
    """A ResourceClaim."""
    return ClaimBuilder(name, template=False)


def claim_template(name: str) -> ClaimBuilder:
    """A ResourceClaimTemplate."""
    return ClaimBuilder(name, template=True)


def alternative(name: str, device_class: str, *selectors: str, **fields: Any) -> Manifest:
    """An alternative of `ClaimBuilder.asks_first`."""
    return {"name": name, **_device_request(device_class, selectors, fields)}


def gang(name: str, min_member: int) -> GangBuilder:
    """A builder of a PodGroup."""
    return GangBuilder(name, min_member)


def native_gang(name: str, min_count: int | None, **spec: object) -> Manifest:
    """A PodGroup of scheduling.k8s.io; without `min_count` its policy is basic."""
    policy = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def members(group: GangBuilder, count: int) -> list[PodBuilder]:
    """Pods that carry the label of `group`."""
    return [pod.label(extension.POD_GROUP_LABEL, group.name) for pod in pods(group.name, count)]


def priority_class(name: str, value: int, *, preempts: bool = True) -> Manifest:
    """A PriorityClass; `preempts`: its pods may preempt others."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
    }


def disruption_budget(name: str, labels: dict[str, str], *, min_available: int) -> Manifest:
    """A PodDisruptionBudget for the pods with these labels."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": labels}},
    }
