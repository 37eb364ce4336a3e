"""Filtering of nodes by devices, for one node and for many; dry runs of preemption with pods removed."""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.scheduler.api.device import (
    GPU_ISOLATION_PROVIDER,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_MODEL_LABEL,
    GPU_VENDOR_LABEL,
)
from seatrial.scheduler.cache.columns import Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.accelerations import DryRunBatch, FilterBatch
from seatrial.scheduler.framework.extension_points import VictimAware
from seatrial.scheduler.framework.reservation_info import MATCHED
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.plugins.deviceshare import reservation_view
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache, NodeDevices
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest
from seatrial.scheduler.plugins.deviceshare.states import SHARES, DeviceState
from seatrial.scheduler.plugins.reservation.cache import ReservationCache


@dataclass(frozen=True, slots=True)
class ClassRequest:
    """The device request of an equivalence class."""

    request: DeviceRequest
    isolation: str  # required isolation provider of shared cards; "": any
    picky: bool  # some GPU models are excluded
    gpu_shares: tuple[int, ...] | None  # by `SHARES`, if counting cards decides; None: each node is allocated by itself


CLASS_REQUEST: StateKey[ClassRequest] = StateKey("DeviceShare/wanted")


# By node, in a dry run: the devices' state, and the uids of the removed pods.
DRY_RUN: StateKey[dict[str, tuple[DeviceState, frozenset[str]]]] = StateKey("DeviceShare/dry-run")


class BatchFilter(FilterBatch, DryRunBatch, VictimAware):
    """The filter part of the plugin, with the methods that dry runs call."""

    devices: DeviceCache
    _reservation_cache: ReservationCache

    def dry_run_signature(self, node: NodeInfo, pods: Sequence[PodInfo]) -> Hashable:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        label, held = node.known.metadata.labels.get, devices.held.get
        marks = label(GPU_ISOLATION_PROVIDER), label(GPU_VENDOR_LABEL), label(GPU_MODEL_LABEL)
        return devices.state, marks, tuple([held(pod.uid) for pod in pods])

    def slots_signature(self, state: CycleState, node: NodeInfo) -> Hashable:
        return self.dry_run_signature(node, ())

    def can_batch_dry_run(self, state: CycleState) -> bool:
        return self.can_batch(state)

    def dry_run_width(self) -> int:
        return self.devices.dry_run_width

    def dry_run_free(self, node: NodeInfo) -> Sequence[int] | None:
        devices = self.devices.find(node.name)
        if devices is not None and devices.listed and devices.state.template.traits.honour:
            return None
        return self.devices.dry_run_free(devices)

    def dry_run_keys(self, node: NodeInfo, pods: Sequence[PodInfo]) -> Sequence[Hashable]:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return [None] * len(pods)
        template, held = devices.state.template, devices.held.get
        return [(template, held(pod.uid)) for pod in pods]

    def dry_run_held(self, node: NodeInfo, pod: PodInfo) -> Sequence[int]:
        return self.devices.dry_run_held(self.devices.find(node.name), pod.uid)

    def dry_run_filter(self, state: CycleState, free: Ints) -> Bools:
        target = state[CLASS_REQUEST]
        assert target.gpu_shares is not None
        cards = free[:, 1:].reshape(len(free), len(SHARES) + 1, -1)
        suffices = np.ones((len(free), cards.shape[2]), np.bool_)
        percent = target.gpu_shares[SHARES.index(GPU_MEMORY_RATIO)]
        if percent:  # has to be free in bytes too (`Template.left`)
            suffices &= percent * cards[:, -1] // 100 <= cards[:, SHARES.index(GPU_MEMORY)]
        for share, need in enumerate(target.gpu_shares):
            if need:  # a card with no free amount fits no request: every request names an amount
                suffices &= cards[:, share] >= need
        ok: Bools = np.add.reduce(suffices, axis=1, dtype=np.int16) >= target.request.types[0].count
        ok |= free[:, 0] > 0
        return ok

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node, -1)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node, 1)

    def _move_in_dry_run(self, state: CycleState, victim: PodInfo, node: NodeInfo, sign: int) -> None:
        """Remove a pod that holds devices (-1), or put it back (1).

        A pod that is put there without holding any, as a nominated one, gets those that it would be allocated.
        """
        devices = self.devices.find(node.name) if CLASS_REQUEST in state else None
        holding = devices.held.get(victim.uid) if devices is not None else None
        if devices is not None and holding is None and sign > 0 and devices.listed:
            self._imagine(state, victim, devices)
            return
        if devices is None or holding is None:
            return
        dry_run = state.get(DRY_RUN) or {}
        there, gone = dry_run.get(node.name, (devices.state, frozenset()))
        if (victim.uid in gone) is (sign > 0):
            after, left_out = there.moved(holding.shares, sign), gone ^ {victim.uid}
            reserved = self._reservation_cache.holding(victim.uid)
            overlooked = (state.get(MATCHED) or {}).get(node.name, ())
            if (
                reserved is not None
                and reserved.annotation
                and reserved.node == node.name
                and reserved not in overlooked
            ):
                # back to the reservation (DEV-R63)
                after = after.moved(reservation_view.left(devices, reserved, gone), -1)
                after = after.moved(reservation_view.left(devices, reserved, left_out), 1)
            state[DRY_RUN] = {
                **dry_run,
                node.name: (after, left_out),
            }  # copies of the cycle state made earlier keep their dictionary

    def _imagine(self, state: CycleState, info: PodInfo, devices: NodeDevices) -> None:
        """Dry run: take the devices that a pod would be allocated on this node."""
        after = self._after(state, info, devices)
        if after is not None:
            dry_run = state.get(DRY_RUN) or {}
            gone = dry_run[devices.name][1] if devices.name in dry_run else frozenset[str]()
            state[DRY_RUN] = {**dry_run, devices.name: (after, gone)}

    @abstractmethod
    def _after(self, state: CycleState, info: PodInfo, devices: NodeDevices) -> DeviceState | None:
        """The state of the devices, in the dry run, when this pod has got some; None if it gets none."""

    def _view(self, state: CycleState, devices: NodeDevices) -> NodeDevices:
        """The node's devices and their holders, in the dry run if there is one."""
        dry_run = state.get(DRY_RUN)
        if dry_run is None or devices.name not in dry_run:
            return devices
        there, gone = dry_run[devices.name]
        return devices.simulated(there, {uid: entry for uid, entry in devices.held.items() if uid not in gone})

    def _state_in_dry_run(self, state: CycleState, devices: NodeDevices) -> DeviceState:
        """The state of the node's devices, in the dry run if there is one."""
        dry_run = state.get(DRY_RUN)
        return dry_run[devices.name][0] if dry_run is not None and devices.name in dry_run else devices.state
