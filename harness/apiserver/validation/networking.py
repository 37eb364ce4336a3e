"""Validation of Ingresses, IngressClasses and NetworkPolicies; follows `pkg/apis/networking/validation`."""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from seatrial.harness.apiserver.field_errors import Causes, forbidden, invalid, required, unsupported
from seatrial.harness.apiserver.names import Object, check_prefixed_path, dns_label, subdomain
from seatrial.harness.apiserver.validation.containers import PORT_RANGE, PROTOCOLS, check_port
from seatrial.harness.apiserver.validation.placement import check_label_selector

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_POLICY_TYPES = ("Egress", "Ingress")
_FORBIDDEN_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_FORBIDDEN_SUFFIXES = ("/..", "/.")
_ONE_BACKEND = 'a default backend or a rule is required: expected "service" or "resource"'
_ONE_OF = "cannot set both resource and service backends"
_SCOPES = ("Cluster", "Namespace")


def check_ingress(obj: Object, causes: Causes) -> None:
    """Append what is invalid in an Ingress to `causes`."""
    spec = obj.get("spec") or {}
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        causes.append(invalid("spec", spec.get("rules") or [], "either `defaultBackend` or `rules` must be specified"))
    if spec.get("defaultBackend") is not None:
        _check_backend(spec["defaultBackend"], "spec.defaultBackend", causes)
    for index, rule in enumerate(spec.get("rules") or ()):
        own = f"spec.rules[{index}]"
        _check_host(rule.get("host") or "", f"{own}.host", causes)
        if rule.get("http") is not None:
            _check_paths(rule["http"].get("paths") or (), f"{own}.http.paths", causes)
    for index, entry in enumerate(spec.get("tls") or ()):
        for at, host in enumerate(entry.get("hosts") or ()):
            causes.extend(
                invalid(f"spec.tls[{index}].hosts[{at}]", host, problem)
                for problem in subdomain(host.removeprefix("*."))
            )
    name = spec.get("ingressClassName")
    if name is not None:
        causes.extend(invalid("spec.ingressClassName", name, problem) for problem in subdomain(name))


def _check_host(host: str, path: str, causes: Causes) -> None:
    if not host:
        return
    try:
        ip_address(host)
    except ValueError:
        causes.extend(invalid(path, host, problem) for problem in subdomain(host.removeprefix("*.")))
    else:
        causes.append(invalid(path, host, "must be a DNS name, not an IP address"))


def _check_paths(paths: Any, path: str, causes: Causes) -> None:
    if not paths:
        causes.append(required(path))
    for index, entry in enumerate(paths):
        own, url, kind = f"{path}[{index}]", entry.get("path") or "", entry.get("pathType")
        if kind is None:
            causes.append(required(f"{own}.pathType", "pathType must be specified"))
        elif kind not in _PATH_TYPES:
            causes.append(unsupported(f"{own}.pathType", kind, _PATH_TYPES))
        elif kind != "ImplementationSpecific":
            if not url.startswith("/"):
                causes.append(invalid(f"{own}.path", url, "must be an absolute path"))
            for part in _FORBIDDEN_SEQUENCES:
                if part in url:
                    causes.append(invalid(f"{own}.path", url, f"must not contain '{part}'"))
            for part in _FORBIDDEN_SUFFIXES:
                if url.endswith(part):
                    causes.append(invalid(f"{own}.path", url, f"cannot end with '{part}'"))
        elif url and not url.startswith("/"):
            causes.append(invalid(f"{own}.path", url, "must be an absolute path"))
        _check_backend(entry.get("backend") or {}, f"{own}.backend", causes)


def _check_backend(backend: Object, path: str, causes: Causes) -> None:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        causes.append(invalid(path, "", _ONE_OF))
        return
    if resource is not None:
        for field in ("kind", "name"):
            if not resource.get(field):
                causes.append(required(f"{path}.resource.{field}", f"{field} is required"))
        return
    if service is None:
        causes.append(invalid(path, "", _ONE_BACKEND))
        return
    name, port = service.get("name") or "", service.get("port") or {}
    if not name:
        causes.append(required(f"{path}.service.name"))
    else:
        causes.extend(invalid(f"{path}.service.name", name, problem) for problem in dns_label(name))
    if port.get("name") and port.get("number"):
        causes.append(invalid(path, "", "cannot set both port name & port number"))
    elif port.get("name"):
        check_port(port["name"], f"{path}.service.port.name", causes)
    elif port.get("number"):
        if not 1 <= port["number"] <= 65535:
            causes.append(invalid(f"{path}.service.port.number", port["number"], PORT_RANGE))
    else:
        causes.append(required(path, "port name or number is required"))


