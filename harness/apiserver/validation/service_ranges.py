"""Validation of IPAddresses and ServiceCIDRs; follows `pkg/apis/networking/validation`."""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from seatrial.harness.apiserver.field_errors import Causes, immutable, invalid, required
from seatrial.harness.apiserver.names import Object, path_segment, subdomain

_MAX_CIDRS = 2
_FIELD_IMMUTABLE = "field is immutable"


def address_name(name: str) -> tuple[str, ...]:
    """The rule for names of IPAddresses: an address in canonical form."""
    try:
        canonical = str(ip_address(name))
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    return () if canonical == name else (f'must be in canonical form ("{canonical}")',)


def check_address(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in an IPAddress to `causes`; the reference of `old` may not change."""
    parent = (obj.get("spec") or {}).get("parentRef")
    if old is not None:
        before = (old.get("spec") or {}).get("parentRef")
        causes.extend(immutable("spec.parentRef", parent, before))
        return
    if parent is None:
        causes.append(required("spec.parentRef"))
        return
    if parent.get("group"):
        causes.extend(invalid("spec.parentRef.group", parent["group"], rule) for rule in subdomain(parent["group"]))
    for field in ("resource", "name"):
        if not parent.get(field):
            causes.append(required(f"spec.parentRef.{field}"))
    for field in ("resource", "name", "namespace"):
        value = parent.get(field)
        if value:
            causes.extend(invalid(f"spec.parentRef.{field}", value, rule) for rule in path_segment(value))


def check_service_range(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a ServiceCIDR to `causes`; `old` is the stored object of an update."""
    cidrs = (obj.get("spec") or {}).get("cidrs") or []
    before = ((old or {}).get("spec") or {}).get("cidrs") or []
    if old is None:
        _check_cidrs(cidrs, causes)
    elif len(cidrs) == len(before) or (len(before), len(cidrs)) == (1, _MAX_CIDRS):
        for index, (cidr, was) in enumerate(zip(cidrs, before, strict=False)):
            if cidr != was:
                causes.append(invalid(f"spec.cidrs[{index}]", cidr, _FIELD_IMMUTABLE))
        if len(cidrs) > len(before):
            _check_cidrs(cidrs, causes)
    else:
        causes.append(invalid("spec.cidrs", cidrs, _FIELD_IMMUTABLE))


def _check_cidrs(cidrs: list[str], causes: Causes) -> None:
    if not cidrs:
        causes.append(required("spec.cidrs", "at least one CIDR required"))
        return
    if len(cidrs) > _MAX_CIDRS:
        causes.append(invalid("spec.cidrs", {"cidrs": cidrs}, "may only hold up to 2 values"))
        return
    versions = [_check_cidr(cidr, f"spec.cidrs[{index}]", causes) for index, cidr in enumerate(cidrs)]
    if len(versions) == _MAX_CIDRS and versions[0] and versions[0] == versions[1]:
        problem = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        causes.append(invalid("spec.cidrs", cidrs, problem))


def _check_cidr(cidr: str, path: str, causes: Causes) -> int:
    """Check one range; return its IP version, 0 if it is malformed."""
    try:
        if "/" not in cidr:
            raise ValueError
        network: IPv4Network | IPv6Network = ip_network(cidr, strict=False)
    except ValueError:
        causes.append(invalid(path, cidr, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))
        return 0
    if str(network) != cidr:
        causes.append(invalid(path, cidr, f'must be in canonical form ("{network}")'))
    return network.version
