"""The tree against an independent formulation, and trees that admission would have refused."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.scheduler.quota.sharing import Share, largest_remainder, runtime_shares
from seatrial.scheduler.quota.tree import ROOT, QuotaSpec, QuotaTree

AMOUNT = st.integers(0, 400)


def level(shares: list[Share], total: int) -> dict[str, Fraction]:
    """Exact shares by water-filling: raise the water until the total is reached or everybody is satisfied.

    The share of a hungry quota at water level x is min(limited, floor + weight * x): continuous and rising in x, so
    that the level is found between two satisfaction points, without rounds.
    """

    def at(water: Fraction) -> dict[str, Fraction]:
        fractions = {}
        for share in shares:
            if share.limited <= share.floor:
                fractions[share.name] = Fraction(share.limited if share.lends else share.floor)
            else:
                fractions[share.name] = min(Fraction(share.limited), share.floor + max(share.weight, 0) * water)
        return fractions

    marks = sorted(
        {Fraction(s.limited - s.floor, s.weight) for s in shares if s.weight > 0 and s.limited > s.floor}
        | {Fraction(0)}
    )
    low = marks[0]
    for high in marks[1:]:
        if sum(at(high).values()) > total:
            rising = sum(at(high).values()) - sum(at(low).values())
            return at(low + (high - low) * max(Fraction(0), total - sum(at(low).values())) / rising)
        low = high
    return at(low)


SHARES = st.lists(st.tuples(AMOUNT, AMOUNT, st.integers(-2, 50), st.booleans()), min_size=1, max_size=8)


@given(SHARES, st.integers(-50, 1500))
def test_integer_shares_are_within_rounding_of_the_exact_ones(rows: list[Any], total: int) -> None:
    shares = [Share(f"q{number}", *row) for number, row in enumerate(rows)]
    amounts, exact = runtime_shares(total, shares), level(shares, total)
    for share in shares:
        assert abs(amounts[share.name] - exact[share.name]) <= len(shares)  # one unit for each round of rounding
        assert min(share.limited, share.floor) <= amounts[share.name] <= max(share.limited, share.floor)
    if sum(exact.values()) <= total:
        # Nothing is lost by rounding, and nothing is given twice.
        assert sum(amounts.values()) == sum(exact.values())


@given(st.integers(0, 10**30), st.dictionaries(st.text(max_size=3), st.integers(1, 10**20), min_size=1, max_size=6))
def test_largest_remainder_divides_everything(total: int, weights: dict[str, int]) -> None:
    amounts = largest_remainder(total, weights)
    assert sum(amounts.values()) == total
    whole = sum(weights.values())
    assert all(abs(amounts[name] * whole - weight * total) < whole for name, weight in weights.items())


CHARGES = ((("cpu", 1),), (("cpu", 30),), (("cpu", 70),))  # of one pod
ROW = st.tuples(st.integers(0, 8), AMOUNT, AMOUNT, st.none() | st.integers(-1, 40), st.booleans())
STEP = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 9), ROW),
    st.tuples(st.just("ask"), st.integers(0, 9), AMOUNT),
    st.tuples(st.just("use"), st.integers(0, 9), AMOUNT),
    st.tuples(st.just("place"), st.integers(0, 9), st.integers(0, 2)),
    st.tuples(st.just("take"), st.integers(0, 9)),
    st.tuples(st.just("total"), st.integers(0, 1000)),
    st.tuples(st.just("remove"), st.integers(0, 9)),
)


def spec_of(number: int, row: tuple[int, int, int, int | None, bool]) -> QuotaSpec:
    """Parents have any number, so that loops and missing parents occur; 8: the root."""
    parent, low, high, weight, lends = row
    return QuotaSpec(
        f"q{number}",
        ROOT if parent == 8 else f"q{parent}",
        {"cpu": low},
        {"cpu": high},
        None if weight is None else {"cpu": weight},
        lends,
    )


class Model:
    """Computes everything again from the specs and the pods' amounts, recursively."""

    def __init__(self, tree: QuotaTree, amounts: Counter[str], used: Counter[str]) -> None:
        self.children: dict[str, list[str]] = {}
        self.specs = {quota.name: quota.spec for quota in tree if quota.parent is not None}
        for name, spec in self.specs.items():
            self.children.setdefault(spec.parent, []).append(name)
        self.requests, self.spent, self.total, self.scale = amounts, used, tree.cluster["cpu"], tree.scale_min
        self.runtime: dict[str, int] = {}
        self._divide(ROOT, self.total)

    def limited(self, name: str) -> int:
        spec = self.specs[name]
        request = self.requests[name] + sum(self.limited(child) for child in self.children.get(name, ()))
        return min(request if spec.lends else max(request, spec.min["cpu"]), spec.max["cpu"])

    def used(self, name: str) -> int:
        return self.spent[name] + sum(self.used(child) for child in self.children.get(name, ()))

    def _divide(self, parent: str, total: int) -> None:
        names = self.children.get(parent, [])
        mins = sum(self.specs[name].min["cpu"] for name in names)
        shares = []
        for name in names:
            spec = self.specs[name]
            floor = spec.min["cpu"]
            if self.scale and total < mins:
                floor = max(total * floor // mins, 0)
            shares.append(Share(name, floor, self.limited(name), spec.weight_of("cpu"), spec.lends))
        for name, share in runtime_shares(total, shares).items():
            self.runtime[name] = share
            self._divide(name, share)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40), st.booleans())