def check_ingress_class(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in an IngressClass to `causes`; the controller of `old` may not change."""
    spec = obj.get("spec") or {}
    controller, parameters = spec.get("controller") or "", spec.get("parameters")
    check_prefixed_path(controller, "spec.controller", causes)
    if parameters is not None:
        for field in ("kind", "name"):
            if not parameters.get(field):
                causes.append(required(f"spec.parameters.{field}", f"{field} is required"))
        scope, namespace = parameters.get("scope"), parameters.get("namespace")
        if scope not in _SCOPES:
            causes.append(unsupported("spec.parameters.scope", scope or "", _SCOPES))
        elif scope == "Namespace" and not namespace:
            problem = "`parameters.scope` is set to 'Namespace'"
            causes.append(required("spec.parameters.namespace", problem))
        elif scope == "Cluster" and namespace:
            problem = "`parameters.scope` is set to 'Cluster'"
            causes.append(forbidden("spec.parameters.namespace", problem))
    if old is not None and controller != ((old.get("spec") or {}).get("controller") or ""):
        causes.append(invalid("spec.controller", controller, "field is immutable"))


def check_network_policy(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a NetworkPolicy to `causes`."""
    spec = obj.get("spec") or {}
    if spec.get("podSelector"):
        check_label_selector(spec["podSelector"], "spec.podSelector", causes)
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            own = f"spec.{direction}[{index}]"
            for at, port in enumerate(rule.get("ports") or ()):
                _check_policy_port(port, f"{own}.ports[{at}]", causes)
            for at, peer in enumerate(rule.get(peers) or ()):
                _check_peer(peer, f"{own}.{peers}[{at}]", causes)
    types = spec.get("policyTypes") or ()
    if len(types) > len(_POLICY_TYPES):
        causes.append(invalid("spec.policyTypes", types, "may not specify more than two policyTypes"))
        return
    for index, kind in enumerate(types):
        if kind not in _POLICY_TYPES:
            causes.append(unsupported(f"spec.policyTypes[{index}]", kind, _POLICY_TYPES))


def _check_policy_port(port: Object, path: str, causes: Causes) -> None:
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    if protocol is not None and protocol not in PROTOCOLS:
        causes.append(unsupported(f"{path}.protocol", protocol, PROTOCOLS))
    if number is not None:
        check_port(number, f"{path}.port", causes)
    if end is None:
        return
    if number is None:
        causes.append(invalid(f"{path}.endPort", end, "may not be specified when `port` is not specified"))
    elif not isinstance(number, int):
        causes.append(invalid(f"{path}.endPort", end, "may not be specified when `port` is non-numeric"))
    elif end < number:
        causes.append(invalid(f"{path}.endPort", end, "must be greater than or equal to `port`"))
    elif end > 65535:
        causes.append(invalid(f"{path}.endPort", end, PORT_RANGE))


def _check_peer(peer: Object, path: str, causes: Causes) -> None:
    selectors = [field for field in ("podSelector", "namespaceSelector") if peer.get(field) is not None]
    for field in selectors:
        check_label_selector(peer[field], f"{path}.{field}", causes)
    block = peer.get("ipBlock")
    if block is None:
        if not selectors:
            causes.append(required(path, "must specify a peer"))
        return
    if selectors:
        causes.append(forbidden(path, "may not specify both ipBlock and another peer"))
        return
    cidr = block.get("cidr") or ""
    if not cidr:
        causes.append(required(f"{path}.ipBlock.cidr"))
        return
    network = _network(cidr)
    if network is None:
        problem = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        causes.append(invalid(f"{path}.ipBlock.cidr", cidr, problem))
        return
    for index, text in enumerate(block.get("except") or ()):
        left_out = _network(text)
        if left_out is None:
            problem = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            causes.append(invalid(f"{path}.ipBlock.except[{index}]", text, problem))
        elif left_out.version != network.version or left_out == network or not left_out.subnet_of(network):  # type: ignore[arg-type]
            problem = "must be a strict subset of `cidr`"
            causes.append(invalid(f"{path}.ipBlock.except[{index}]", text, problem))


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
