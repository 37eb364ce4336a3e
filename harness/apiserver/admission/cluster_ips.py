"""Allocation of cluster IPs and node ports to Services, from creation until deletion.

Follows `pkg/registry/core/service`, but allocates in ascending order, not at random, so that runs are reproducible.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from itertools import chain
from typing import Any

from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.errors import invalid as invalid_object
from seatrial.harness.apiserver.field_errors import Cause, details, invalid, message
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Object, Store

SERVICES: CollectionKey = ("", "services")
ADDRESSES: CollectionKey = ("networking.k8s.io", "ipaddresses")
CIDRS: CollectionKey = ("networking.k8s.io", "servicecidrs")
RANGE = IPv4Network("10.96.0.0/12")
NODE_PORTS = range(30000, 32768)
_FIRST_DYNAMIC_PORT = 30086  # lower ports are for explicit requests
_WITH_PORTS = frozenset({"NodePort", "LoadBalancer"})
HEADLESS = "None"


class ClusterIps:
    """Admission hook for Services; follows the store to track allocated addresses and ports.

    Addresses of ServiceCIDRs that are ready are used when those of the first range are all taken.
    """

    def __init__(self, store: Store, first: IPv4Network = RANGE) -> None:
        self._addresses: dict[str, tuple[str, str]] = {}  # address → Service
        self._objects = store.collection(ADDRESSES)  # IPAddresses: of Services, and those that users create
        self._ports: dict[tuple[int, str], tuple[str, str]] = {}  # (node port, protocol) → Service
        self._ranges: dict[IPv4Network, int] = {first: _reserved(first)}  # range → the offset to begin with
        self._first = first
        self._cidrs = store.collection(CIDRS)
        store.collection(SERVICES).listen(self._changed)
        self._cidrs.listen(self._range_changed)

    def __call__(self, resource: Resource, body: Object, old: Object | None, subresource: str) -> None:
        """Allocate addresses and ports for `body`, in place.

        Raises:
            ApiStatusError: a requested address or port is not available, or the range is full.
        """
        if resource.key != SERVICES or subresource or not isinstance(body.get("spec"), dict):
            return
        spec, before = body["spec"], (old or {}).get("spec") or {}
        if spec.get("type") == "ExternalName":
            for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
                if not spec.get(field) or spec[field] == before.get(field):
                    spec.pop(field, None)
            return
        causes: list[Cause] = []
        self._address(body, before, causes)
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if spec.get("type") in _WITH_PORTS and spec.get("allocateLoadBalancerNodePorts") is not False:
            self._node_ports(body, before, causes)
        elif before.get("type") in _WITH_PORTS:
            _drop_ports(spec, before)
        if causes:
            name = str(body["metadata"].get("name", ""))
            raise invalid_object("Service", "", name, message("Service", name, causes), details(causes))

    # -- addresses -----------------------------------------------------------------------------------------------------

    def _address(self, body: Object, before: Object, causes: list[Cause]) -> None:
        spec = body["spec"]
        requested = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
        if not requested and before.get("clusterIP") and before.get("type") != "ExternalName":
            requested = before["clusterIP"]  # an update without clusterIP keeps it
        if not requested:
            requested = self._free_address()
        elif requested != HEADLESS and (not before.get("clusterIP") or before.get("type") == "ExternalName"):
            # A changed address is refused by validation, whether or not it is free.
            problem = self._address_problem(
                requested, (body["metadata"].get("namespace", ""), body["metadata"].get("name", ""))
            )
            if problem:
                causes.append(invalid("spec.clusterIPs", [requested], f"failed to allocate IP {requested}: {problem}"))
        spec["clusterIP"], spec["clusterIPs"] = requested, [requested]

    def _address_problem(self, address: str, service: tuple[str, str]) -> str:
        try:
            parsed = ip_address(address)
        except ValueError:
            return "not a valid IP"
        if not isinstance(parsed, IPv4Address) or not any(parsed in network for network in self._ranges):
            valid = ", ".join(map(str, self._ranges))
            return f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {valid}"
        holder = self._addresses.get(address)
        taken = holder is not None and holder != service
        return "provided IP is already allocated" if taken or self._is_reserved(address, service) else ""

    def _is_reserved(self, address: str, service: tuple[str, str]) -> bool:
        """Whether the IPAddress of another parent than this Service exists."""
        item = self._objects.get(("", address))
        if item is None:
            return False
        parent = item.obj["spec"]["parentRef"]
        return (parent.get("resource"), parent.get("namespace"), parent.get("name")) != ("services", *service)

    def _free_address(self) -> str:
        """The next free address of the dynamic part of a range, else of its rest, else of another range.

        Raises:
            ApiStatusError: all ranges are full.
        """
        for network, begin in self._ranges.items():
            dynamic, end = _reserved(network), network.num_addresses - 1  # the last one is for broadcasts
            for offset in chain(range(begin, end), range(dynamic, begin), range(1, dynamic)):
                address = str(network[offset])
                if address not in self._addresses and self._objects.get(("", address)) is None:
                    self._ranges[network] = max(offset, dynamic)
                    return address
        raise ApiStatusError(500, "InternalError", "failed to allocate a serviceIP: range is full")

    # -- ports ---------------------------------------------------------------------------------------------------------

    def _node_ports(self, body: Object, before: Object, causes: list[Cause]) -> None:
        service = (body["metadata"].get("namespace", ""), body["metadata"].get("name", ""))
        kept = {_port_key(entry): entry.get("nodePort") for entry in before.get("ports") or ()}
        mine: set[tuple[int, str]] = set()
        for number, port in enumerate(body["spec"].get("ports") or ()):
            protocol = port.get("protocol", "TCP")
            requested = port.get("nodePort") or kept.get(_port_key(port))
            if not requested:
                requested = self._free_port(protocol, mine)
            else:
                problem = self._port_problem(requested, protocol, service)
                if problem:
                    causes.append(invalid(f"spec.ports[{number}].nodePort", requested, problem))
            port["nodePort"] = requested
            mine.add((requested, protocol))

    def _port_problem(self, port: Any, protocol: str, service: tuple[str, str]) -> str:
        if port not in NODE_PORTS:
            return (
                f"provided port is not in the valid range. The range of valid ports is {NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            )
        holder = self._ports.get((port, protocol))
        return "provided port is already allocated" if holder is not None and holder != service else ""

    def _free_port(self, protocol: str, mine: set[tuple[int, str]]) -> int:
        """A free port; `mine` are the ports already chosen for this Service.

        Raises:
            ApiStatusError: the range is full.
        """
        for port in (*range(_FIRST_DYNAMIC_PORT, NODE_PORTS.stop), *range(NODE_PORTS.start, _FIRST_DYNAMIC_PORT)):
            if (port, protocol) not in self._ports and (port, protocol) not in mine:
                return port
        raise ApiStatusError(500, "InternalError", "failed to allocate a nodePort: range is full")

    # -- ranges --------------------------------------------------------------------------------------------------------

    def _range_changed(self, _: Change) -> None:
        ready = [network for item in self._cidrs.each() if _is_ready(item.obj) for network in networks_of(item.obj)]
        further = (network for network in ready if isinstance(network, IPv4Network))
        self._ranges = {
            network: self._ranges.get(network, _reserved(network)) for network in dict.fromkeys((self._first, *further))
        }

    # -- what is taken -------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        if change.old is not None:
            for address in _addresses_of(change.old.obj):
                self._addresses.pop(address, None)
            for port in _ports_of(change.old.obj):
                self._ports.pop(port, None)
        if change.new is not None:
            self._addresses.update(dict.fromkeys(_addresses_of(change.new.obj), change.key))
            self._ports.update(dict.fromkeys(_ports_of(change.new.obj), change.key))


def networks_of(cidr: Object) -> list[IPv4Network | IPv6Network]:
    """The ranges of a ServiceCIDR."""
    return [ip_network(text) for text in cidr["spec"].get("cidrs") or ()]


def _is_ready(cidr: Object) -> bool:
    conditions = (cidr.get("status") or {}).get("conditions") or ()
    ready = any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
    return ready and "deletionTimestamp" not in cidr["metadata"]


def _reserved(network: IPv4Network) -> int:
    """The number of addresses at the beginning that are for explicit requests first (`calculateRangeOffset`)."""
    size = network.num_addresses
    return 1 if size < 16 else max(16, min(size // 16, 256))


def _addresses_of(service: Object) -> Iterable[str]:
    address = service["spec"].get("clusterIP")
    return (address,) if address and address != HEADLESS else ()


def _ports_of(service: Object) -> list[tuple[int, str]]:
    ports = service["spec"].get("ports") or ()
    return [(port["nodePort"], port.get("protocol", "TCP")) for port in ports if port.get("nodePort")]


def _port_key(port: Object) -> tuple[Any, str]:
    return port.get("port"), port.get("protocol", "TCP")


def _drop_ports(spec: Object, before: Object) -> None:
    """Remove node ports that were kept from before, when the type no longer has node ports.

    The entries may be those of the stored Service, so they are replaced, not changed.
    """
    former = {_port_key(entry): entry.get("nodePort") for entry in before.get("ports") or ()}
    spec["ports"] = [
        {name: field for name, field in port.items() if name != "nodePort"}
        if port.get("nodePort") == former.get(_port_key(port))
        else port
        for port in spec.get("ports") or ()
    ]
