"""Gangs against the reference: every attempt of a Strict gang is placed anew by a scheduler that keeps nothing.

The reference is a fresh core with the nodes and the placed pods of the cluster. It asks every plugin for every node,
for one member after another. Both must bind the same members to the same nodes, or none.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.app import build_core
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.plugins.coscheduling.cache import GangAttempt
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig
from seatrial.scheduler.tests.oracle import judge, judge_group
from seatrial.scheduler.tests.play import first_ready, stories
from seatrial.scheduler.tests.rig import profile

MINIMA = {"a": 2, "b": 3, "c": 4}
PAIR = ["default/p", "default/q"]  # one gang group: a parameter server and two workers
PACKING = {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]}
SHAPES: list[dict[str, Any]] = [{"cpu": 1}, {"cpu": 2}, {"cpu": 1, "gpus": 1}, {"cpu": 1, "share": 50}]


class Story(GangRig):
    """A rig that asks the reference before each decision."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.configuration = configuration
        self.nodes: dict[str, tuple[int, int]] = {}
        self.bound: dict[str, Pod] = {}
        self.count = 0
        self.groups_bound = 0
        for name, minimum in MINIMA.items():
            self.group(gang(name, minimum))
        self.group(gang("p", 1).together_with(*PAIR))
        self.group(gang("q", 2).together_with(*PAIR))

    def act(self, kind: str, value: Any) -> None:
        if kind == "node":
            name, cpu, gpus = value
            self.nodes[name] = (cpu, gpus)
            self.node(name, cpu=str(cpu), gpus=gpus)
        elif kind == "pod":
            group, shape = value
            self.count += 1
            self.submit(built(f"{group or 'x'}{self.count}", group, SHAPES[shape]))
        elif kind == "delete" and self.bound:
            uid = sorted(self.bound)[value % len(self.bound)]
            del self.bound[uid]
            self.core.intake.remove_pod(uid)
        elif kind == "time":
            self.clock.advance(value)
        self.play()

    def play(self) -> None:
        for _ in range(100):
            if not self.core.busy:
                return
            entry = first_ready(self.core)
            amounts = self.expected(entry) if entry is not None and not self.core.outbox.decisions else None
            given_nodes = {}
            for decision in self.core.decide():
                if isinstance(decision, Bind):
                    given_nodes[decision.info.uid] = decision.node
                    self.confirm(decision)
            if amounts is not None:
                assert given_nodes == amounts
        raise AssertionError("the queue does not come to rest")

    def confirm(self, decision: Bind) -> None:
        """The binding succeeds, and the informer delivers the pod."""
        old = decision.info.pod
        metadata = replace(old.metadata, annotations={**old.metadata.annotations, **decision.annotations})
        self.core.bound(decision.info.uid)
        self.bound[decision.info.uid] = Pod(metadata, replace(old.spec, node_name=decision.node), old.status)
        self.core.intake.set_pod(self.bound[decision.info.uid])

    def expected(self, entry: Entry) -> dict[str, str]:
        """What the reference does with the first pod of the queue and its group."""
        fresh = self.fresh()
        gang = self.cache.gang_of(entry.info.uid)
        if gang is None or gang.once_satisfied:
            info = entry.info
            node = judge(fresh, fresh.runners.of(info), info).node
            return {info.uid: node} if node else {}
        attempt = GangAttempt(self.cache, gang.group)
        pods = {uid: one.children[uid] for one in self.cache.gangs.values() for uid in one.children}
        order = [pods[uid] for uid in self.core.groups._order(attempt, entry)]
        minima = {name.removeprefix("default/"): self.cache.gangs[name].minimum for name in gang.group.ids}

        def satisfied(placed: Sequence[Pod]) -> bool:
            counts = Counter(one.metadata.labels["pod-group.scheduling.sigs.k8s.io"] for one in placed)
            return all(counts[name] >= minimum for name, minimum in minima.items())

        nodes = judge_group(fresh, order, satisfied) or {}
        self.groups_bound += bool(nodes)
        return nodes

    def fresh(self) -> Core:
        """A core that has just started: nothing is kept, nothing was undone."""
        other = GangRig(self.configuration)
        other.core = build_core(self.configuration, other.clock)
        for name, (cpu, gpus) in self.nodes.items():
            other.node(name, cpu=str(cpu), gpus=gpus)
        for one in self.bound.values():
            other.core.intake.set_pod(one)
        return other.core


def built(name: str, group: str, shape: dict[str, Any]) -> PodBuilder:
    builder = pod(name).request(cpu=shape["cpu"])
    if "gpus" in shape:
        builder = builder.gpus(shape["gpus"])
    if "share" in shape:
        builder = builder.gpu_share(shape["share"])
    return builder.in_gang(group) if group else builder


NODES = st.tuples(st.just("node"), st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.integers(2, 6), st.integers(0, 2)))
PODS = st.tuples(st.just("pod"), st.tuples(st.sampled_from([*MINIMA, "p", "q", ""]), st.integers(0, len(SHAPES) - 1)))
ENDS = st.tuples(st.just("delete"), st.integers(0, 7))
TIMES = st.tuples(st.just("time"), st.sampled_from([1, 11, 301]))


@pytest.mark.parametrize("configuration", [profile(), profile(**PACKING)], ids=["spread", "pack"])
@given(events=st.lists(st.one_of(PODS, PODS, PODS, NODES, ENDS, TIMES), min_size=8, max_size=45))
@stories(60)
def test_gangs_are_placed_as_from_scratch(configuration: Configuration, events: list[tuple[str, Any]]) -> None:
    story = Story(configuration)
    story.act("node", ("n0", 6, 2))
    for kind, value in events:
        story.act(kind, value)


def test_the_stories_bind_gangs() -> None:
    """The stories judge something: this one binds two groups, of which one has two gangs."""
    story = Story(profile())
    story.act("node", ("n0", 6, 2))
    for group, shape in (("a", 2), ("a", 3), ("q", 0), ("q", 0), ("p", 1)):
        story.act("pod", (group, shape))
    assert story.groups_bound == 2
