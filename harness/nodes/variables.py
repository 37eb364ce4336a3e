"""The environment of a container: variables from kubelet, the pod, ConfigMaps and Secrets, and the device grant."""

import re
from collections.abc import Mapping
from fractions import Fraction

from seatrial.harness.apiserver.quantities import CPU, QuantityError, amount
from seatrial.harness.nodes.pod_parts import FieldRef, KeyRef, ResourceRef, Variable
from seatrial.harness.nodes.pods import BoundPod, ContainerPlan
from seatrial.harness.nodes.references import CONFIG_MAP, SECRET, Data, Name

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")


class Unresolved(Exception):
    """A variable refers to something that does not exist; the message is kubelet's."""


def resolve_env(
    pod: BoundPod,
    container: ContainerPlan,
    extra: Mapping[str, str],
    *,
    ip: str = "",
    host_ip: str = "",
    objects: Mapping[Name, Data] | None = None,
) -> dict[str, str]:
    """The environment before `$(NAME)` is substituted.

    Granted variables (`extra`) override those of the pod, as a runtime hook's do. Variables of the pod override those
    of whole objects.

    Raises:
        Unresolved: a required key does not exist; only if `objects` were read.
    """
    env = {"PATH": PATH, "HOSTNAME": pod.metadata.name}
    for source in container.env_from:
        for kind, ref in ((CONFIG_MAP, source.config_map_ref), (SECRET, source.secret_ref)):
            data = (objects or {}).get((kind, ref.name), {}) if ref is not None else {}
            for key, content in data.items():
                if _VARIABLE.fullmatch(f"{source.prefix}{key}"):
                    env[f"{source.prefix}{key}"] = content.decode(errors="replace")
    for variable in container.env:
        value = _value(pod, container, variable, ip, host_ip, objects)
        if value is not None:
            env[variable.name] = value
    return {**env, **extra}


def _value(  # noqa: PLR0917
    pod: BoundPod,
    container: ContainerPlan,
    variable: Variable,
    ip: str,
    host_ip: str,
    objects: Mapping[Name, Data] | None,
) -> str | None:
    source = variable.value_from
    if source is None:
        return variable.value
    if source.field_ref is not None:
        return field_of(pod, source.field_ref, ip=ip, host_ip=host_ip)
    if source.resource_field_ref is not None:
        return resource_of(pod, source.resource_field_ref, container)
    for kind, ref in ((CONFIG_MAP, source.config_map_key_ref), (SECRET, source.secret_key_ref)):
        if ref is not None:
            return _key(kind, ref, objects)
    return variable.value


def _key(kind: str, ref: KeyRef, objects: Mapping[Name, Data] | None) -> str | None:
    entry = (objects or {}).get((kind, ref.name), {}).get(ref.key)
    if entry is not None:
        return entry.decode(errors="replace")
    if ref.optional or objects is None:
        return None
    raise Unresolved(f"couldn't find key {ref.key} in {kind} {ref.name}")


def field_of(pod: BoundPod, ref: FieldRef, *, ip: str = "", host_ip: str = "") -> str:
    """A field of the pod by its path in the downward API; empty if the pod does not have it."""
    meta = pod.metadata
    plain = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": ip,
        "status.podIPs": ip,
        "status.hostIP": host_ip,
        "status.hostIPs": host_ip,
    }
    path = ref.field_path
    if path in plain:
        return plain[path]
    kind, bracket, key = path.partition("['")
    table = {"metadata.labels": meta.labels, "metadata.annotations": meta.annotations}.get(kind, {})
    if not bracket:  # the whole of it, as a volume may have it
        return "\n".join(f'{name}="{value}"' for name, value in sorted(table.items()))
    return table.get(key.removesuffix("']"), "")


def resource_of(pod: BoundPod, ref: ResourceRef, own: ContainerPlan | None) -> str:
    """An amount of a container's resources in units of the divisor, rounded up; 0 if the pod does not set it."""
    named = (
        container
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        if container.name == ref.container_name
    )
    container = next(named, own)
    kind, _, resource = ref.resource.partition(".")
    if container is None or kind not in {"limits", "requests"}:
        return "0"
    table = container.resources.limits if kind == "limits" else container.resources.requests
    scale = 1000 if resource == CPU else 1  # CPU is in thousandths of a core
    try:
        fraction = Fraction(amount(resource, table[resource]), scale) if resource in table else Fraction(0)
        divisor = Fraction(amount(resource, str(ref.divisor)), scale) or Fraction(1)
    except QuantityError:
        return "0"
    return str(-(-fraction // divisor))
