"""Annotations and labels that make vendors' device plugins hand out the chosen cards (DEV-R71 to DEV-R74).

Names are the plugins' own, including misspellings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.plugins.deviceshare.shares import Share, Shares

BIND_TIMESTAMP = "scheduling.koordinator.sh/bind-timestamp"
GPU_MINORS = "scheduling.koordinator.sh/gpu-minors"
VGPU_NODE_LABEL = "hami.io/vgpu-node"

PREDICATE_TIME = "predicate-time"
HUAWEI_CORE = "huawei.com/npu-core"
HUAWEI_310P = "huawei.com/Ascend310P"
CAMBRICON_ASSIGNED = "CAMBRICON_DSMLU_ASSIGHED"
CAMBRICON_PROFILE = "CAMBRICON_DSMLU_PROFILE"
METAX_ALLOCATED = "metax-tech.com/gpu-devices-allocated"
CAMBRICON_LOCK = "cambricon.com/dsmlu.lock"
METAX_LOCK = "hami.io/mutex.lock"

_TWO_CHIPS = "Ascend-310P3-300I-DUO"
_MIB = 1 << 20
_PROFILE_BYTES = 256 * _MIB


class RefusedError(ValueError):
    """The vendor's device plugin cannot serve these cards; the text is Koordinator's reason."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """Annotations for the pod, and the annotation that locks the node until the plugin has read them."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    lock: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """The cards of a pod, in the order of the choice."""

    cards: Sequence[Share]
    ids: Sequence[str]
    model: str
    shared: bool
    now: int  # nanoseconds since 1970


def minors(shares: Shares) -> str:
    """GPU minors as in the annotation `gpu-minors`; "" if there are none."""
    return ",".join(str(share.minor) for share in shares if share.type == "gpu")


def adapt(vendor: str, grant: Grant) -> Adapted:
    """Annotations that a vendor's plugin needs besides those for all vendors.

    Raises:
        RefusedError: the plugin could not serve that.
    """
    adapter = _ADAPTERS.get(vendor)
    return adapter(grant) if adapter is not None else Adapted()


def _huawei(grant: Grant) -> Adapted:
    annotations = {PREDICATE_TIME: str(grant.now)}
    first = grant.cards[0]
    if grant.model == _TWO_CHIPS:
        annotations[HUAWEI_310P] = ",".join(f"Ascend310P-{card.minor}" for card in grant.cards)
    elif first.template:
        annotations[HUAWEI_CORE] = f"{first.minor}-{first.template}"
    else:
        annotations[HUAWEI_CORE] = ",".join(str(card.minor) for card in grant.cards)
    return Adapted(annotations)


def _cambricon(grant: Grant) -> Adapted:
    """Whole cards need no annotation. Upstream also annotates and locks for them, and nothing ever unlocks that."""
    if not grant.shared:
        return Adapted()
    if len(grant.cards) > 1:
        raise RefusedError("multiple gpu share is not supported on device side")
    card = grant.cards[0]
    core, memory = _core_and_memory(card, _PROFILE_BYTES)
    profile = f"{card.minor}_{core}_{memory // _PROFILE_BYTES}"
    return Adapted({CAMBRICON_ASSIGNED: "false", CAMBRICON_PROFILE: profile}, CAMBRICON_LOCK)


def _metax(grant: Grant) -> Adapted:
    listed = []
    for card, uuid in zip(grant.cards, grant.ids, strict=True):
        core, memory = _core_and_memory(card, _MIB)
        listed.append({"uuid": uuid, "compute": core, "vRam": memory // _MIB})
    return Adapted({METAX_ALLOCATED: to_json([listed]).decode()}, METAX_LOCK)


def _core_and_memory(card: Share, least: int) -> tuple[int, int]:
    amounts = dict(card.amounts)
    if not amounts.get(GPU_CORE):
        raise RefusedError("gpu core resource is required")
    memory = amounts.get(GPU_MEMORY, 0)
    if memory < least:
        raise RefusedError(f"gpu memory must not be less than {least} bytes")
    return amounts[GPU_CORE], memory


_ADAPTERS: Mapping[str, Callable[[Grant], Adapted]] = {"huawei": _huawei, "cambricon": _cambricon, "metax": _metax}
