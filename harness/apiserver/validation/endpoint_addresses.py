"""Validation of Endpoints and EndpointSlices; follows `ValidateEndpoints` and `pkg/apis/discovery/validation`."""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from seatrial.harness.apiserver.field_errors import (
    Causes,
    duplicate,
    immutable,
    invalid,
    required,
    too_many,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, dns_label, subdomain
from seatrial.harness.apiserver.validation.containers import PORT_RANGE, PROTOCOLS

_TYPES = ("FQDN", "IPv4", "IPv6")
_MAX_ADDRESSES, _MAX_ENDPOINTS, _MAX_PORTS = 100, 1000, 20_000


def check_endpoints(obj: Object, causes: Causes) -> None:
    """Append what is invalid in Endpoints to `causes`."""
    for index, subset in enumerate(obj.get("subsets") or ()):
        own = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(required(own, "must specify `addresses` or `notReadyAddresses`"))
        for field in ("addresses", "notReadyAddresses"):
            for at, address in enumerate(subset.get(field) or ()):
                path, name = f"{own}.{field}[{at}]", address.get("hostname")
                _check_address(address.get("ip") or "", f"{path}.ip", causes)
                if name:
                    causes.extend(invalid(f"{path}.hostname", name, problem) for problem in dns_label(name))
        ports = subset.get("ports") or ()
        for at, port in enumerate(ports):
            path, name = f"{own}.ports[{at}]", port.get("name") or ""
            if not name and len(ports) > 1:
                causes.append(required(f"{path}.name"))
            elif name:
                causes.extend(invalid(f"{path}.name", name, problem) for problem in dns_label(name))
            number = port.get("port") or 0
            if not 1 <= number <= 65535:
                causes.append(invalid(f"{path}.port", number, PORT_RANGE))
            if port.get("protocol") not in PROTOCOLS:
                causes.append(unsupported(f"{path}.protocol", port.get("protocol") or "", PROTOCOLS))


def check_endpoint_slice(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in an EndpointSlice to `causes`; the address type of `old` may not change."""
    kind, endpoints, ports = obj.get("addressType") or "", obj.get("endpoints") or (), obj.get("ports") or ()
    if not kind:
        causes.append(required("addressType"))
    elif kind not in _TYPES:
        causes.append(unsupported("addressType", kind, _TYPES))
    if old is not None:
        causes.extend(immutable("addressType", kind, old.get("addressType")))
    if len(endpoints) > _MAX_ENDPOINTS:
        causes.append(too_many("endpoints", len(endpoints), _MAX_ENDPOINTS))
    elif kind in _TYPES:
        for index, endpoint in enumerate(endpoints):
            _check_endpoint(endpoint, kind, f"endpoints[{index}]", causes)
    names: set[str] = set()
    if len(ports) > _MAX_PORTS:
        causes.append(too_many("ports", len(ports), _MAX_PORTS))
        return
    for index, port in enumerate(ports):
        own, name = f"ports[{index}]", port.get("name") or ""
        if name:
            causes.extend(invalid(f"{own}.name", name, problem) for problem in dns_label(name))
        if name in names:
            causes.append(duplicate(f"{own}.name", name))
        names.add(name)
        if port.get("protocol") not in PROTOCOLS:
            causes.append(unsupported(f"{own}.protocol", port.get("protocol") or "", PROTOCOLS))


def _check_endpoint(endpoint: Object, kind: str, path: str, causes: Causes) -> None:
    addresses, name = endpoint.get("addresses") or (), endpoint.get("hostname")
    if not addresses:
        causes.append(required(f"{path}.addresses", "must contain at least 1 address"))
    elif len(addresses) > _MAX_ADDRESSES:
        causes.append(too_many(f"{path}.addresses", len(addresses), _MAX_ADDRESSES))
    for index, address in enumerate(addresses):
        own = f"{path}.addresses[{index}]"
        if kind == "FQDN":
            causes.extend(invalid(own, address, problem) for problem in subdomain(address))
            continue
        parsed = _parsed(address)
        if parsed is None:
            causes.append(invalid(own, address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
            continue
        if f"IPv{parsed.version}" != kind:
            causes.append(invalid(f"{path}.addresses", address, f"must be an {kind} address"))
        _check_special(parsed, address, own, causes)
    if name is not None:
        causes.extend(invalid(f"{path}.hostname", name, problem) for problem in dns_label(name))


def _check_address(text: str, path: str, causes: Causes) -> None:
    parsed = _parsed(text)
    if parsed is None:
        causes.append(invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))
    else:
        _check_special(parsed, text, path, causes)


def _parsed(text: Any) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _check_special(address: IPv4Address | IPv6Address, text: str, path: str, causes: Causes) -> None:
    """Refuse addresses that no other machine can reach. Loopback is allowed: webhooks and pods run on this machine."""
    if address.is_unspecified:
        causes.append(invalid(path, text, "may not be unspecified (0.0.0.0 or ::)"))
    if address.is_link_local:
        causes.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if address.is_multicast and (address.packed[:3] == b"\xe0\x00\x00" or address.packed[:2] == b"\xff\x02"):
        problem = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        causes.append(invalid(path, text, problem))
