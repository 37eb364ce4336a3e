"""Random stories of elastic quotas against an oracle that adds everything up anew."""

from typing import Any

import pytest
from hypothesis import strategies as st

from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import QuotaBuilder, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import (
    IGNORE_DEFAULT_TREE,
    IS_ROOT,
    NAMESPACES,
    PARENT,
    PREEMPTIBLE,
    QUOTA_NAME,
    QUOTAS_PATH,
    SHARED_WEIGHT,
    SYSTEM_QUOTA,
    TOTAL_RESOURCE,
    TREE_ID,
)
from seatrial.suites.properties.quota_rules import quota_rules
from seatrial.suites.properties.stories import Setting, Step, again, bare, eventful, judge, setting

__all__ = ["setting"]

_LEAVES, _PARENTS = ("a", "b", "c", "story"), ("p", "q")  # one has the name of the namespace
_ROOTS = ("t", "u")  # of one other tree: the older one has its total
_EACH = [*_LEAVES, *_PARENTS, *_ROOTS]
_AMOUNT = st.integers(0, 8)
_NUMBERS = st.integers(0, 5)  # of pods
_LISTS = st.sampled_from(['["story"]', '["other", "story"]', '["other"]'])
_SHARED = st.sampled_from([{IGNORE_DEFAULT_TREE: "true"}, {}])
_TOTALS = st.integers(0, 8).map(lambda cores: f'{{"cpu": {cores}, "memory": "{cores}Gi"}}')
_NAMES = st.sampled_from([*_LEAVES, *_LEAVES, "nobody", SYSTEM_QUOTA, None])


@st.composite
def _quotas(draw: st.DrawFn, name: str) -> Step:
    """A leaf at the root or below a parent, or a parent."""
    one: QuotaBuilder = quota(name)
    least, more = draw(_AMOUNT), draw(_AMOUNT)
    one.min(cpu=least).max(cpu=least + more)
    if draw(st.booleans()):
        one.min(memory=f"{least}Gi")
    if draw(st.booleans()):
        one.max(memory=f"{least + draw(_AMOUNT)}Gi")
    if draw(st.booleans()):
        one.weight(cpu=draw(st.integers(0, 4)), memory=f"{draw(st.integers(0, 4))}Gi")
    if name in _LEAVES and draw(st.sampled_from([False, False, False, True])):
        one.manifest["metadata"].setdefault("annotations", {})[NAMESPACES] = draw(_LISTS)
    if draw(st.sampled_from([False, False, False, True])):
        one.keeps()
    if name not in _LEAVES:
        one.parent()
    above = draw(st.sampled_from(["", *_PARENTS, *_ROOTS]))
    if name in _LEAVES or (name in _PARENTS and name < above < "t"):
        one.below(above) if above else None
        if draw(st.booleans() if above in _ROOTS else st.sampled_from([False] * 5 + [True])):
            one.manifest["metadata"].setdefault("labels", {})[TREE_ID] = "tree"
    elif name in _ROOTS:
        one.manifest["metadata"]["labels"] |= {TREE_ID: "tree", IS_ROOT: "true"} | draw(_SHARED)
        one.manifest["metadata"].setdefault("annotations", {})[TOTAL_RESOURCE] = draw(_TOTALS)
    if draw(st.sampled_from([False] * 9 + [True])):
        one.manifest["metadata"]["namespace"] = "other"
    return one.manifest


@st.composite
def _pods(draw: st.DrawFn, number: int) -> Step:
    one = bare(f"p{number}").request(cpu=draw(st.integers(1, 4)))
    if draw(st.booleans()):
        one.request(memory=f"{draw(st.integers(1, 4))}Gi")
    name = draw(_NAMES)
    if name:
        one.quota(name, preemptible=draw(st.sampled_from([True, True, False])))
    return one.scheduler(KOORD_SCHEDULER).manifest


