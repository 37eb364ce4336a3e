"""The command line, environment and limits of a container, for runtimes that run processes."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.harness.apiserver.quantities import CPU, MEMORY, Quantity, QuantityError, amount
from seatrial.harness.devices.provider import Device
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes.pods import ContainerPlan
from seatrial.harness.nodes.runtimes.protocol import Work
from seatrial.harness.nodes.variables import resolve_env

_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")

_CUDA = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit. CPU in thousandths of a core, memory in bytes; `request` is of CPU."""

    cpu: int | None = None
    memory: int | None = None
    request: int = 0

    def __bool__(self) -> bool:
        return self.cpu is not None or self.memory is not None


def environment(work: Work, container: ContainerPlan) -> dict[str, str]:
    """The container's variables with those of the grant; `$(NAME)` in the pod's variables is substituted in order.

    Raises:
        Unresolved: a required key of an object does not exist.
    """
    grant = work.grants.get(container.name)
    resolved = resolve_env(work.pod, container, {}, ip=work.ip, host_ip=work.host_ip, objects=work.objects)
    own = {variable.name for variable in container.env}
    env = {name: value for name, value in resolved.items() if name not in own}
    for variable in container.env:
        value = resolved.get(variable.name)
        if value is None:
            continue  # an optional key that does not exist
        env[variable.name] = value if variable.value_from else expanded(value, env)
    return {**env, **(grant.env if grant else {})}


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Kubernetes' substitution: `$(NAME)` if the name is known, `$$` for a dollar sign; other text stays."""

    def one(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return env.get(match[1], match[0])

    return _REFERENCE.sub(one, text)


def words(container: ContainerPlan, env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The command line: `command` and `args` after substitution."""
    return [expanded(argument, env) for argument in container.command], [
        expanded(argument, env) for argument in container.args
    ]


def limits_of(container: ContainerPlan) -> Limits:
    """The limits of the container. An amount that is no quantity counts as absent; admission refuses such pods."""
    limits, requests = container.resources.limits, container.resources.requests
    request = _amount(requests, CPU)
    return Limits(_amount(limits, CPU), _amount(limits, MEMORY), request if request is not None else 0)


def _amount(resources: Mapping[str, Quantity], name: str) -> int | None:
    try:
        return amount(name, resources[name]) if name in resources else None
    except QuantityError:
        return None


def found_here(program: str, env: Mapping[str, str], folder: str) -> bool:
    """Whether `exec` would find a program, with `folder` as working directory."""
    if "/" in program:
        return shutil.which(program if program.startswith("/") else f"{folder}/{program}") is not None
    return shutil.which(program, path=env.get("PATH", "/usr/bin:/bin")) is not None


def visible_cards(nodes: Sequence[str], cards: Sequence[Device]) -> dict[str, str]:
    """Variables by which vendor libraries restrict a process to its cards: those whose device files were granted.

    A vendor whose cards are in the machine and not in the grant gets an empty list, since the process could open them
    all. NVIDIA's are named by UUID, the only name that does not depend on an enumeration order.
    """
    granted = set(nodes)
    env: dict[str, str] = {}
    for vendor in VENDORS.values():
        own = [card for card in cards if card.vendor == vendor.name and card.kind == "gpu"]
        if own and vendor.visible:
            chosen = [card for card in own if granted.intersection(card.nodes)]
            env[vendor.visible] = ",".join(card.uuid if vendor.visible_by_uuid else str(card.index) for card in chosen)
    if env.get(_CUDA):
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return env
