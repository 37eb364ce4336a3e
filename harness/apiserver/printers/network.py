"""Printers of Services, Endpoints, and the kinds of discovery.k8s.io and networking.k8s.io."""

from collections.abc import Iterable

from seatrial.harness.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    SELECTOR,
    UNSET,
    Cells,
    Object,
    Printer,
    age_of,
    labels,
    name_of,
    part,
    selector,
    text,
    truncated_list,
)
from seatrial.harness.apiserver.printers.durations import UNKNOWN


def _balancer(status: Object) -> list[str]:
    """The load balancer's distinct addresses or host names, sorted."""
    points = part(status, "loadBalancer").get("ingress") or ()
    return sorted({point.get("ip") or point.get("hostname") or "" for point in points} - {""})


def _external(service: Object) -> str:
    spec = part(service, "spec")
    kind, external = spec.get("type", "ClusterIP"), list(spec.get("externalIPs") or ())
    if kind == "ExternalName":
        return spec.get("externalName", "")
    if kind == "LoadBalancer":
        return ",".join([*_balancer(part(service, "status")), *external]) or "<pending>"
    return ",".join(external) or NONE if kind in {"ClusterIP", "NodePort"} else UNKNOWN


def _port(port: Object) -> str:
    node_port = port.get("nodePort")
    number = f"{port.get('port')}:{node_port}" if node_port else str(port.get("port"))
    return f"{number}/{port.get('protocol', 'TCP')}"


def _service(service: Object, now: float) -> Cells:
    spec = part(service, "spec")
    own = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return [
        name_of(service),
        spec.get("type", "ClusterIP"),
        own[0] or NONE,
        _external(service),
        ",".join(_port(port) for port in spec.get("ports") or ()) or NONE,
        age_of(service, now),
        labels(spec.get("selector")),
    ]


SERVICES = Printer(
    (
        NAME,
        text("Type", "How the service can be reached."),
        text("Cluster-IP", "The service's address inside the cluster."),
        text("External-IP", "The service's addresses outside the cluster."),
        text("Port(s)", "The ports, with their node ports and protocols."),
        AGE,
        SELECTOR,
    ),
    _service,
)


def _host_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _addresses(subsets: Iterable[Object]) -> list[str]:
    addresses: list[str] = []
    for subset in subsets:
        ips, ports = [address.get("ip") or "" for address in subset.get("addresses") or ()], subset.get("ports")
        # A headless service may have no ports at all.
        addresses += [_host_port(ip, port.get("port") or 0) for port in ports for ip in ips] if ports else ips
    return addresses


def _endpoints(obj: Object, now: float) -> Cells:
    subsets = obj.get("subsets") or ()
    # Upstream shows an empty cell if there are subsets but no ready address.
    return [name_of(obj), truncated_list(_addresses(subsets), 3, empty="" if subsets else NONE), age_of(obj, now)]


ENDPOINTS = Printer((NAME, text("Endpoints", "The ready addresses with their ports."), AGE), _endpoints)


def _slice(obj: Object, now: float) -> Cells:
    ports = []
    for port in obj.get("ports") or ():
        number, name = port.get("port"), port.get("name")
        ports.append(str(number) if number is not None else "*" if name is None else name)
    addresses = [ip for endpoint in obj.get("endpoints") or () for ip in endpoint.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType", ""),
        truncated_list(ports, 3, empty=UNSET),
        truncated_list(addresses, 3, empty=UNSET),
        age_of(obj, now),
    ]


ENDPOINT_SLICES = Printer(
    (
        NAME,
        text("AddressType", "The family of the addresses."),
        text("Ports", "The ports that every endpoint offers."),
        text("Endpoints", "The endpoints' addresses."),
        AGE,
    ),
    _slice,
)


def _hosts(rules: list[Object]) -> str:
    """The first three hosts; as upstream, the number of further entries counts rules, not hosts."""
    named = [(i, rule["host"]) for i, rule in enumerate(rules) if rule.get("host")]
    if not named:
        return "*"
    shown = ",".join(host for _, host in named[:3])
    more = len(named) >= 3 and named[2][0] < len(rules) - 1
    return f"{shown} + {len(rules) - 3} more..." if more else shown


def _ingress(obj: Object, now: float) -> Cells:
    spec = part(obj, "spec")
    return [
        name_of(obj),
        spec.get("ingressClassName") or NONE,
        _hosts(list(spec.get("rules") or ())),
        ",".join(_balancer(part(obj, "status"))),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, now),
    ]


INGRESSES = Printer(
    (
        NAME,
        text("Class", "The ingress class that serves it."),
        text("Hosts", "The hosts that requests are matched against."),
        text("Address", "The load balancer's addresses."),
        text("Ports", "The ports that it opens."),
        AGE,
    ),
    _ingress,
)


def _ingress_class(obj: Object, now: float) -> Cells:
    spec, shown = part(obj, "spec"), NONE
    if parameters := spec.get("parameters"):
        group = parameters.get("apiGroup")
        kind = parameters.get("kind", "")
        shown = f"{kind}{'' if group is None else '.' + group}/{parameters.get('name', '')}"
    return [name_of(obj), spec.get("controller", ""), shown, age_of(obj, now)]


INGRESS_CLASSES = Printer(
    (
        NAME,
        text("Controller", "The controller of the class."),
        text("Parameters", "The object with further parameters."),
        AGE,
    ),
    _ingress_class,
)

NETWORK_POLICIES = Printer(
    (NAME, text("Pod-Selector", "The labels that select its pods."), AGE),
    lambda o, now: [name_of(o), selector(part(o, "spec").get("podSelector")), age_of(o, now)],
)


def _address(obj: Object, now: float) -> Cells:
    parent = part(obj, "spec").get("parentRef")
    if not parent:
        return [name_of(obj), NONE, age_of(obj, now)]
    kind = ".".join(name for name in (parent.get("resource", ""), parent.get("group", "")) if name).lower()
    return [
        name_of(obj),
        "/".join(name for name in (kind, parent.get("namespace", ""), parent.get("name", "")) if name),
        age_of(obj, now),
    ]


IP_ADDRESSES = Printer((NAME, text("ParentRef", "The object that has the address."), AGE), _address)

SERVICE_CIDRS = Printer(
    (NAME, text("CIDRs", "The ranges that service addresses are taken from."), AGE),
    lambda o, now: [name_of(o), ",".join(part(o, "spec").get("cidrs") or ()), age_of(o, now)],
)
