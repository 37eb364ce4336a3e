"""Many nodes at once for requests of GPUs alone: what a node's cards have stands in columns of numbers.

`DeviceShare.filter` and `DeviceShare.score` stay the definition of what is worked out here.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.api.device import GPU_ISOLATION_PROVIDER, GPU_MODEL_LABEL, GPU_VENDOR_LABEL
from scheduler.cache.columns import Batch, Bools, Ints
from scheduler.framework.handle import Handle
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.points import FilterColumns, ScoreColumns, TrialColumns
from scheduler.framework.state import CycleState
from scheduler.framework.status import SUCCESS, Status
from scheduler.plugins.deviceshare.allocator import verdict
from scheduler.plugins.deviceshare.cache import (
    DIVISOR,
    FLAGS,
    FREE,
    HAS_TREE,
    HONOURS,
    LISTED,
    NO_ENTRY,
    SHOWN,
    TOTAL,
    WEIGHTS,
    DeviceCache,
)
from scheduler.plugins.deviceshare.gpus import Policy
from scheduler.plugins.deviceshare.request import DeviceRequest
from scheduler.plugins.deviceshare.states import SHARES
from scheduler.plugins.deviceshare.topology import NO_CARDS
from scheduler.plugins.deviceshare.wanted import WANTED


class _Stacked(NamedTuple):
    """What some classes ask of GPUs."""

    shares: Ints  # what each card must have, [share, 1, class, 1]
    counts: Ints  # and of how many cards, [class, 1]
    requests: list[DeviceRequest]


class DeviceColumns(FilterColumns, ScoreColumns, TrialColumns):
    """The columnar points of DeviceShare."""

    faceted = True

    def __init__(self, handle: Handle, policy: Policy) -> None:
        self._policy = policy
        self.devices = DeviceCache.of(handle)
        self._number, self._column_scorer = self.devices.weigh(policy.scorer)

    # -- filter -------------------------------------------------------------------------------------------------------

    def columnar(self, state: CycleState) -> bool:
        wanted = state[WANTED]
        return wanted.gpu_shares is not None and not wanted.isolation and not wanted.picky

    def stack(self, states: Sequence[CycleState]) -> _Stacked:
        wanted = [state[WANTED] for state in states]
        shares = np.array([one.gpu_shares for one in wanted], np.int64).T
        requests = [one.request for one in wanted]
        counts = np.array([[one.types[0].count] for one in requests], np.int64)
        return _Stacked(shares[:, None, :, None], counts, requests)

    def passing(self, stacked: _Stacked, batch: Batch) -> Bools | None:
        shown = batch.own(SHOWN)
        # A card with nothing in it (unhealthy, or a filler) suffices for nobody: every request names an amount.
        cards = shown[self.devices.first_card :]
        cards = cards.reshape(len(SHARES), len(cards) // len(SHARES), 1, batch.size)  # there may be no node at all
        suffices = cards[0] >= stacked.shares[0]
        for have, need in zip(cards[1:], stacked.shares[1:], strict=True):
            suffices &= have >= need
        ok: Bools = np.add.reduce(suffices, dtype=np.int8) >= stacked.counts
        ok |= shown[LISTED] == NO_ENTRY
        if self.devices.honouring:
            for index, one, status in self._by_table(stacked, batch):
                ok[index, one] = status.ok
        return ok

    def filter_facet(self, stacked: object, node: NodeInfo) -> Hashable:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        state = devices.state
        if state.cards is None:
            state.find_facets()
        return state if state.template.traits.honour else state.cards

    def passing_on(self, stacked: _Stacked, node: NodeInfo) -> Bools:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return np.ones(len(stacked.requests), np.bool_)
        cards = self.devices.shown(devices.state)[self.devices.first_card :].reshape(len(SHARES), -1, 1)
        ok: Bools = np.add.reduce((cards >= stacked.shares[:, 0, :, 0][:, None]).all(axis=0)) >= stacked.counts[:, 0]
        if devices.state.template.traits.honour:
            for index, request in enumerate(stacked.requests):
                if not request.types[0].shared:
                    ok[index] = verdict(devices.state, request, self._policy).ok
        return ok

    def _by_table(self, stacked: _Stacked, batch: Batch) -> Iterator[tuple[int, int, Status]]:
        """Verdicts on nodes where counting cards does not decide: class, place in the batch, and what is said there."""
        whole = [(index, one) for index, one in enumerate(stacked.requests) if not one.types[0].shared]
        for place in np.flatnonzero(batch.own(SHOWN)[FLAGS] & HONOURS) if whole else ():
            devices = self.devices.find(batch.columns.names[batch.rows[place]])
            if devices is not None:
                for index, request in whole:
                    yield index, int(place), verdict(devices.state, request, self._policy)

    def rejections(self, stacked: _Stacked, batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        passing = self.passing(stacked, batch)
        assert passing is not None  # noqa: S101
        shown, gpu = batch.own(SHOWN), stacked.requests[0].types[0]
        insufficient = "Insufficient gpu devices"
        said = [SUCCESS, Status.unresolvable(insufficient), Status.unschedulable(insufficient)]
        refused = np.full(batch.size, 2, np.int64)
        if not (gpu.shared and gpu.count > 1):
            said.append(NO_CARDS)
            refused += (shown[FLAGS] & HAS_TREE) != 0
        codes = np.where(passing[0], 0, np.where(shown[LISTED] == 0, 1, refused))
        if self.devices.honouring:
            for _, place, status in self._by_table(stacked, batch):
                if not status.ok:
                    if status not in said:
                        said.append(status)
                    codes[place] = said.index(status)
        return codes, said.__getitem__

    # -- score --------------------------------------------------------------------------------------------------------

    def columnar_scores(self, state: CycleState) -> bool:
        return state[WANTED].gpu_shares is not None

    def stack_scores(self, states: Sequence[CycleState]) -> Ints:
        """What each card must have, [share, class, 1]."""
        return np.array([state[WANTED].gpu_shares for state in states], np.int64).T[..., None]

    def scores(self, stacked: Ints, batch: Batch) -> Ints | None:
        shown = batch.own(SHOWN)
        return self._column_scorer.scores(
            shown[TOTAL], shown[DIVISOR], shown[FREE], shown[WEIGHTS + self._number], stacked
        )

    def score_facet(self, stacked: Ints, node: NodeInfo) -> Hashable:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        if devices.state.level is None:
            devices.state.find_facets()
        return devices.state.level

    def scores_on(self, stacked: Ints, node: NodeInfo) -> Ints:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return np.zeros(stacked.shape[1], np.int64)
        shown = self.devices.shown(devices.state)[:, None]
        return self._column_scorer.scores(
            shown[TOTAL], shown[DIVISOR], shown[FREE], shown[WEIGHTS + self._number], stacked
        )[:, 0]

    # -- preemption ---------------------------------------------------------------------------------------------------

    def trial_facet(self, node: NodeInfo, pods: Sequence[PodInfo]) -> Hashable:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        label, held = node.known.metadata.labels.get, devices.held.get
        marks = label(GPU_ISOLATION_PROVIDER), label(GPU_VENDOR_LABEL), label(GPU_MODEL_LABEL)
        return devices.state, marks, tuple([held(pod.uid) for pod in pods])

    def trial_columnar(self, state: CycleState) -> bool:
        return self.columnar(state)

    def trial_width(self) -> int:
        return self.devices.trial_width

    def trial_free(self, node: NodeInfo) -> Sequence[int] | None:
        devices = self.devices.find(node.name)
        if devices is not None and devices.listed and devices.state.template.traits.honour:
            return None
        return self.devices.trial_free(devices)

    def trial_keys(self, node: NodeInfo, pods: Sequence[PodInfo]) -> Sequence[Hashable]:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return [None] * len(pods)
        template, held = devices.state.template, devices.held.get
        return [(template, held(pod.uid)) for pod in pods]

    def trial_held(self, node: NodeInfo, pod: PodInfo) -> Sequence[int]:
        return self.devices.trial_held(self.devices.find(node.name), pod.uid)

    def trial_passing(self, state: CycleState, free: Ints) -> Bools:
        wanted = state[WANTED]
        assert wanted.gpu_shares is not None  # noqa: S101
        cards = free[:, 1:].reshape(len(free), len(SHARES), -1)
        suffices = np.ones((len(free), cards.shape[2]), np.bool_)
        for share, need in enumerate(wanted.gpu_shares):
            if need:  # a card with nothing in it suffices for nobody: every request names an amount
                suffices &= cards[:, share] >= need
        ok: Bools = np.add.reduce(suffices, axis=1, dtype=np.int16) >= wanted.request.types[0].count
        ok |= free[:, 0] > 0
        return ok
