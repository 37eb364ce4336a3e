"""The Endpoints and EndpointSlice controllers: publish the addresses of the pods that a Service selects.

Follows `pkg/controller/{endpoint,endpointslice}`. In a namespace without Services, a pod change costs one dict lookup.
"""

from typing import Any

from seatrial.harness.apiserver.controllers.control import BATCH_PERIOD, PODS, Control
from seatrial.harness.apiserver.controllers.owners import Dependents, reference_to
from seatrial.harness.apiserver.controllers.podstate import is_finished, is_ready, is_terminating
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, Options
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.scheduler.api.integers import integer

SERVICES: CollectionKey = ("", "services")
ENDPOINTS: CollectionKey = ("", "endpoints")
SLICES: CollectionKey = ("discovery.k8s.io", "endpointslices")
NODES: CollectionKey = ("", "nodes")
SERVICE_LABEL, MANAGED_BY = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"
SLICE_MANAGER = "endpointslice-controller.k8s.io"
HEADLESS_LABEL = "service.kubernetes.io/headless"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MAX_PER_ENDPOINTS, MAX_PER_SLICE = 1000, 100  # addresses; upstream's limits
ZONE = "topology.kubernetes.io/zone"


class Endpoints:
    """Reconciles the Endpoints and EndpointSlices of Services."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._services = control.resource(SERVICES)
        self._endpoints = control.resource(ENDPOINTS)
        self._slices = control.resource(SLICES)
        self._owned = Dependents(control.objects, SLICES)
        self._selectors: dict[str, dict[str, dict[str, str]]] = {}  # namespace → Service → labels
        self._queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync)
        control.objects.store.collection(SERVICES).listen(self._service_changed)
        control.objects.store.collection(PODS).listen(self._pod_changed)
        self._owned.follow(self._services, self._slice_changed)

    def _service_changed(self, change: Change) -> None:
        namespace, name = change.key
        selector = (change.new.obj["spec"].get("selector") or {}) if change.new is not None else {}
        names = self._selectors.get(namespace, {})
        if selector:
            self._selectors.setdefault(namespace, names)[name] = selector
        elif names.pop(name, None) is not None and not names:
            del self._selectors[namespace]
        self._queue.add(change.key)

    def _pod_changed(self, change: Change) -> None:
        names = self._selectors.get(change.key[0])
        if names is None:
            return
        old, new = change.old, change.new
        if old is not None and new is not None and _relevant_fields(old.obj) == _relevant_fields(new.obj):
            return
        before = (old.obj["metadata"].get("labels") or {}) if old is not None else {}
        after = (new.obj["metadata"].get("labels") or {}) if new is not None else {}
        for name, selector in names.items():
            if _selects(selector, before) or _selects(selector, after):
                self._queue.add_after(BATCH_PERIOD, (change.key[0], name))

    def _slice_changed(self, key: Key, change: Change) -> None:
        if change.new is None:  # recreate a slice that was deleted
            self._queue.add(key)

    # -- reconciliation ------------------------------------------------------------------------------------------------

    def _sync(self, key: Key) -> None:
        service = self._control.get(self._services, key)
        if service is None:
            left = self._control.get(self._endpoints, key)
            if left is not None:
                self._control.delete(self._endpoints, left)
            return
        selector = service.obj["spec"].get("selector")
        if not selector or service.obj["spec"].get("type") == "ExternalName" or is_terminating(service.obj):
            return  # without a selector, the Service's author writes its endpoints
        pods = [
            pod
            for pod in self._control.objects.store.collection(PODS).items(key[0])
            if _selects(selector, pod.obj["metadata"].get("labels") or {}) and _has_address(pod.obj)
        ]
        try:
            self._write_endpoints(service, pods)
            self._write_slices(service, pods)
            self._queue.forget(key)
        except ApiStatusError as refused:
            if refused.code != 404:
                self._queue.add_rate_limited(key)

    def _write_endpoints(self, service: Item, pods: list[Item]) -> None:
        body = _endpoints_of(service, [pod for pod in pods if not is_terminating(pod.obj)])
        item = self._control.get(self._endpoints, service.key)
        if item is None:
            self._control.objects.create(self._endpoints, service.key[0], body, Options(manager=CONTROLLER_MANAGER))
        elif (
            item.obj.get("subsets", []) != body["subsets"]
            or (item.obj["metadata"].get("labels") or {}) != body["metadata"]["labels"]
        ):
            metadata = {**item.obj["metadata"], "labels": body["metadata"]["labels"]}
            metadata["annotations"] = {**(metadata.get("annotations") or {})}
            metadata["annotations"].pop(OVER_CAPACITY, None)
            metadata["annotations"].update(body["metadata"].get("annotations") or {})
            if not metadata["annotations"]:
                del metadata["annotations"]
            written = {**item.obj, "metadata": metadata, "subsets": body["subsets"]}
            self._control.objects.store_change(ENDPOINTS, item, written)

    def _write_slices(self, service: Item, pods: list[Item]) -> None:
        targets: list[tuple[list[Object], list[Object]]] = []  # ports, endpoints
        for ports, members in _by_ports(service, pods):
            entries = [self._entry(service, pod) for pod in members]
            targets.extend(
                (ports, entries[start : start + MAX_PER_SLICE]) for start in range(0, len(entries), MAX_PER_SLICE)
            )
        targets = targets or [(_service_ports(service, None), [])]
        have = sorted(
            (slice_ for slice_ in self._owned.of(service.obj["metadata"]["uid"]) if not is_terminating(slice_.obj)),
            key=lambda slice_: slice_.key[1],
        )
        labels = _slice_labels(service)
        for number, (ports, entries) in enumerate(targets):
            if number < len(have):
                old = have[number]
                same = old.obj.get("ports") == ports and old.obj.get("endpoints") == entries
                if not same or old.obj["metadata"].get("labels") != labels:
                    metadata = {
                        **old.obj["metadata"],
                        "labels": labels,
                        "generation": old.obj["metadata"].get("generation", 0) + 1,
                    }
                    written = {**old.obj, "metadata": metadata, "ports": ports, "endpoints": entries}
                    self._control.objects.store_change(SLICES, old, written)
                continue
            body: Object = {
                "metadata": {
                    "generateName": f"{service.key[1]}-",
                    "labels": labels,
                    "ownerReferences": [reference_to(self._services, service.obj)],
                },
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": entries,
            }
            self._control.objects.create(
                self._slices, service.key[0], self._control.copied(body), Options(manager=CONTROLLER_MANAGER)
            )
        for old in have[len(targets) :]:
            self._control.delete(self._slices, old)

    def _entry(self, service: Item, pod: Item) -> Object:
        ready = is_ready(pod.obj) or bool(service.obj["spec"].get("publishNotReadyAddresses"))
        terminating = is_terminating(pod.obj)
        entry: Object = {
            "addresses": [pod.obj["status"]["podIP"]],
            "conditions": {
                "ready": ready and not terminating,
                "serving": is_ready(pod.obj),
                "terminating": terminating,
            },
            "targetRef": _target(pod),
        }
        node = pod.obj["spec"].get("nodeName")
        if node:
            entry["nodeName"] = node
            node_item = self._control.objects.store.collection(NODES).get(("", node))
            zone = (node_item.obj["metadata"].get("labels") or {}).get(ZONE) if node_item is not None else None
            if zone:
                entry["zone"] = zone
        if _hostname(service, pod):
            entry["hostname"] = _hostname(service, pod)
        return entry


def _relevant_fields(pod: Object) -> tuple[Any, ...]:
    """The fields of a pod that affect endpoints."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    return (
        status.get("podIP"),
        status.get("phase"),
        is_ready(pod),
        metadata.get("labels"),
        "deletionTimestamp" in metadata,
        pod["spec"].get("nodeName"),
    )


