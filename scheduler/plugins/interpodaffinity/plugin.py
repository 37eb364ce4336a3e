"""InterPodAffinity: the extension points (kubernetes plugins/interpodaffinity, FWK-R73).

A node passes if the pods in its domains satisfy the pod's affinity, do not violate its anti-affinity, and have no
anti-affinity against the pod. Pods are counted by node when they come and go, for each selector of a term, and so are
the terms of placed pods. A cycle sums these counts over the domains of the terms that concern its pod.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.domains import Domain, Domains
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.tallies import Tallies
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, Args, PreFilter, Scope, VictimAware
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.interpodaffinity.terms import HeldTerms, Term, TermKind, terms_of

NOT_NEAR = Status.unresolvable("node(s) didn't match pod affinity rules")
TOO_NEAR = Status.unschedulable("node(s) didn't match pod anti-affinity rules")
UNWELCOME = Status.unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")

MAX_HARD_WEIGHT = 100


class _Part(IntEnum):
    """The three counts of a result; the numbers also index the statuses."""

    NEAR = 1
    FAR = 2
    HELD = 3


_STATUSES = {_Part.NEAR: NOT_NEAR, _Part.FAR: TOO_NEAR, _Part.HELD: UNWELCOME}

Place = tuple[_Part, str, str]  # with the label's key and value


class InterPodAffinityArgs(Args, frozen=True):
    """Upstream's arguments."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def check(self) -> None:
        if not 0 <= self.hard_pod_affinity_weight <= MAX_HARD_WEIGHT:
            raise ValueError(
                f"hardPodAffinityWeight: expected 0 to {MAX_HARD_WEIGHT}, found {self.hard_pod_affinity_weight}"
            )


@dataclass(slots=True)
class _PodTerms:
    """The terms that decide about one pod in a cycle; `counts` is computed when a node is evaluated by itself."""

    pod: Pod
    near: tuple[Term, ...]
    far: tuple[Term, ...]
    held: tuple[Term, ...]  # of placed pods, against this one
    first_of_kind: bool  # the pod matches its own terms, so without any other match it may go anywhere
    counts: dict[Place, int] | None = None


@dataclass(frozen=True, slots=True)
class _Weighed:
    """Terms, and the weight of each pod that they match or that holds them."""

    own: tuple[tuple[Term, int], ...]
    held: tuple[tuple[Term, int], ...]


POD_TERMS: StateKey[_PodTerms] = StateKey("InterPodAffinity/pod_terms")
SIMULATED: StateKey[dict[Place, int]] = StateKey("InterPodAffinity/simulated")
WEIGHED: StateKey[_Weighed] = StateKey("InterPodAffinity/weighed")
SURVEY: StateKey[dict[tuple[str, str], int]] = StateKey("InterPodAffinity/survey")


