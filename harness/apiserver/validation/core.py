"""Validation of core kinds: nodes, Services, ConfigMaps and Secrets."""

import base64
from typing import Any

import orjson

from seatrial.harness.apiserver.field_errors import (
    Causes,
    duplicate,
    forbidden,
    immutable,
    invalid,
    required,
    too_long,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, check_labels, config_key, dns_label, subdomain
from seatrial.harness.apiserver.validation.containers import PORT_RANGE, PROTOCOLS, check_port
from seatrial.harness.apiserver.validation.placement import check_taints
from seatrial.harness.apiserver.validation.resources import check_list

_MAX_DATA_SIZE = 1024 * 1024  # bytes per ConfigMap or Secret
_FROZEN = "field is immutable when `immutable` is set"
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_TLS = ("tls.crt", "tls.key")
_NEEDED_KEYS = {
    "kubernetes.io/tls": _TLS,
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_JSON_KEYS = (".dockerconfigjson", ".dockercfg")
_ACCOUNT = "kubernetes.io/service-account.name"


def check_node(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a Node to `causes`; `old` is the stored object of an update."""
    spec = obj.get("spec") or {}
    if spec.get("taints"):
        check_taints(spec["taints"], "metadata.taints", causes)  # upstream reports this path
    _check_node_resources(obj, causes)
    if old is None:
        return
    before = old.get("spec") or {}
    if before.get("podCIDRs") and before["podCIDRs"] != spec.get("podCIDRs"):
        problem = 'node updates may not change podCIDR except from "" to valid'
        causes.append(forbidden("spec.podCIDRs", problem))
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        problem = 'node updates may not change providerID except from "" to valid'
        causes.append(forbidden("spec.providerID", problem))


def check_node_status(obj: Object, causes: Causes) -> None:
    """Append what is invalid in a Node's status to `causes`."""
    _check_node_resources(obj, causes)
    seen: list[Any] = []
    for index, address in enumerate((obj.get("status") or {}).get("addresses") or ()):
        if address in seen:
            causes.append(duplicate(f"status.addresses[{index}]", address))
        seen.append(address)


def _check_node_resources(obj: Object, causes: Causes) -> None:
    status = obj.get("status") or {}
    for field in ("capacity", "allocatable"):
        if status.get(field):
            check_list(status[field], f"status.{field}", causes)


def check_service(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a Service to `causes`; `old` is the stored object of an update."""
    spec = obj.get("spec") or {}
    ports, kind = spec.get("ports") or [], spec.get("type")
    headless = spec.get("clusterIP") == "None"
    if not ports and not headless and kind != "ExternalName":
        causes.append(required("spec.ports"))
    if kind == "ExternalName":
        if not spec.get("externalName"):
            causes.append(required("spec.externalName"))
        else:
            name = spec["externalName"].removesuffix(".")
            causes.extend(invalid("spec.externalName", name, problem) for problem in subdomain(name))
    elif headless and kind in {"LoadBalancer", "NodePort"}:
        causes.append(invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    _check_service_ports(ports, kind, causes)
    if spec.get("selector"):
        check_labels(spec["selector"], "spec.selector", causes)
    if spec.get("sessionAffinity") not in _AFFINITIES:
        causes.append(unsupported("spec.sessionAffinity", spec.get("sessionAffinity") or "", _AFFINITIES))
    if kind not in _SERVICE_TYPES:
        causes.append(unsupported("spec.type", kind or "", _SERVICE_TYPES))
    before = (old or {}).get("spec") or {}
    if before.get("clusterIP") and kind != "ExternalName" and before.get("type") != "ExternalName":
        address = spec.get("clusterIP") or ""
        if address != before["clusterIP"]:
            problem = "may not change once set"
            causes.append(invalid("spec.clusterIPs[0]", [address] if address else None, problem))


def _check_service_ports(ports: list[Object], kind: Any, causes: Causes) -> None:
    names: set[str] = set()
    taken: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name")
        if name:
            causes.extend(invalid(f"{path}.name", name, problem) for problem in dns_label(name))
            if name in names:
                causes.append(duplicate(f"{path}.name", name))
            names.add(name)
        elif len(ports) > 1:
            causes.append(required(f"{path}.name"))
        number = port.get("port") or 0
        if not 1 <= number <= 65535:
            causes.append(invalid(f"{path}.port", number, PORT_RANGE))
        protocol = port.get("protocol")
        if protocol not in PROTOCOLS:
            causes.append(
                unsupported(f"{path}.protocol", protocol, PROTOCOLS) if protocol else required(f"{path}.protocol")
            )
        check_port(port.get("targetPort"), f"{path}.targetPort", causes)
        if port.get("nodePort") and kind == "ClusterIP":
            causes.append(forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'"))
        if (protocol, number) in taken:
            causes.append(duplicate(path, {"port": number, "protocol": protocol}))
        taken.add((protocol, number))


def check_config_map(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a ConfigMap to `causes`: keys, keys in both maps, and the size."""
    _check_data(obj, ("data", "binaryData"), causes)
    both = (obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys()
    for key in sorted(both):
        causes.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    _check_frozen(obj, old, ("data", "binaryData"), causes)


def check_secret(obj: Object, old: Object | None, causes: Causes) -> None:
    """Append what is invalid in a Secret to `causes`: keys, the size, and the keys that its type needs."""
    _check_data(obj, ("data",), causes)
    data, kind = obj.get("data") or {}, obj.get("type")
    for key in _NEEDED_KEYS.get(kind or "", ()):
        if key not in data:
            causes.append(required(f"data[{key}]"))
        elif key in _JSON_KEYS and not _is_json(data[key]):
            causes.append(invalid(f"data[{key}]", "<secret contents redacted>", "invalid character in JSON"))
    if kind == "kubernetes.io/basic-auth" and "username" not in data and "password" not in data:
        causes += (required("data[username]"), required("data[password]"))
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_ACCOUNT):
        causes.append(required(f"metadata.annotations[{_ACCOUNT}]"))
    if old is not None:
        causes.extend(immutable("type", kind, old.get("type")))
    _check_frozen(obj, old, ("data",), causes)


def _is_json(encoded: str) -> bool:
    """Whether the base64 text is a JSON object."""
    try:
        return isinstance(orjson.loads(base64.b64decode(encoded)), dict)
    except ValueError:
        return False


def _check_data(obj: Object, fields: tuple[str, ...], causes: Causes) -> None:
    size = 0
    for field in fields:
        for key, value in (obj.get(field) or {}).items():
            causes.extend(invalid(f"{field}[{key}]", key, problem) for problem in config_key(key))
            in_base64 = field == "binaryData" or len(fields) == 1
            size += len(value) * 3 // 4 if in_base64 else len(value.encode())
    if size > _MAX_DATA_SIZE:
        causes.append(too_long("data" if len(fields) == 1 else "", _MAX_DATA_SIZE))


def _check_frozen(obj: Object, old: Object | None, fields: tuple[str, ...], causes: Causes) -> None:
    if old is None or old.get("immutable") is not True:
        return
    if obj.get("immutable") is not True:
        causes.append(forbidden("immutable", _FROZEN))
    for field in fields:
        if (obj.get(field) or {}) != (old.get(field) or {}):
            causes.append(forbidden(field, _FROZEN))
