"""Pod security standards: what a pod of the levels `baseline` and `restricted` may not do.

Follows `k8s.io/pod-security-admission/policy` at its newest version; versions that a label names do not differ here.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

PREFIX: Final = "pod-security.kubernetes.io/"
LEVELS: Final = ("privileged", "baseline", "restricted")
MODES: Final = ("enforce", "audit", "warn")
_VERSION = re.compile(r"latest|v1\.(0|[1-9][0-9]*)")
_DEFAULT_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_SAFE_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    }
)
_SECCOMP = frozenset({"RuntimeDefault", "Localhost"})
Object = Mapping[str, Any]


class Policy(NamedTuple):
    """The levels that the labels of a namespace ask for, with the versions as text."""

    enforce: str = "privileged"
    enforce_version: str = "latest"
    warn: str = "privileged"
    warn_version: str = "latest"


def is_version(text: str) -> bool:
    """Whether the text is `latest` or a minor version as in `v1.30`."""
    return _VERSION.fullmatch(text) is not None


def policy_of(labels: Mapping[str, str]) -> Policy | None:
    """The policy of a namespace with these labels; None if it limits nothing."""
    policy = Policy(
        labels.get(f"{PREFIX}enforce", "privileged"),
        labels.get(f"{PREFIX}enforce-version", "latest"),
        labels.get(f"{PREFIX}warn", "privileged"),
        labels.get(f"{PREFIX}warn-version", "latest"),
    )
    return policy if policy.enforce != "privileged" or policy.warn != "privileged" else None


def violations(level: str, spec: Object) -> list[str]:
    """What a pod with this spec does that the level forbids, in upstream's words."""
    if level not in {"baseline", "restricted"}:
        return []
    containers = _containers(spec)
    baseline = list(_baseline(spec, containers))
    if level == "restricted":
        baseline += _restricted(spec, containers)
    return baseline


def _containers(spec: Object) -> list[Object]:
    return [
        container
        for field in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(field) or ()
        if isinstance(container, dict)
    ]


def _context(obj: Object) -> Object:
    entry = obj.get("securityContext")
    return entry if isinstance(entry, dict) else {}


def _baseline(spec: Object, containers: list[Object]) -> Iterator[str]:
    host = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    if host:
        yield f"host namespaces ({', '.join(host)})"
    privileged = [container for container in containers if _context(container).get("privileged")]
    if privileged:
        yield f"privileged ({_named(privileged)} must not set securityContext.privileged=true)"
    added = {name for container in containers for name in _capabilities(container, "add")} - _DEFAULT_CAPABILITIES
    if added:
        who = [each for each in containers if added.intersection(_capabilities(each, "add"))]
        listed = ", ".join(f'"{name}"' for name in sorted(added))
        yield f"non-default capabilities ({_named(who)} must not include {listed} in securityContext.capabilities.add)"
    paths = [str(volume.get("name")) for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    if paths:
        yield f"hostPath volumes (volume{'s' if len(paths) > 1 else ''} {_quoted(paths)})"
    ports = [port["hostPort"] for each in containers for port in each.get("ports") or () if port.get("hostPort")]
    if ports:
        who = [each for each in containers if any(port.get("hostPort") for port in each.get("ports") or ())]
        listed = ", ".join(str(port) for port in sorted(set(ports)))
        verb = "uses hostPort" if len(set(ports)) == 1 else "use hostPorts"
        yield f"hostPort ({_named(who)} {verb} {listed})"
    yield from _kernel_settings(spec, containers)


def _kernel_settings(spec: Object, containers: list[Object]) -> Iterator[str]:
    contexts = [_context(spec), *(_context(container) for container in containers)]
    options = [context.get("seLinuxOptions") or {} for context in contexts]
    if any((each.get("type") or "") not in _SELINUX_TYPES or each.get("user") or each.get("role") for each in options):
        yield "seLinuxOptions (pod or containers set forbidden securityContext.seLinuxOptions)"
    if any(context.get("procMount") not in {None, "Default"} for context in contexts):
        yield "procMount (containers must not set securityContext.procMount)"
    if any((context.get("seccompProfile") or {}).get("type") == "Unconfined" for context in contexts):
        yield 'seccompProfile (pod or containers must not set securityContext.seccompProfile.type to "Unconfined")'
    if any((context.get("appArmorProfile") or {}).get("type") == "Unconfined" for context in contexts):
        yield 'appArmorProfile (pod or containers must not set securityContext.appArmorProfile.type to "Unconfined")'
    if any((context.get("windowsOptions") or {}).get("hostProcess") for context in contexts):
        yield "hostProcess (pod or containers must not set securityContext.windowsOptions.hostProcess=true)"
    unsafe = [
        str(entry.get("name"))
        for entry in _context(spec).get("sysctls") or ()
        if entry.get("name") not in _SAFE_SYSCTLS
    ]
    if unsafe:
        yield f"forbidden sysctls ({', '.join(unsafe)})"


def _restricted(spec: Object, containers: list[Object]) -> Iterator[str]:
    pod = _context(spec)
    if (spec.get("os") or {}).get("name") == "windows":
        return
    volumes = [
        str(volume.get("name"))
        for volume in spec.get("volumes") or ()
        if not (volume.keys() - {"name"}) <= _SAFE_VOLUMES
    ]
    if volumes:
        many = "s" if len(volumes) > 1 else ""
        yield f"restricted volume types (volume{many} {_quoted(volumes)} use a restricted type)"
    escalating = [each for each in containers if _context(each).get("allowPrivilegeEscalation") is not False]
    if escalating:
        yield (
            f"allowPrivilegeEscalation != false ({_named(escalating)} must set"
            " securityContext.allowPrivilegeEscalation=false)"
        )
    keeping = [each for each in containers if "ALL" not in _capabilities(each, "drop")]
    adding = [each for each in containers if set(_capabilities(each, "add")) - {"NET_BIND_SERVICE"}]
    if keeping or adding:
        parts = [f'{_named(keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []
        if adding:
            parts.append(f"{_named(adding)} must not include other capabilities in securityContext.capabilities.add")
        yield f"unrestricted capabilities ({'; '.join(parts)})"
    root = [each for each in containers if _context(each).get("runAsNonRoot", pod.get("runAsNonRoot")) is not True]
    if root:
        yield f"runAsNonRoot != true (pod or {_named(root)} must set securityContext.runAsNonRoot=true)"
    if pod.get("runAsUser") == 0 or any(_context(each).get("runAsUser") == 0 for each in containers):
        yield "runAsUser=0 (pod or containers must not set runAsUser=0)"
    unconfined = [
        each
        for each in containers
        if (_context(each).get("seccompProfile") or pod.get("seccompProfile") or {}).get("type") not in _SECCOMP
    ]
    if unconfined:
        yield (
            f"seccompProfile (pod or {_named(unconfined)} must set securityContext.seccompProfile.type to"
            ' "RuntimeDefault" or "Localhost")'
        )


def _capabilities(container: Object, field: str) -> list[str]:
    return list((_context(container).get("capabilities") or {}).get(field) or ())


def _named(containers: list[Object]) -> str:
    names = [str(container.get("name")) for container in containers]
    return f"container{'s' if len(names) > 1 else ''} {_quoted(names)}"


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
