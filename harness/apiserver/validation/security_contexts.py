"""Security contexts of pods and containers, and what the operating system of a pod allows.

Follows `ValidateSecurityContext`, `validatePodSpecSecurityContext`, `validateHostUsers`, `validateOS` and
`validateWindowsHostProcessPod` of `pkg/apis/core/validation`. The domain of `runAsUserName` is not checked.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from seatrial.harness.apiserver.field_errors import (
    Causes,
    duplicate,
    forbidden,
    invalid,
    required,
    too_long,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, subdomain

_MAX_ID: Final = (1 << 31) - 1
_ID_RANGE: Final = f"must be between 0 and {_MAX_ID}, inclusive"
_PROFILES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_POLICIES: Final = {
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "supplementalGroupsPolicy": ("Merge", "Strict"),
    "seLinuxChangePolicy": ("MountOption", "Recursive"),
}
_MAX_PATH: Final = 4095
_SEGMENT: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL: Final = rf"^({_SEGMENT}[\./])*{_SEGMENT}$"
_MAX_SYSCTL: Final = 253
_IPC_SYSCTLS: Final = frozenset(
    [
        "kernel.sem",
        *(f"kernel.{name}" for name in ("shm", "shmall", "shmmax", "shmmni", "shm_rmid_forced")),
        *(f"kernel.{name}" for name in ("msg", "msgmax", "msgmnb", "msgmni")),
    ]
)
_MAX_USER: Final = 104
_SYSTEMS: Final = ("linux", "windows")
_NOT_ON_WINDOWS: Final = (
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
    "securityContext.seLinuxChangePolicy",
    "hostUsers",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
)
_NOT_IN_WINDOWS_CONTAINERS: Final = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def check_security_context(context: Object, path: str, causes: Causes, *, host_users: bool) -> None:
    """Check the context of a container. `host_users`: the pod shares the users of its node."""
    _check_ids(context, ("runAsUser", "runAsGroup"), path, causes)
    mount = context.get("procMount")
    if mount is not None and mount not in {"Default", "Unmasked"}:
        causes.append(unsupported(f"{path}.procMount", mount, ("Default", "Unmasked")))
    if mount == "Unmasked" and host_users:
        causes.append(invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`"))
    _check_seccomp(context.get("seccompProfile"), f"{path}.seccompProfile", causes)
    if context.get("allowPrivilegeEscalation") is False:
        problem = "cannot set `allowPrivilegeEscalation` to false and "
        if context.get("privileged"):
            causes.append(invalid(path, context, f"{problem}`privileged` to true"))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            causes.append(invalid(path, context, f"{problem}`capabilities.Add` CAP_SYS_ADMIN"))
    _check_windows(context.get("windowsOptions"), f"{path}.windowsOptions", causes)
    _check_app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile", causes)


def check_pod_security_context(spec: Object, path: str, causes: Causes) -> None:
    """Check the context of a pod. `path` is that of the spec."""
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        problem = "ShareProcessNamespace and HostPID cannot both be enabled"
        causes.append(invalid(f"{path}.shareProcessNamespace", True, problem))
    context, path = spec.get("securityContext") or {}, f"{path}.securityContext"
    _check_ids(context, ("fsGroup", "runAsUser", "runAsGroup"), path, causes)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        if not 0 <= group <= _MAX_ID:
            causes.append(invalid(f"{path}.supplementalGroups[{index}]", group, _ID_RANGE))
    _check_sysctls(context.get("sysctls") or (), spec, f"{path}.sysctls", causes)
    _check_policy(context, "fsGroupChangePolicy", path, causes)
    _check_seccomp(context.get("seccompProfile"), f"{path}.seccompProfile", causes)
    _check_windows(context.get("windowsOptions"), f"{path}.windowsOptions", causes)
    _check_app_armor(context.get("appArmorProfile"), f"{path}.appArmorProfile", causes)
    _check_policy(context, "supplementalGroupsPolicy", path, causes)
    _check_policy(context, "seLinuxChangePolicy", path, causes)


def _check_policy(context: Object, field: str, path: str, causes: Causes) -> None:
    if context.get(field) is not None and context[field] not in _POLICIES[field]:
        causes.append(unsupported(f"{path}.{field}", context[field], _POLICIES[field]))


def _check_ids(context: Object, fields: tuple[str, ...], path: str, causes: Causes) -> None:
    for field in fields:
        if context.get(field) is not None and not 0 <= context[field] <= _MAX_ID:
            causes.append(invalid(f"{path}.{field}", context[field], _ID_RANGE))


def _check_sysctls(sysctls: Iterable[Object], spec: Object, path: str, causes: Causes) -> None:
    names: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        own, name = f"{path}[{index}].name", sysctl.get("name") or ""
        if not name:
            causes.append(required(own))
        elif len(name) > _MAX_SYSCTL or not re.match(_SYSCTL, name):
            causes.append(invalid(own, name, f"must have at most {_MAX_SYSCTL} characters and match regex {_SYSCTL}"))
        elif name in names:
            causes.append(duplicate(own, name))
        names.add(name)
        dotted = name.replace("/", ".")
        if spec.get("hostNetwork") and dotted.startswith("net."):
            causes.append(invalid(own, name, "may not be specified when 'hostNetwork' is true"))
        elif spec.get("hostIPC") and (dotted in _IPC_SYSCTLS or dotted.startswith("fs.mqueue.")):
            causes.append(invalid(own, name, "may not be specified when 'hostIPC' is true"))


def _check_profile_type(profile: Object, path: str, causes: Causes) -> None:
    kind = profile.get("type")
    if not kind:
        causes.append(required(f"{path}.type", f"type is required when {path.rpartition('.')[2]} is set"))
    elif kind not in _PROFILES:
        causes.append(unsupported(f"{path}.type", kind, _PROFILES))


def _check_seccomp(profile: Object | None, path: str, causes: Causes) -> None:
    if profile is None:
        return
    _check_profile_type(profile, path, causes)
    own, local = f"{path}.localhostProfile", profile.get("localhostProfile")
    if profile.get("type") != "Localhost":
        if local is not None:
            causes.append(invalid(own, profile, "can only be set when seccomp type is Localhost"))
    elif local is None:
        causes.append(required(own, "must be set when seccomp type is Localhost"))
    else:
        if local.startswith("/"):
            causes.append(invalid(own, local, "must be a relative path"))
        if ".." in local.split("/"):
            causes.append(invalid(own, local, "must not contain '..'"))


def _check_app_armor(profile: Object | None, path: str, causes: Causes) -> None:
    if profile is None:
        return
    _check_profile_type(profile, path, causes)
    own, local = f"{path}.localhostProfile", profile.get("localhostProfile")
    if profile.get("type") == "Localhost":
        if not local:
            causes.append(required(own, "must be set when AppArmor type is Localhost"))
        elif local != local.strip():
            causes.append(invalid(own, local, "must not be padded with whitespace"))
        if len((local or "").encode()) > _MAX_PATH:
            causes.append(too_long(own, _MAX_PATH))
    elif local is not None and profile.get("type") in _PROFILES:
        causes.append(invalid(own, local, "can only be set when AppArmor type is Localhost"))


def _check_windows(options: Object | None, path: str, causes: Causes) -> None:
    if options is None:
        return
    name = options.get("gmsaCredentialSpecName")
    if name is not None:
        causes.extend(invalid(f"{path}.gmsaCredentialSpecName", name, problem) for problem in subdomain(name))
    if options.get("gmsaCredentialSpec") == "":
        problem = "gmsaCredentialSpec cannot be an empty string"
        causes.append(invalid(f"{path}.gmsaCredentialSpec", "", problem))
    user = options.get("runAsUserName")
    if user is not None:
        causes.extend(invalid(f"{path}.runAsUserName", user, f"runAsUserName{wrong}") for wrong in _user_problems(user))


def _user_problems(name: str) -> Iterator[str]:
    user = name.rpartition("\\")[2]
    if not name:
        yield " cannot be an empty string"
    elif re.search(r"[\x00-\x1f\x7f]", name):
        yield " cannot contain control characters"
    elif name.count("\\") > 1:
        yield " cannot contain more than one backslash"
    elif not user:
        yield "'s User cannot be empty"
    else:
        if len(user.encode()) > _MAX_USER:
            yield f"'s User length must not be longer than {_MAX_USER} characters"
        if not user.strip(". "):
            yield "'s User cannot contain only periods or spaces"
        if re.search(r'["/\\:;|=,+*?<>@\[\]]', user):
            yield r"""'s User cannot contain the following characters: "/\:;|=,+*?<>@[]"""