@st.composite
def _changes(draw: st.DrawFn) -> Step:
    """Of a quota: min and max, weight, or the parent of a leaf."""
    name, least = draw(st.sampled_from(_EACH)), draw(_AMOUNT)
    patches: list[dict[str, Any]] = [
        {"spec": {"min": {"cpu": str(least)}, "max": {"cpu": str(least + draw(_AMOUNT))}}},
        {"spec": {"min": {"memory": None}, "max": {"memory": draw(st.sampled_from([None, "1Gi", f"{least}Gi"]))}}},
        {"metadata": {"annotations": {SHARED_WEIGHT: f'{{"cpu": {least}}}'}}},
        {"metadata": {"annotations": {NAMESPACES: draw(_LISTS) if name in _LEAVES else None}}},
    ]
    if name in _LEAVES:  # no circles
        patches += 2 * [{"metadata": {"labels": {PARENT: draw(st.sampled_from([None, *_PARENTS, *_ROOTS]))}}}]
    if name in _ROOTS:
        patches = [
            {"metadata": {"labels": {IGNORE_DEFAULT_TREE: draw(st.sampled_from(["true", "false", None]))}}},
            {"metadata": {"annotations": {TOTAL_RESOURCE: draw(_TOTALS)}}},
        ]
    path = f"{QUOTAS_PATH.replace('/elasticquotas', '/namespaces/{namespace}/elasticquotas')}/{name}"
    return {"patch": [path, draw(st.sampled_from(patches))]}


@st.composite
def _relabelled(draw: st.DrawFn, number: int) -> Step:
    values = {QUOTA_NAME: draw(_NAMES), PREEMPTIBLE: draw(st.sampled_from(["false", "true", None]))}
    key = draw(st.sampled_from(sorted(values)))
    return {"patch": [f"/api/v1/namespaces/{{namespace}}/pods/p{number}", {"metadata": {"labels": {key: values[key]}}}]}


def _node(name: str, cores: int) -> Step:
    return {"name": name, "cpu": cores, "memory": "16Gi"}


_STEPS = st.one_of(
    _NUMBERS.flatmap(_pods).map(lambda one: {"create": [one]}),
    _changes(),
    _changes(),
    _NUMBERS.flatmap(_relabelled),
    _NUMBERS.flatmap(_pods).map(again),
    _NUMBERS.map(lambda number: {"delete": ["Pod", f"p{number}"]}),
    st.sampled_from(_EACH).map(lambda name: {"delete": ["ElasticQuota", name]}),
    st.sampled_from(_EACH).map(lambda name: {"delete": ["ElasticQuota", name, "other"]}),
    st.sampled_from(_EACH).flatmap(_quotas).map(lambda one: {"create": [one]}),
    st.sampled_from(_EACH).flatmap(_quotas).map(again),
    st.integers(2, 8).map(lambda cores: {"nodes": [_node("n2", cores)]}),
    st.booleans().map(lambda closed: {"patch": ["/api/v1/nodes/n1", {"spec": {"unschedulable": closed}}]}),
)


@st.composite
def _starts(draw: st.DrawFn) -> list[Step]:
    names = draw(st.lists(st.sampled_from(_EACH), unique=True, min_size=3))
    numbers = draw(st.lists(_NUMBERS, unique=True, min_size=3))
    return [
        {"nodes": [_node("n1", draw(st.integers(4, 16)))]},
        {"create": [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}]},
        {"create": [draw(_quotas(name)) for name in names]},
        {"create": [draw(_pods(number)) for number in numbers]},
    ]


@pytest.mark.feature("QUOTA-1.max-bound", "QUOTA-2.parent-and-child", "QUOTA-3.shared-weight", "QUOTA-4.scaled-min")
@pytest.mark.case("QU-300", severity="blocker", source="koordinator: elasticquota/core, runtime_quota_calculator.go")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
@pytest.mark.profile(KOORD_SCHEDULER)
def test_quotas_are_as_added_up_anew(setting: Setting) -> None:
    """Quotas, pods and nodes come, change and go: shares, requests and use are published as the rules define them,
    and a pod is bound if and only if its quota has room for it and a node too."""
    judge(setting, eventful(_starts(), _STEPS), quota_rules)
