"""Runtime shares of whole trees against exact rational water-filling, and what shares do when something changes.

Integer shares are rounded by largest remainder, in rounds and at each level. So a share may differ from the exact
one by a unit for each sibling and level; and with one unit more to divide, a quota can lose one (the Alabama paradox).
"""

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.scheduler.quota.sharing import Share
from seatrial.scheduler.quota.tests.test_tree import level
from seatrial.scheduler.quota.tree import ROOT, Quota, QuotaSpec, QuotaTree

AMOUNT = st.integers(0, 300)
# Parent (a number below its own, or -1 for the root), min, the part of max above min, weight, request, lends.
ROW = st.tuples(st.integers(-1, 8), AMOUNT, AMOUNT, st.integers(1, 40), AMOUNT, st.booleans())
ROWS = st.lists(ROW, min_size=1, max_size=9)
TOTAL = st.integers(0, 1500)


def built(rows: list[Any], total: int, *, scale: bool = True) -> QuotaTree:
    tree = QuotaTree(scale_min=scale)
    tree.set_cluster({"cpu": total})
    for number, (parent, least, more, weight, _, lends) in enumerate(rows):
        above = f"q{parent % number}" if number and parent >= 0 else ROOT
        most = {"cpu": least + more}
        tree.set_quota(QuotaSpec(f"q{number}", above, {"cpu": least}, most, {"cpu": weight}, lends))
    for number, (*_, request, _) in enumerate(rows):
        tree.add_request(f"q{number}", {"cpu": request})
    return tree


def shares(tree: QuotaTree) -> dict[str, int]:
    return {quota.name: tree.runtime(quota)["cpu"] for quota in tree if quota.parent is not None}


def limited(quota: Quota) -> int:
    """The request from the leaves up, each time bounded by max; written anew, without the sums of the tree."""
    own = quota.self_request["cpu"] + sum(limited(child) for child in quota.children.values())
    return min(own if quota.spec.lends else max(own, quota.spec.min["cpu"]), quota.spec.max["cpu"])


def exact(tree: QuotaTree, parent: Quota, total: Fraction, shares: dict[str, tuple[Fraction, int]], slack: int) -> None:
    """Exact shares of all quotas below `parent`, each with the number of units that rounding may have moved."""
    children = list(parent.children.values())
    whole = sum(child.spec.min["cpu"] for child in children)
    scale = total / whole if tree.scale_min and total < whole else Fraction(1)
    rows = [
        Share(
            child.name,
            int(max(Fraction(child.spec.min["cpu"]) * scale, Fraction(0)) * SCALE),
            limited(child) * SCALE,
            child.spec.weight_of("cpu"),
            child.spec.lends,
        )
        for child in children
    ]
    slack += len(children) + (slack + 1) * len(children)
    for child in children:
        share = level(rows, total * SCALE)[child.name] / SCALE  # type: ignore[arg-type]
        shares[child.name] = share, slack
        exact(tree, child, share, shares, slack)


SCALE = 10**6  # scaled mins are whole numbers of this part of a unit


@settings(max_examples=120, deadline=None)
@given(ROWS, TOTAL, st.booleans())
def test_shares_of_a_tree_are_those_of_water_filling(rows: list[Any], total: int, scale: bool) -> None:
    tree = built(rows, total, scale=scale)
    results: dict[str, tuple[Fraction, int]] = {}
    exact(tree, tree.root, Fraction(total), results, 0)
    for name, share in shares(tree).items():
        amount, slack = results[name]
        assert abs(share - amount) <= slack, name


@settings(max_examples=120, deadline=None)
@given(ROWS, TOTAL)
def test_sums_and_bounds(rows: list[Any], total: int) -> None:
    """With scaled mins, children never have more than their parent; a share is at most the request, or the kept min."""
    tree = built(rows, total)
    tree_shares = shares(tree)
    for parent in tree:
        if parent is tree.root or parent.parent is not None:
            above = total if parent is tree.root else tree_shares[parent.name]
            assert sum(tree_shares[child.name] for child in parent.children.values()) <= above
            for child in parent.children.values():
                assert (
                    0
                    <= tree_shares[child.name]
                    <= max(limited(child), 0 if child.spec.lends else child.spec.min["cpu"])
                )


@settings(max_examples=120, deadline=None)
@given(st.lists(ROW, min_size=2, max_size=8), TOTAL)
def test_siblings_that_want_more_have_equal_parts_by_weight(rows: list[Any], total: int) -> None:
    """Beyond the floors, no sibling that still wants more has less by weight than another, apart from rounding."""
    tree = built([(-1, *row[1:]) for row in rows], total)
    tree_shares = shares(tree)
    children = list(tree.root.children.values())
    beyond = {child.name: tree_shares[child.name] - tree.auto_scale_min(child)["cpu"] for child in children}
    slack = len(children)
    for child in children:
        if tree_shares[child.name] < limited(child):
            level_of = Fraction(beyond[child.name] + slack, child.spec.weight_of("cpu"))
            for other in children:
                assert Fraction(beyond[other.name] - slack, other.spec.weight_of("cpu")) <= level_of


@settings(max_examples=120, deadline=None)
@given(ROWS, TOTAL, st.integers(0, 400), st.integers(0, 8))
def test_monotony(rows: list[Any], total: int, more: int, which: int) -> None:
    """A larger cluster takes nothing from anybody, and a larger request of one takes nothing from itself."""
    exact_before, exact_after = ({}, {})  # type: dict[str, tuple[Fraction, int]], dict[str, tuple[Fraction, int]]
    tree = built(rows, total)
    before = shares(tree)
    exact(tree, tree.root, Fraction(total), exact_before, 0)
    tree.set_cluster({"cpu": total + more})
    after = shares(tree)
    exact(tree, tree.root, Fraction(total + more), exact_after, 0)
    if all(row[5] for row in rows):
        for name, share in before.items():
            assert exact_after[name][0] >= exact_before[name][0] - Fraction(1, 100)
            assert after[name] >= share - 2 * exact_before[name][1]
    own = f"q{which % len(rows)}"
    tree.add_request(own, {"cpu": more})
    again = shares(tree)
    assert again[own] >= after[own] - 2 * exact_after[own][1]


@settings(max_examples=120, deadline=None)
@given(ROWS, TOTAL, st.integers(0, 8), st.integers(1, 400))
def test_what_does_not_matter_changes_nothing(rows: list[Any], total: int, which: int, more: int) -> None:
    """Use, and a request above max, compute no share again (QUOTA-R11)."""
    tree = built(rows, total)
    before, versions = shares(tree), {quota.name: dict(quota.versions) for quota in tree}
    own = tree.find(f"q{which % len(rows)}")
    assert own is not None
    tree.add_used(own.name, {"cpu": more})
    if limited(own) == own.spec.max["cpu"] and own.child_request["cpu"] >= own.spec.max["cpu"]:
        tree.add_request(own.name, {"cpu": more})
    assert {quota.name: dict(quota.versions) for quota in tree} == versions
    assert shares(tree) == before
