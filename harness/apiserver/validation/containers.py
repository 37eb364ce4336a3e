"""Containers and volumes of a pod: names, ports, environment, mounts, probes."""

import re
from collections.abc import Iterable
from typing import Any

from seatrial.harness.apiserver.field_errors import (
    Causes,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, config_key, dns_label, port_name
from seatrial.harness.apiserver.text_cache import cached
from seatrial.harness.apiserver.validation.devices import check_claim_names
from seatrial.harness.apiserver.validation.resources import NOT_NEGATIVE, check_requirements
from seatrial.harness.apiserver.validation.security_contexts import check_security_context

PORT_RANGE = "must be between 1 and 65535, inclusive"
PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL = ("Always", "IfNotPresent", "Never")
_RESTART = ("Always", "Never", "OnFailure")
_MESSAGE = frozenset({"File", "FallbackToLogsOnError"})
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ENV_RULE = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_is_env_name = re.compile(r"[ -<>-~]+").fullmatch
_REQUIRED_OF_VOLUMES = {  # source → its required field
    "hostPath": "path",
    "configMap": "name",
    "secret": "secretName",
    "persistentVolumeClaim": "claimName",
    "csi": "driver",
    "nfs": "server",
}


def check_containers(spec: Object, volumes: frozenset[str], path: str, causes: Causes) -> None:
    """Check `containers`, of which there must be at least one."""
    names: set[str] = set()
    containers = spec.get("containers") or ()
    index = -1
    for index, container in enumerate(containers):
        _check_container(container, names, volumes, f"{path}[{index}]", causes)
        _check_in_pod(container, spec, f"{path}[{index}]", causes)
    if index < 0:
        causes.append(required(path))
        return
    _check_host_ports(containers, path, causes)


def check_init_containers(spec: Object, volumes: frozenset[str], path: str, causes: Causes) -> None:
    """Check `initContainers`; one with restartPolicy Always is a sidecar and may have probes and hooks."""
    names: set[str] = {container.get("name") or "" for container in spec.get("containers") or ()}
    for index, container in enumerate(spec["initContainers"]):
        own = f"{path}[{index}]"
        _check_container(container, names, volumes, own, causes)
        _check_in_pod(container, spec, own, causes)
        if container.get("restartPolicy") == "Always":
            continue
        for field in ("lifecycle", *_PROBES):
            if container.get(field) is not None:
                problem = "may not be set for init containers without restartPolicy=Always"
                causes.append(forbidden(f"{own}.{field}", problem))


def _check_container(container: Object, names: set[str], volumes: frozenset[str], path: str, causes: Causes) -> None:
    name = container.get("name")
    if not name:
        causes.append(required(f"{path}.name"))
    elif problems := dns_label(name):
        causes.extend(invalid(f"{path}.name", name, problem) for problem in problems)
    if name in names:
        causes.append(duplicate(f"{path}.name", name))
    elif name:
        names.add(name)
    image = container.get("image")
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    for field in _PROBES:
        if container.get(field) is not None:
            _check_probe(container[field], f"{path}.{field}", causes)
            if field != "readinessProbe" and container[field].get("successThreshold", 1) != 1:
                causes.append(
                    invalid(f"{path}.{field}.successThreshold", container[field]["successThreshold"], "must be 1")
                )
    if container.get("lifecycle"):
        for hook, handler in container["lifecycle"].items():
            if isinstance(handler, dict):
                _check_handler(handler, f"{path}.lifecycle.{hook}", causes, "sleep")
    if container.get("terminationMessagePolicy") not in _MESSAGE:
        value = container.get("terminationMessagePolicy")
        problem, field = "must be 'File' or 'FallbackToLogsOnError'", f"{path}.terminationMessagePolicy"
        causes.append(invalid(field, value, problem) if value else required(field, problem))
    if container.get("ports"):
        _check_ports(container["ports"], f"{path}.ports", causes)
    if container.get("env"):
        _check_env(container["env"], f"{path}.env", causes)
    if container.get("volumeMounts"):
        _check_mounts(container["volumeMounts"], volumes, f"{path}.volumeMounts", causes)
    policy = container.get("imagePullPolicy")
    if policy not in _PULL:
        field = f"{path}.imagePullPolicy"
        causes.append(unsupported(field, policy, _PULL) if policy else required(field))
    if container.get("restartPolicy") is not None and container["restartPolicy"] not in _RESTART:
        causes.append(unsupported(f"{path}.restartPolicy", container["restartPolicy"], _RESTART))
    if container.get("resources"):
        check_requirements(container["resources"], f"{path}.resources", causes)


def _check_in_pod(container: Object, spec: Object, path: str, causes: Causes) -> None:
    """Check what depends on the spec of the pod."""
    if container.get("resources") and container["resources"].get("claims"):
        check_claim_names(container["resources"]["claims"], spec, f"{path}.resources.claims", causes)
    if container.get("securityContext"):
        shared = spec.get("hostUsers") is not False
        check_security_context(container["securityContext"], f"{path}.securityContext", causes, host_users=shared)


def _check_ports(ports: list[Object], path: str, causes: Causes) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        if name := port.get("name"):
            if problems := port_name(name):
                causes.extend(invalid(f"{path}[{index}].name", name, problem) for problem in problems)
            elif name in names:
                causes.append(duplicate(f"{path}[{index}].name", name))
            else:
                names.add(name)
        if not port.get("containerPort"):
            causes.append(required(f"{path}[{index}].containerPort"))
        elif not 1 <= port["containerPort"] <= 65535:
            causes.append(invalid(f"{path}[{index}].containerPort", port["containerPort"], PORT_RANGE))
        if port.get("hostPort") and not 1 <= port["hostPort"] <= 65535:
            causes.append(invalid(f"{path}[{index}].hostPort", port["hostPort"], PORT_RANGE))
        protocol = port.get("protocol")
        if protocol not in PROTOCOLS:
            field = f"{path}[{index}].protocol"
            causes.append(unsupported(field, protocol, PROTOCOLS) if protocol else required(field))


def _check_host_ports(containers: Iterable[Object], path: str, causes: Causes) -> None:
    taken: set[str] = set()
    for index, container in enumerate(containers):
        for at, port in enumerate(container.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            key = f"{port.get('protocol')}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if key in taken:
                causes.append(duplicate(f"{path}[{index}].ports[{at}].hostPort", key))
            taken.add(key)


@cached()
def _env_problem(name: str) -> str:
    return "" if _is_env_name(name) else _ENV_RULE


def _check_env(variables: list[Object], path: str, causes: Causes) -> None:
    for index, variable in enumerate(variables):
        name = variable.get("name")
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        elif problem := _env_problem(name):
            causes.append(invalid(f"{path}[{index}].name", name, problem))
        source = variable.get("valueFrom")
        if source is None:
            continue
        own = f"{path}[{index}].valueFrom"
        sources = [kind for kind in _SOURCES if source.get(kind) is not None]
        if not sources:
            problem = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            causes.append(invalid(own, "", problem))
        elif variable.get("value"):
            causes.append(invalid(own, "", "may not be specified when `value` is not empty"))
        elif len(sources) > 1:
            causes.append(invalid(own, "", "may not have more than one field specified at a time"))
        for kind in sources:
            _check_source(kind, source[kind], f"{own}.{kind}", causes)


def _check_source(kind: str, source: Object, path: str, causes: Causes) -> None:
    if kind == "fieldRef":
        if not source.get("fieldPath"):
            causes.append(required(f"{path}.fieldPath"))
    elif kind == "resourceFieldRef":
        if not source.get("resource"):
            causes.append(required(f"{path}.resource"))
    elif not source.get("key"):
        causes.append(required(f"{path}.key"))
    elif kind != "fileKeyRef":
        causes.extend(invalid(f"{path}.key", source["key"], problem) for problem in config_key(source["key"]))


def _check_mounts(mounts: list[Object], volumes: frozenset[str], path: str, causes: Causes) -> None:
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        name, place = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        if name not in volumes:
            causes.append(not_found(f"{path}[{index}].name", name))
        if not place:
            causes.append(required(f"{path}[{index}].mountPath"))
        if place in places:
            causes.append(invalid(f"{path}[{index}].mountPath", place, "must be unique"))
        places.add(place)
        if (sub := mount.get("subPath")) and sub.startswith("/"):
            causes.append(invalid(f"{path}.subPath", sub, "must be a relative path"))
        elif sub and ".." in sub.split("/"):
            causes.append(invalid(f"{path}.subPath", sub, "must not contain '..'"))
        if sub and mount.get("subPathExpr"):
            problem = "subPathExpr and subPath are mutually exclusive"
            causes.append(invalid(f"{path}[{index}].subPathExpr", mount["subPathExpr"], problem))


def _check_probe(probe: Object, path: str, causes: Causes) -> None:
    _check_handler(probe, path, causes)
    for field in _PROBE_NUMBERS:
        if (probe.get(field) or 0) < 0:
            causes.append(invalid(f"{path}.{field}", probe[field], NOT_NEGATIVE))


def _check_handler(handler: Object, path: str, causes: Causes, *more: str) -> None:
    matches = [kind for kind in (*_HANDLERS, *more) if handler.get(kind) is not None]
    if not matches:
        causes.append(required(path, "must specify a handler type"))
    for kind in matches[1:]:
        causes.append(forbidden(f"{path}.{kind}", "may not specify more than 1 handler type"))
    for kind in matches[:1]:
        if kind == "exec" and not handler["exec"].get("command"):
            causes.append(required(f"{path}.exec.command"))
        if kind in {"httpGet", "tcpSocket", "grpc"}:
            check_port(handler[kind].get("port"), f"{path}.{kind}.port", causes)


def check_port(port: Any, path: str, causes: Causes) -> None:
    """Check a port, given as a number or as a container port's name."""
    if isinstance(port, str):
        causes.extend(invalid(path, port, problem) for problem in port_name(port))
    elif not isinstance(port, int) or not 1 <= port <= 65535:
        causes.append(invalid(path, port or 0, PORT_RANGE))


def check_volumes(volumes: list[Object], path: str, causes: Causes) -> frozenset[str]:
    """Check the volumes and return the names that containers may mount."""
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        before = len(causes)
        sources = [kind for kind, source in volume.items() if kind != "name" and source is not None]
        if not sources:
            causes.append(required(f"{path}[{index}]", "must specify a volume type"))
        for kind in sources[1:]:
            causes.append(forbidden(f"{path}[{index}].{kind}", "may not specify more than 1 volume type"))
        for kind in sources[:1]:
            field = _REQUIRED_OF_VOLUMES.get(kind)
            if field and not volume[kind].get(field):
                causes.append(required(f"{path}[{index}].{kind}.{field}"))
        name = volume.get("name")
        if not name:
            causes.append(required(f"{path}[{index}].name"))
        else:
            causes.extend(invalid(f"{path}[{index}].name", name, problem) for problem in dns_label(name))
        if name in names:
            causes.append(duplicate(f"{path}[{index}].name", name))
        if len(causes) == before and name:
            names.add(name)
    return frozenset(names)