def test_a_tree_changed_in_place_equals_one_computed_again(steps: list[Any], scale_min: bool) -> None:
    """Quotas come, change, move, loop and go in any order; requests and use change in between."""
    tree = QuotaTree(scale_min=scale_min)
    tree.set_cluster({"cpu": 500})
    by_name: Counter[str] = Counter()
    used: Counter[str] = Counter()
    pods: dict[str, int] = {}
    for number, (step, *arguments) in enumerate(steps):
        name = f"q{arguments[0]}"
        if step == "set":
            tree.set_quota(spec_of(*arguments))
        elif step == "total":
            tree.set_cluster({"cpu": arguments[0]})
        elif tree.find(name) is None:
            continue
        elif step == "ask":
            tree.add_request(name, {"cpu": arguments[1] - by_name[name]})
            by_name[name] = arguments[1]
        elif step == "use":
            tree.add_used(name, {"cpu": arguments[1] - used[name]})
            used[name] = arguments[1]
        elif step == "place":
            charge = CHARGES[arguments[1]]
            if tree.has_room(tree._quotas[name], charge):
                tree.change_used(tree._quotas[name], charge)
                used[name] += charge[0][1]
                pods[name] = arguments[1]
        elif step == "take" and name in pods:
            charge = CHARGES[pods.pop(name)]
            tree.change_used(tree._quotas[name], charge, sign=-1)
            used[name] -= charge[0][1]
        elif step == "take":
            continue
        else:
            tree.remove_quota(name)
            by_name.pop(name, None)
            used.pop(name, None)
            pods.pop(name, None)
        model = Model(tree, by_name, used)
        for quota in tree:
            if quota.parent is not None:
                assert quota.limited["cpu"] == model.limited(quota.name)
                assert quota.used["cpu"] == model.used(quota.name)
                share = model.runtime.get(quota.name)
                assert tree.runtime(quota)["cpu"] == (share or 0)
                for charge in CHARGES if number % 2 else ():  # in every second step, so that answers are also kept
                    fits = share is not None and model.used(quota.name) + charge[0][1] <= share
                    assert tree.has_room(quota, charge) == fits


