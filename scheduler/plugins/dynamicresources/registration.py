"""What DynamicResources adds to the scheduler besides extension points: claims, classes, slices and rules followed."""

from functools import partial

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.resourceclaims import (
    CLAIMS_PATH,
    CLASSES_PATH,
    SLICES_PATH,
    TAINT_RULES_PATH,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.dynamicresources.claims import ClaimKey, Claims, keys_of, names_key
from seatrial.scheduler.plugins.dynamicresources.deallocation import Deallocations, Deallocator


class _Listener:
    def __init__(self, claims: Claims, handle: Handle) -> None:
        self._claims, self._handle = claims, handle
        self._labels: dict[str, dict[str, str]] = {}
        self._claims_of: dict[str, set[ClaimKey]] = {}  # of pods with claims by templates, by uid

    def pod_pending(self, pod: Pod) -> None:
        """The core asks pods again whose spec changed; the names of a pod's claims come with its status. A pod that
        waits for a claim that is not there, or is not its own, may have another one now."""
        if not pod.status.resource_claim_statuses:
            return
        uid, keys = pod.metadata.uid, {key for _, key in keys_of(pod) if key is not None}
        self._handle.open_gate(names_key(pod))
        for key in self._claims_of.get(uid, set()) - keys:
            self._claims.wake_users(key)
        self._claims_of[uid] = keys

    def pod_left(self, uid: str) -> None:
        self._claims_of.pop(uid, None)

    def node_changed(self, name: str, node: Node | None) -> None:
        labels = None if node is None else node.metadata.labels
        if labels is None:
            self._labels.pop(name, None)
        elif self._labels.get(name) == labels:
            return
        else:
            self._labels[name] = labels
        self._claims.inventory.node_changed(name)


def register(handle: Handle) -> None:
    """Register the watches and the controller. Call after the plugins of all profiles are built."""
    if not handle.has_shared(Claims):
        return  # no profile runs the plugin
    claims = handle.shared(Claims)
    inventory = claims.inventory
    listener = _Listener(claims, handle)
    handle.on_pod_pending(listener.pod_pending)
    handle.on_pod_left(listener.pod_left)
    handle.on_node_changed(listener.node_changed)
    handle.watch(Watch(CLASSES_PATH, DeviceClass, claims.set_class, claims.remove_class))
    handle.watch(Watch(SLICES_PATH, ResourceSlice, inventory.set, inventory.remove))
    handle.watch(Watch(TAINT_RULES_PATH, DeviceTaintRule, inventory.set_rule, partial(inventory.set_rule, gone=True)))
    handle.watch(Watch(CLAIMS_PATH, ResourceClaim, claims.set_claim, claims.remove_claim))
    handle.control(lambda context: Deallocator(handle.shared(Deallocations), context))