def _selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in selector.items())


def _has_address(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("podIP")) and not is_finished(pod)


def _hostname(service: Item, pod: Item) -> str:
    spec = pod.obj["spec"]
    return str(spec.get("hostname") or "") if spec.get("subdomain") == service.key[1] else ""


def _target(pod: Item) -> Object:
    return {"kind": "Pod", "namespace": pod.key[0], "name": pod.key[1], "uid": pod.obj["metadata"]["uid"]}


def _is_headless(service: Item) -> bool:
    return bool(service.obj["spec"].get("clusterIP") == "None")


def _slice_labels(service: Item) -> dict[str, str]:
    own: dict[str, str] = service.obj["metadata"].get("labels") or {}
    labels = {**own, SERVICE_LABEL: service.key[1], MANAGED_BY: SLICE_MANAGER}
    if _is_headless(service):
        labels[HEADLESS_LABEL] = ""
    return labels


def _service_ports(service: Item, pod: Item | None) -> list[Object]:
    """The Service's ports resolved to numbers of this pod; a named port that the pod lacks is omitted."""
    entries = []
    for port in service.obj["spec"].get("ports") or ():
        target = port.get("targetPort", port.get("port"))
        number = target if isinstance(target, int) else integer(target)
        if number is None and pod is not None:
            number = _named_port(pod, target, port.get("protocol", "TCP"))
        if number is None:
            continue
        entry: Object = {"name": port.get("name", ""), "port": number, "protocol": port.get("protocol", "TCP")}
        if port.get("appProtocol"):
            entry["appProtocol"] = port["appProtocol"]
        entries.append(entry)
    return entries