def test_a_quota_below_itself_gets_no_share_and_the_others_keep_theirs() -> None:
    tree = QuotaTree()
    tree.set_cluster({"cpu": 100})
    limits = {"cpu": 50}
    assert "below it" in tree.set_quota(QuotaSpec("self", "self", {}, limits))
    assert "does not exist" in tree.set_quota(QuotaSpec("a", "b", {}, limits))
    assert "below it" in tree.set_quota(QuotaSpec("b", "a", {}, limits))
    assert not tree.set_quota(QuotaSpec("good", ROOT, {}, limits))
    for name in ("self", "a", "b", "good"):
        tree.add_request(name, {"cpu": 10})
    assert {quota.name: tree.runtime(quota)["cpu"] for quota in tree if quota.spec.max} == {
        "self": 0,
        "a": 0,
        "b": 0,
        "good": 10,
    }
    assert not tree.set_quota(QuotaSpec("b", ROOT, {}, limits))
    assert {name: tree.runtime(result)["cpu"] for name in "ab" if (result := tree.find(name))} == {"a": 10, "b": 20}


def test_children_of_a_deleted_parent_wait_for_it() -> None:
    tree = QuotaTree()
    tree.set_cluster({"cpu": 100})
    for name, parent in (("p", ROOT), ("c", "p")):
        tree.set_quota(QuotaSpec(name, parent, {}, {"cpu": 50}))
    tree.add_request("c", {"cpu": 10})
    child = tree.find("c")
    assert child
    tree.remove_quota("p")
    assert tree.runtime(child) == {"cpu": 0}
    assert tree.root.child_request["cpu"] == 0
    tree.set_quota(QuotaSpec("p", ROOT, {}, {"cpu": 50}))
    assert tree.runtime(child) == {"cpu": 10}


def test_a_resource_that_joins_max_counts_pods_that_are_there() -> None:
    tree = QuotaTree()
    tree.set_cluster({"cpu": 100, "gpu": 4})
    tree.set_quota(QuotaSpec("q", ROOT, {}, {"cpu": 50}))
    tree.add_request("q", {"cpu": 10, "gpu": 2})
    quota = tree.find("q")
    assert quota
    assert tree.runtime(quota) == {"cpu": 10}
    tree.set_quota(QuotaSpec("q", ROOT, {}, {"cpu": 50, "gpu": 4}))
    assert tree.runtime(quota) == {"cpu": 10, "gpu": 2}
    tree.set_quota(QuotaSpec("q", ROOT, {}, {"gpu": 4}))
    assert tree.runtime(quota) == {"gpu": 2}


def test_a_change_beyond_max_computes_nothing_again() -> None:
    tree = QuotaTree()
    tree.set_cluster({"cpu": 100})
    for name in ("a", "b"):
        tree.set_quota(QuotaSpec(name, ROOT, {}, {"cpu": 80}))
        tree.add_request(name, {"cpu": 200})
    version = tree.root.versions["cpu"]
    tree.add_request("a", {"cpu": 1000})
    assert tree.root.versions["cpu"] == version


@pytest.mark.parametrize("digits", [100, 4000])
def test_amounts_of_many_digits_are_exact(digits: int) -> None:
    huge = 10**digits
    tree = QuotaTree()
    tree.set_cluster({"cpu": 2 * huge})
    for name in ("a", "b"):
        tree.set_quota(QuotaSpec(name, ROOT, {"cpu": huge // 2}, {"cpu": 2 * huge}))
        tree.add_request(name, {"cpu": 2 * huge})
    assert [tree.runtime(quota)["cpu"] for name in "ab" if (quota := tree.find(name))] == [huge, huge]


def test_room_is_asked_again_after_use_that_was_above_the_share_went() -> None:
    """A quota uses 4 of 2 after its max shrank: one unit given back makes no room."""
    tree = QuotaTree()
    tree.set_cluster({"cpu": 10})
    tree.set_quota(QuotaSpec("q", max={"cpu": 4}))
    tree.add_request("q", {"cpu": 5})
    quota, charge = tree._quotas["q"], CHARGES[0]
    for _ in range(4):
        assert tree.has_room(quota, charge)
        tree.change_used(quota, charge)
    tree.set_quota(QuotaSpec("q", max={"cpu": 2}))
    assert not tree.has_room(quota, charge)
    for used in (3, 2):
        tree.change_used(quota, charge, sign=-1)
        assert (quota.used["cpu"], tree.has_room(quota, charge)) == (used, False)
    tree.change_used(quota, charge, sign=-1)
    assert tree.has_room(quota, charge)
