"""Room in quotas of any depth, parents with pods of their own included, while pods and quotas come, change and go."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.scheduler.quota.tree import ROOT, QuotaSpec, QuotaTree

CHARGES = tuple((("cpu", size),) for size in (1, 2, 5))  # pods of one size pass one object, as the scheduler does
QUOTAS = 6
SPEC = st.tuples(st.integers(-1, QUOTAS - 2), st.integers(0, 8), st.integers(0, 20), st.booleans())  # parent, min, more
STEP = st.one_of(
    *(st.tuples(st.just("pod"), st.integers(0, QUOTAS - 1), st.sampled_from(CHARGES)) for _ in range(6)),
    st.tuples(st.just("gone"), st.integers(0, 40), st.none()),
    st.tuples(st.just("quota"), st.integers(0, QUOTAS - 1), SPEC),
    st.tuples(st.just("total"), st.integers(0, 60), st.none()),
)


def spec_of(number: int, row: Any) -> QuotaSpec:
    """A quota below the root or below one with a smaller number, so that no loop arises."""
    parent, least, more, lends = row
    above = f"q{parent % number}" if number and parent >= 0 else ROOT
    return QuotaSpec(f"q{number}", above, {"cpu": least}, {"cpu": least + more}, lends=lends)


def built(specs: list[QuotaSpec], total: int) -> QuotaTree:
    """A tree in which pods of each quota wait from the start, so that no share changes between their placements."""
    tree = QuotaTree()
    tree.set_cluster({"cpu": total})
    for spec in specs:
        tree.set_quota(spec)
        tree.add_request(spec.name, {"cpu": 30})
    return tree


def has_room(specs: list[QuotaSpec], total: int, pods: list[Any], name: str, cores: int) -> bool:
    """Whether a pod fits, with a tree that is built anew and sums that are added up anew."""
    parents = {spec.name: spec.parent for spec in specs}

    def is_below(other: str) -> bool:
        return other == name or (other in parents and is_below(parents[other]))

    used = sum(charge[0][1] for other, charge in pods if is_below(other))
    tree = built(specs, total)
    quota = tree.find(name)
    assert quota is not None
    return used + cores <= tree.runtime(quota)["cpu"]


@settings(max_examples=300, deadline=None)
@given(st.lists(SPEC, min_size=QUOTAS, max_size=QUOTAS), st.lists(STEP, min_size=8, max_size=60))
def test_a_pod_has_room_as_in_a_tree_that_is_built_anew(rows: list[Any], steps: list[Any]) -> None:
    """A pod that has room gets it, at every level; pods and quotas come and go in between."""
    total = 40
    specs = [spec_of(number, row) for number, row in enumerate(rows)]
    tree = built(specs, total)
    pods: list[Any] = []  # quota, charge: those that have a place
    for kind, number, value in steps:
        if kind == "pod":
            name = f"q{number}"
            quota = tree.find(name)
            assert quota is not None
            fits = tree.has_room(quota, value)
            assert fits == has_room(specs, total, pods, name, value[0][1])
            if fits:
                pods.append((name, value))
                tree.change_used(quota, value)
        elif kind == "gone" and pods:
            name, charge = pods.pop(number % len(pods))
            tree.add_used(name, dict(charge), sign=-1)
        elif kind == "quota":
            specs[number] = spec_of(number, value)
            tree.set_quota(specs[number])
        elif kind == "total":
            total = number
            tree.set_cluster({"cpu": total})