def _named_port(pod: Item, name: str, protocol: str) -> int | None:
    for container in pod.obj["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == name and port.get("protocol", "TCP") == protocol:
                return int(port["containerPort"])
    return None


def _by_ports(service: Item, pods: list[Item]) -> list[tuple[list[Object], list[Item]]]:
    """Pods grouped by their resolved port numbers."""
    groups: dict[str, tuple[list[Object], list[Item]]] = {}
    for pod in pods:
        ports = _service_ports(service, pod)
        groups.setdefault(repr(ports), (ports, []))[1].append(pod)
    return list(groups.values())


def _endpoints_of(service: Item, pods: list[Item]) -> Object:
    subsets: list[Object] = []
    room, truncated = MAX_PER_ENDPOINTS, False
    for ports, members in _by_ports(service, pods):
        if not ports and not _is_headless(service):
            continue
        subset: Object = {}
        for name, ready in (("addresses", True), ("notReadyAddresses", False)):
            listed = [pod for pod in members if _counts_as_ready(service, pod) is ready]
            truncated = truncated or len(listed) > room
            listed = listed[:room]
            room -= len(listed)
            if listed:
                subset[name] = [_address(service, pod) for pod in listed]
        if subset:
            named = [{key: value for key, value in port.items() if key != "name" or value} for port in ports]
            subsets.append({**subset, "ports": named} if named else subset)
    labels: dict[str, str] = {**(service.obj["metadata"].get("labels") or {})}
    labels["endpoints.kubernetes.io/managed-by"] = "endpoint-controller"
    if _is_headless(service):
        labels[HEADLESS_LABEL] = ""
    metadata: Object = {"name": service.key[1], "labels": labels}
    if truncated:
        metadata["annotations"] = {OVER_CAPACITY: "truncated"}
    return {"metadata": metadata, "subsets": subsets}


def _counts_as_ready(service: Item, pod: Item) -> bool:
    return is_ready(pod.obj) or bool(service.obj["spec"].get("publishNotReadyAddresses"))


def _address(service: Item, pod: Item) -> Object:
    address: Object = {"ip": pod.obj["status"]["podIP"]}
    if pod.obj["spec"].get("nodeName"):
        address["nodeName"] = pod.obj["spec"]["nodeName"]
    if _hostname(service, pod):
        address["hostname"] = _hostname(service, pod)
    address["targetRef"] = _target(pod)
    return address