class InterPodAffinity(PreFilter, FilterBatch, ScoreBatch, VictimAware):
    """The extension points of InterPodAffinity."""

    name = "InterPodAffinity"
    scope = Scope.CLUSTER

    def __init__(self, handle: Handle, args: InterPodAffinityArgs | None = None) -> None:
        self._handle = handle
        self._cache = handle.cache
        self._args = args or InterPodAffinityArgs()

    @cached_property
    def _tallies(self) -> Tallies:
        return self._handle.shared(Tallies)

    @cached_property
    def _held(self) -> HeldTerms:
        return self._handle.shared(HeldTerms)

    def concerns(self, pod: Pod) -> bool:
        affinity = pod.spec.affinity
        if affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None):
            return True
        held = self._held
        return bool(held.holders) and any(True for _ in held.about(pod))

    def label_keys(self, pod: Pod) -> frozenset[str]:
        own = [term.matcher.label_keys() for term in terms_of(pod)]
        return frozenset().union(*own)

    # -- filter -------------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        terms = terms_of(pod)
        near = tuple(term for term in terms if term.kind is TermKind.NEAR)
        far = tuple(term for term in terms if term.kind is TermKind.FAR)
        held = tuple(term for term in self._held.about(pod) if term.kind is TermKind.FAR)
        if not (near or far or held):
            return Status.skip()
        first = all(term.matches(pod, self._cache.namespaces) for term in near)
        state[POD_TERMS] = _PodTerms(pod, near, far, held, first)
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        pod_terms, labels = state[POD_TERMS], node.known.metadata.labels
        counts = _Counts(self._counted(pod_terms), state.get(SIMULATED))
        if not all(term.key in labels for term in pod_terms.near):
            return NOT_NEAR
        missing = any(counts.at(_Part.NEAR, term.key, labels[term.key]) <= 0 for term in pod_terms.near)
        if missing and not (pod_terms.first_of_kind and counts.nothing_near()):
            return NOT_NEAR
        for part, terms in ((_Part.FAR, pod_terms.far), (_Part.HELD, pod_terms.held)):
            if any(term.key in labels and counts.at(part, term.key, labels[term.key]) > 0 for term in terms):
                return _STATUSES[part]
        return SUCCESS

    def _counted(self, pod_terms: _PodTerms) -> dict[Place, int]:
        """Pods by domain, counted node by node: the reference for the arrays."""
        if pod_terms.counts is None:
            counts = pod_terms.counts = {}
            for node in self._cache:
                labels = node.known.metadata.labels
                for part, term, rows in self._parts(pod_terms):
                    if term.key in labels and rows[node.row]:
                        place = (part, term.key, labels[term.key])
                        counts[place] = counts.get(place, 0) + int(rows[node.row])
        return pod_terms.counts

    def _parts(self, pod_terms: _PodTerms) -> Iterator[tuple[_Part, Term, Ints]]:
        """For each term, the number of matching pods on each row.

        For affinity, pods that match all terms: a domain must not satisfy one term by one pod and another term by
        another.
        """
        count = self._cache.columns.count
        if pod_terms.near:
            rows = self._tallies.of(*(term.matcher for term in pod_terms.near)).rows[:count]
            for term in pod_terms.near:
                yield _Part.NEAR, term, rows
        for term in pod_terms.far:
            yield _Part.FAR, term, self._tallies.of(term.matcher).rows[:count]
        for term in pod_terms.held:
            yield _Part.HELD, term, self._held.rows(term)

    def reasons_batch(self, stacked: Sequence[CycleState], batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        """The number of the rejecting part; the first if several reject."""
        (state,) = stacked
        pod_terms = state[POD_TERMS]
        count = self._cache.columns.count
        carrying, near = np.ones(count, np.bool_), np.ones(count, np.bool_)
        against = {_Part.FAR: np.zeros(count, np.bool_), _Part.HELD: np.zeros(count, np.bool_)}
        nothing_near = True
        for part, term, rows in self._parts(pod_terms):
            domain = self._domain(term)
            present = domain.present()
            here = (domain.around(rows, present) > 0) & present
            if part is _Part.NEAR:
                carrying &= present
                near &= here
                nothing_near &= not here.any()
            else:
                against[part] |= here
        if pod_terms.near and nothing_near and pod_terms.first_of_kind:
            near = carrying
        codes = np.where(against[_Part.HELD], int(_Part.HELD), 0)
        codes[against[_Part.FAR]] = _Part.FAR
        codes[~near] = _Part.NEAR
        return batch.pick(codes), lambda code: _STATUSES[_Part(code)]

    def filter_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return np.stack([self.reasons_batch([state], batch)[0] == 0 for state in stacked])

    def _domain(self, term: Term) -> Domain:
        return self._handle.shared(Domains).of(term.key)

    # -- preemption ---------------------------------------------------------------------------------------------------

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node, -1)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node, 1)

    def _move_in_dry_run(self, state: CycleState, victim: PodInfo, node: NodeInfo, change: int) -> None:
        """Dry run: add or remove the victim in all counts of `_parts`; it alone may hold terms against the pod."""
        pod_terms = state.get(POD_TERMS)
        if pod_terms is None:
            return
        known, labels = self._cache.namespaces, node.known.metadata.labels
        touched: list[tuple[_Part, Term]] = []
        if all(term.matches(victim.pod, known) for term in pod_terms.near):
            touched += [(_Part.NEAR, term) for term in pod_terms.near]
        touched += [(_Part.FAR, term) for term in pod_terms.far if term.matches(victim.pod, known)]
        touched += [
            (_Part.HELD, term)
            for term in terms_of(victim.pod)
            if term.kind is TermKind.FAR and term.matches(pod_terms.pod, known)
        ]
        before = state.get(SIMULATED)
        simulated = {} if before is None else before.copy()
        for part, term in touched:
            if term.key in labels:
                place = (part, term.key, labels[term.key])
                simulated[place] = simulated.get(place, 0) + change
        state[SIMULATED] = simulated

    # -- score --------------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        own = tuple(
            (term, term.weight if term.kind is TermKind.LIKES else -term.weight)
            for term in terms_of(pod)
            if term.kind in {TermKind.LIKES, TermKind.DISLIKES}
        )
        ignore = self._args.ignore_preferred_terms_of_existing_pods
        if ignore and not own:
            return False
        weights = {TermKind.NEAR: lambda _: self._args.hard_pod_affinity_weight}
        if not ignore:
            weights |= {TermKind.LIKES: lambda term: term.weight, TermKind.DISLIKES: lambda term: -term.weight}
        held = tuple((term, weights[term.kind](term)) for term in self._held.about(pod) if term.kind in weights)
        state[WEIGHED] = _Weighed(own, tuple((term, weight) for term, weight in held if weight))
        return bool(state[WEIGHED].own or state[WEIGHED].held)

    def _weights(self, weighed: _Weighed) -> Iterator[tuple[Term, int, Ints]]:
        """For each term, its weight and the number of matching pods on each row."""
        for term, weight in weighed.own:
            yield term, weight, self._tallies.of(term.matcher).rows[: self._cache.columns.count]
        for term, weight in weighed.held:
            yield term, weight, self._held.rows(term)

    def survey(self, state: CycleState, pod: Pod, nodes: Sequence[NodeInfo]) -> None:
        amounts: dict[tuple[str, str], int] = {}
        for term, weight, rows in self._weights(state[WEIGHED]):
            for node in self._cache:
                value = node.known.metadata.labels.get(term.key)
                if value is not None:
                    amounts[term.key, value] = amounts.get((term.key, value), 0) + int(rows[node.row]) * weight
        state[SURVEY] = amounts

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        survey = state[SURVEY]
        return sum(survey.get(label, 0) for label in node.known.metadata.labels.items())

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        (state,) = stacked
        total = np.zeros(self._cache.columns.count, np.int64)
        for term, weight, rows in self._weights(state[WEIGHED]):
            domain = self._domain(term)
            present = domain.present()
            total += domain.around(rows, present) * present * weight
        return batch.pick(total)[None]

    def normalize(self, state: CycleState, raw: Ints) -> Ints:
        """Map the lowest score to 0 and the highest to 100, with upstream's floating-point rounding."""
        least, most = int(raw.min()), int(raw.max())
        if least == most:
            return np.zeros_like(raw)
        return (MAX_NODE_SCORE * ((raw - least) / (most - least))).astype(np.int64)


class _Counts:
    """Counts by domain, plus the changes of a dry run."""

    def __init__(self, real: Mapping[Place, int], simulated: Mapping[Place, int] | None) -> None:
        self._real = real
        self._simulated = simulated or {}

    def at(self, part: _Part, key: str, value: str) -> int:
        place = (part, key, value)
        return self._real.get(place, 0) + self._simulated.get(place, 0)

    def nothing_near(self) -> bool:
        places = self._real.keys() | self._simulated.keys()
        return all(self.at(*place) <= 0 for place in places if place[0] is _Part.NEAR)
