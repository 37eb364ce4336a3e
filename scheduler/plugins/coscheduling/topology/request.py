"""Network topology requirements of one gang group: its rules, resolved against the layers of the tree."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby, islice

import numpy as np

from seatrial.scheduler.api.networktopology import (
    DEFAULT_TOPOLOGY,
    MUST_GATHER,
    NODE_LAYER,
    TOPOLOGY_SELECTOR,
    GatherRule,
)
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.domains import DomainChoice, DomainOffer, DomainPlan, Domains
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.coscheduling.gang import GangGroup
from seatrial.scheduler.plugins.coscheduling.topology.planner import Offers, Planner
from seatrial.scheduler.plugins.coscheduling.topology.selector import SelectorPeers
from seatrial.scheduler.plugins.coscheduling.topology.tree import NetworkTopology

TRIES = 8  # domains of one level that are tried
LISTED = 32  # domains in a message; upstream lists all


class GatherRequest(Domains):
    """The rules of one gang group. The tree is read at each plan, so a request may outlive a change of it."""

    def __init__(
        self, handle: Handle, topology: NetworkTopology, rules: Sequence[GatherRule], group: GangGroup
    ) -> None:
        self._handle, self._topology, self._rules, self._group = handle, topology, rules, group

    def levels(self) -> dict[str, int]:
        """The level of each layer by name; the root has none in annotations."""
        layers = self._topology.layers or ()
        return {name: level for level, name in enumerate([*(layer.name for layer in layers), NODE_LAYER], 1)}

    def gather_level(self) -> int | None:
        """The level of the gathering set (GANG-R55), 0 if nothing must gather; None: the tree lacks such a layer."""
        levels = self.levels()
        must = [rule.layer for rule in self._rules if rule.strategy == MUST_GATHER]
        if any(layer not in levels for layer in must):
            return None
        return max((levels[layer] for layer in must), default=0)

    def multiples(self) -> dict[int, int]:
        """podCountMultiple by level; 0 and 1 are left out."""
        levels = self.levels()
        return {
            levels[rule.layer]: rule.pod_count_multiple
            for rule in self._rules
            if rule.pod_count_multiple > 1 and rule.layer in levels
        }

    def unknown(self) -> list[str]:
        """Layers of the rules that the tree does not have, in words."""
        levels = self.levels()
        return [
            f"layer {rule.layer!r} of the gang's network-topology-spec is not in ClusterNetworkTopology"
            f" {DEFAULT_TOPOLOGY}: expected one of {', '.join(levels)}"
            for rule in self._rules
            if rule.layer not in levels
        ]

    def plan(self, offer: DomainOffer, infos: Sequence[PodInfo]) -> "GatherPlan":
        return self._plan(self._group, offer, infos)

    def plan_unheard(self, offer: DomainOffer, infos: Sequence[PodInfo]) -> "GatherPlan":
        """The plan for nodes that are not as offered yet: the words of the last attempt stay."""
        return self._plan(GangGroup(self._group.ids), offer, infos)

    def tell(self, words: str) -> None:
        """Set the explanation of the last attempt."""
        self._group.gathering = words

    def _plan(self, group: GangGroup, offer: DomainOffer, infos: Sequence[PodInfo]) -> "GatherPlan":
        topology = self._topology
        if not topology.ready:
            return GatherPlan(None, group, infos, topology.absence, multiples={}, notes=[])
        level = self.gather_level()
        offers = Offers(offer.slots, offer.counts, offer.scores, self._peers(infos[0], len(offer.scores)))
        multiples = self.multiples()
        planner = Planner(topology.view(), offers, gather=level or 0, multiples=multiples)
        notes = self.unknown()
        if topology.missing:
            name, layer = min(topology.missing.items())
            more = f" and {len(topology.missing) - 1} more" if len(topology.missing) > 1 else ""
            notes.append(f'node "{name}" missing network topology layer "{layer}"{more}')
        rounded = {planner.view.layers[one]: k for one, k in multiples.items()}
        return GatherPlan(planner, group, infos, "", multiples=rounded, notes=notes, empty=level is None)

    def shape(self) -> Hashable:
        return frozenset(rule.layer for rule in self._rules if rule.strategy == MUST_GATHER)

    @property
    def version(self) -> int:
        return self._topology.changes

    def rows(self) -> Ints | None:
        level = self.gather_level() if self._topology.ready else None
        return None if level is None else self._topology.view().domains[level]

    def _peers(self, info: PodInfo, count: int) -> Ints:
        """Existing pods with the selector value of the job, [node] (GANG-R58)."""
        value = info.pod.metadata.annotations.get(TOPOLOGY_SELECTOR)
        return SelectorPeers.of(self._handle).rows(value) if value else np.zeros(count, np.int64)


class GatherPlan(DomainPlan):
    """The candidates for one attempt, and the words about a failure."""

    def __init__(
        self,
        planner: Planner | None,
        group: GangGroup,
        infos: Sequence[PodInfo],
        problem: str,
        *,
        multiples: Mapping[str, int],
        notes: Sequence[str],
        empty: bool = False,
    ) -> None:
        """`problem`: why there is no tree; `empty`: the gathering set is empty."""
        self._planner, self._group, self._infos, self._problem = planner, group, infos, problem
        self._multiples, self._notes, self._empty = multiples, notes, empty
        group.gathering = problem

    def choices(self) -> Iterator[DomainChoice]:
        planner = self._planner
        if planner is None or self._empty:
            return
        view = planner.view
        for _, candidates in groupby(planner.candidates(), key=lambda one: one.level):
            for item in islice(candidates, TRIES):
                name = view.name(item.level, item.domain)
                self._group.gathering = f"placed in {name}"
                yield DomainChoice(name, view.rows(item.level, item.domain).tolist(), item.shares)

    def best_slots(self) -> int:
        best = self._planner.best() if self._planner is not None and not self._empty else None
        return best[1] if best is not None else 0

    def failure(self, fit_error: str, tried: Sequence[str]) -> str:
        """M17 and M18 of the specification, and messages of our own."""
        planner, size = self._planner, len(self._infos)
        if planner is None:
            return self._problem
        view, level = planner.view, planner.gather
        offers: list[str] = []
        alive = set(view.domains[level][view.domains[level] >= 0].tolist()) if not self._empty else set()
        offers = sorted(
            f"topology topologyNode {view.name(level, domain)}: {planner.slots[level][domain]}" for domain in alive
        )
        listed = ";".join(offers[:LISTED])
        if len(offers) > LISTED:
            listed += f";… {len(offers) - LISTED} more"
        text = f"no candidate topology nodes can accommodate job, desiredOfferSlot: {size}, {listed}, {fit_error}"
        if self._multiples:
            rounded = ", ".join(f"{layer}={k}" for layer, k in sorted(self._multiples.items()))
            text += f"; podCountMultiple constraints: {rounded}"
        for words in self._notes:
            text += f"; {words}"
        best = planner.best() if alive else None
        if best is not None:
            domain, slots = best
            member = self._infos[min(slots, size - 1)].key
            self._group.gathering = (
                f"best domain {view.name(level, domain)} has room for {slots} of {size} members; the first without"
                f" a place is {member}"
            )
            if tried:
                words = f"tried without success, because of rules on other pods' places: {', '.join(tried)}"
                text += f"; {words}"
                self._group.gathering += f"; {words}"
        else:
            self._group.gathering = "; ".join(["no domain", *self._notes])
        return text
