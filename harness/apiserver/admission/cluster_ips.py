"""Addresses and node ports of Services, given out on creation and kept until the Service goes.

Follows `pkg/registry/core/service`, but takes addresses in ascending order, not by chance, so that a run repeats.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, ip_address
from typing import Any

from harness.apiserver.discovery.resources import Resource
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.errors import invalid as invalid_object
from harness.apiserver.field_errors import Cause, invalid, message
from harness.apiserver.storage.store import Change, CollectionKey, Object, Store

SERVICES: CollectionKey = ("", "services")
RANGE = IPv4Network("10.96.0.0/12")
NODE_PORTS = range(30000, 32768)
_FIRST_GIVEN = 256  # the lower addresses are for those who ask for one by name
_FIRST_PORT = 30086  # and so are the lower ports
_WITH_PORTS = frozenset({"NodePort", "LoadBalancer"})
HEADLESS = "None"


class ClusterIps:
    """An admission hook for Services; knows what is taken from the store itself."""

    def __init__(self, store: Store) -> None:
        self._addresses: dict[str, tuple[str, str]] = {}  # address → whose
        self._ports: dict[tuple[int, str], tuple[str, str]] = {}  # node port and protocol → whose
        self._next = _FIRST_GIVEN
        store.collection(SERVICES).listen(self._changed)

    def __call__(self, resource: Resource, body: Object, old: Object | None, subresource: str) -> None:
        """
        Raises:
            ApiStatusError: an address or port is asked for that cannot be had, or none is left.
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
            _forget_ports(spec, before)
        if causes:
            name = str(body["metadata"].get("name", ""))
            said = [{"reason": one.reason, "message": one.message, "field": one.field} for one in causes]
            raise invalid_object("Service", "", name, message("Service", name, causes), said)

    # -- addresses ----------------------------------------------------------------------------------------------------

    def _address(self, body: Object, before: Object, causes: list[Cause]) -> None:
        spec = body["spec"]
        asked = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
        if not asked and before.get("clusterIP") and before.get("type") != "ExternalName":
            asked = before["clusterIP"]  # a client that replaces the whole need not know it
        if not asked:
            asked = self._free_address()
        elif asked not in {HEADLESS, before.get("clusterIP")}:
            problem = self._why_not(asked, (body["metadata"].get("namespace", ""), body["metadata"].get("name", "")))
            if problem:
                causes.append(invalid("spec.clusterIPs", [asked], f"failed to allocate IP {asked}: {problem}"))
        spec["clusterIP"], spec["clusterIPs"] = asked, [asked]

    def _why_not(self, address: str, asks: tuple[str, str]) -> str:
        try:
            parsed = ip_address(address)
        except ValueError:
            return "not a valid IP"
        if not isinstance(parsed, IPv4Address) or parsed not in RANGE:
            return f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {RANGE}"
        holder = self._addresses.get(address)
        return "provided IP is already allocated" if holder is not None and holder != asks else ""

    def _free_address(self) -> str:
        """
        Raises:
            ApiStatusError: every address is taken.
        """
        size = RANGE.num_addresses - 1
        for step in range(size):
            offset = _FIRST_GIVEN + (self._next - _FIRST_GIVEN + step) % (size - _FIRST_GIVEN)
            address = str(RANGE[offset])
            if address not in self._addresses:
                self._next = offset
                return address
        raise ApiStatusError(500, "InternalError", "failed to allocate a serviceIP: range is full")

    # -- ports --------------------------------------------------------------------------------------------------------

    def _node_ports(self, body: Object, before: Object, causes: list[Cause]) -> None:
        asks = (body["metadata"].get("namespace", ""), body["metadata"].get("name", ""))
        kept = {_port_key(one): one.get("nodePort") for one in before.get("ports") or ()}
        mine: set[tuple[int, str]] = set()
        for number, port in enumerate(body["spec"].get("ports") or ()):
            protocol = port.get("protocol", "TCP")
            asked = port.get("nodePort") or kept.get(_port_key(port))
            if not asked:
                asked = self._free_port(protocol, mine)
            else:
                problem = self._why_no_port(asked, protocol, asks)
                if problem:
                    causes.append(invalid(f"spec.ports[{number}].nodePort", asked, problem))
            port["nodePort"] = asked
            mine.add((asked, protocol))

    def _why_no_port(self, port: Any, protocol: str, asks: tuple[str, str]) -> str:
        if port not in NODE_PORTS:
            return (
                f"provided port is not in the valid range. The range of valid ports is {NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            )
        holder = self._ports.get((port, protocol))
        return "provided port is already allocated" if holder is not None and holder != asks else ""

    def _free_port(self, protocol: str, mine: set[tuple[int, str]]) -> int:
        """
        Raises:
            ApiStatusError: every port is taken.
        """
        for port in (*range(_FIRST_PORT, NODE_PORTS.stop), *range(NODE_PORTS.start, _FIRST_PORT)):
            if (port, protocol) not in self._ports and (port, protocol) not in mine:
                return port
        raise ApiStatusError(500, "InternalError", "failed to allocate a nodePort: range is full")

    # -- what is taken ------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        if change.old is not None:
            for address in _addresses_of(change.old.obj):
                self._addresses.pop(address, None)
            for port in _ports_of(change.old.obj):
                self._ports.pop(port, None)
        if change.new is not None:
            self._addresses.update(dict.fromkeys(_addresses_of(change.new.obj), change.key))
            self._ports.update(dict.fromkeys(_ports_of(change.new.obj), change.key))


def _addresses_of(service: Object) -> Iterable[str]:
    address = service["spec"].get("clusterIP")
    return (address,) if address and address != HEADLESS else ()


def _ports_of(service: Object) -> list[tuple[int, str]]:
    ports = service["spec"].get("ports") or ()
    return [(one["nodePort"], one.get("protocol", "TCP")) for one in ports if one.get("nodePort")]


def _port_key(port: Object) -> tuple[Any, str]:
    return port.get("port"), port.get("protocol", "TCP")


def _forget_ports(spec: Object, before: Object) -> None:
    """A Service that is reachable from inside alone again keeps no port that it did not ask for anew."""
    former = {_port_key(one): one.get("nodePort") for one in before.get("ports") or ()}
    for port in spec.get("ports") or ():
        if port.get("nodePort") == former.get(_port_key(port)):
            port.pop("nodePort", None)