def check_host(spec: Object, path: str, causes: Causes) -> None:
    """Check what a pod may share with its node: host processes of Windows, and users."""
    containers = list(_containers(spec, path))
    of_pod = _host_process(spec)
    of_containers = [_host_process(container) for container, _ in containers]
    for (_, own), of_container in zip(containers, of_containers, strict=True):
        if of_pod is not None and of_container is not None and of_pod != of_container:
            was = "true" if of_pod else "false"
            problem = f"pod hostProcess value must be identical if both are specified, was {was}"
            causes.append(invalid(f"{own}.securityContext.windowsOptions.hostProcess", of_container, problem))
    count = sum(bool(of_pod if of_container is None else of_container) for of_container in of_containers)
    if count not in {0, len(containers)}:
        problem = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        causes.append(invalid(path, "", problem))
    if count and not spec.get("hostNetwork"):
        problem = "hostNetwork must be true if pod contains any hostProcess containers"
        causes.append(invalid(f"{path}.hostNetwork", False, problem))
    if spec.get("hostUsers") is False:
        shared = [name for name in ("hostNetwork", "HostPID", "HostIPC") if spec.get(name.replace("H", "h"))]
        causes.extend(forbidden(f"{path}.{name}", "when `hostUsers` is false") for name in shared)


def _host_process(obj: Object) -> bool | None:
    """Whether the windowsOptions of a pod spec or container ask for a process of the host; None: not said."""
    host_process: bool | None = ((obj.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    return host_process


def _containers(spec: Object, path: str) -> Iterator[tuple[Object, str]]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield container, f"{path}.{field}[{index}]"


def check_system(spec: Object, path: str, causes: Causes) -> None:
    """Check the operating system of a pod, and that no field of the other one is set."""
    name = spec["os"].get("name")
    if not name:
        causes.append(required(f"{path}.os.name"))
    elif name not in _SYSTEMS:
        causes.append(unsupported(f"{path}.os", name, _SYSTEMS))
    contexts = [(candidate, own) for candidate, own in _containers(spec, path) if candidate.get("securityContext")]
    if name == "linux":
        places = [own for outcome, own in [(spec, path), *contexts] if _at(outcome, "securityContext.windowsOptions")]
        problem = "windows options cannot be set for a linux pod"
        causes.extend(forbidden(f"{own}.securityContext.windowsOptions", problem) for own in places)
    if name == "windows":
        fields = [f"{path}.{field}" for field in _NOT_ON_WINDOWS if _at(spec, field)]
        for result, own in contexts:
            fields += [
                f"{own}.securityContext.{field}"
                for field in _NOT_IN_WINDOWS_CONTAINERS
                if result["securityContext"].get(field) is not None
            ]
        causes.extend(forbidden(field, "cannot be set for a windows pod") for field in fields)


def _at(obj: Object, field: str) -> bool:
    """Whether the field is set; `hostPID` and `hostIPC` are so if they are true."""
    first, _, second = field.partition(".")
    value = (obj.get(first) or {}).get(second) if second else obj.get(first)
    return bool(value) if first in {"hostPID", "hostIPC"} else value is not None
