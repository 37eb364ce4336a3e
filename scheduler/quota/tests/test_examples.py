"""Worked examples of upstream's tests, by their number in the behaviour notes (E1 to E29)."""

import pytest

from seatrial.scheduler.quota.sharing import Share, runtime_shares, scaled_min
from seatrial.scheduler.quota.tree import DEFAULT, ROOT, SYSTEM, QuotaSpec, QuotaTree

HUGE = {"cpu": 10**9, "memory": 10**9}


def tree(total: int | dict[str, int], **options: bool) -> QuotaTree:
    tree = QuotaTree(system_max=HUGE, default_max=HUGE, **options)
    tree.set_cluster({"cpu": total} if isinstance(total, int) else total)
    return tree


def add(  # noqa: PLR0917 reads like a row of a table
    quotas: QuotaTree,
    name: str,
    minimum: int = 0,
    maximum: int = 96,
    parent: str = ROOT,
    request: int = 0,
    *,
    lends: bool = True,
    weight: int | None = None,
) -> None:
    quotas.set_quota(
        QuotaSpec(name, parent, {"cpu": minimum}, {"cpu": maximum}, None if weight is None else {"cpu": weight}, lends)
    )
    if request:
        quotas.add_request(name, {"cpu": request})


def both(quotas: QuotaTree, name: str, minimum: str, maximum: str, parent: str = ROOT) -> None:
    quotas.set_quota(QuotaSpec(name, parent, pair(minimum), pair(maximum)))


def pair(text: str) -> dict[str, int]:
    cpu, memory = text.split("/")
    return {"cpu": int(cpu), "memory": int(memory)}


def cpus(quotas: QuotaTree, *names: str) -> list[int]:
    return [quotas.runtime(quota)["cpu"] for name in names if (quota := quotas.find(name))]


def of(quotas: QuotaTree, name: str) -> dict[str, int]:
    quota = quotas.find(name)
    assert quota is not None
    return quotas.runtime(quota)


@pytest.mark.parametrize(
    ("fourth", "want"),
    [
        pytest.param((80, 70, 15), [5, 20, 35, 40], id="E1-by-weight"),
        pytest.param((0, 70, 15), [5, 20, 40, 15], id="E2-weight-zero-stays-at-its-min"),
        pytest.param((0, 70, 45), [5, 20, 30, 45], id="E3-guaranteed"),
    ],
)
def test_shares_of_one_level(fourth: tuple[int, int, int], want: list[int]) -> None:
    rows = [(40, 5, 10), (60, 20, 15), (50, 40, 20), fourth]
    shares = [Share(f"n{number}", floor, limited, weight) for number, (weight, limited, floor) in enumerate(rows, 1)]
    assert list(runtime_shares(100, shares).values()) == want


def test_e4_left_over_units_go_to_the_first_names() -> None:
    borrowers = [Share(f"b{number}", 8 if number < 8 else 7, 100, 1) for number in range(10)]
    amounts = runtime_shares(81, [Share("donor", 3, 0, 1), *borrowers])
    assert amounts["donor"] == 0
    assert sum(amounts.values()) == 81
    assert [amounts[f"b{number}"] for number in range(10)] == [9, 9, 9, 8, 8, 8, 8, 8, 7, 7]


@pytest.mark.parametrize(
    ("requests", "want"),
    [
        pytest.param((0, 90), [0, 90], id="all-borrowed"),
        pytest.param((30, 90), [30, 70], id="part-taken-back"),
        pytest.param((60, 90), [60, 50], id="mins-above-the-total"),
    ],
)
def test_e5_a_lent_min_is_taken_back(requests: tuple[int, int], want: list[int]) -> None:
    quotas = tree(100, scale_min=False)
    add(quotas, "t1", 60, 80, request=requests[0], weight=1)
    add(quotas, "t2", 50, 100, request=requests[1], weight=1)
    assert cpus(quotas, "t1", "t2") == want
    quotas.remove_quota("t1")  # E6
    assert cpus(quotas, "t2") == [90]


def test_e7_a_second_quota_takes_its_half() -> None:
    quotas = tree(120)
    add(quotas, "t1", 50, 80, request=100, weight=1)
    assert cpus(quotas, "t1") == [80]
    add(quotas, "t2", 50, 100, request=150, weight=1)
    assert cpus(quotas, "t1", "t2") == [60, 60]


def test_e8_e9_two_resources() -> None:
    quotas = tree(pair("96/160"))
    both(quotas, "t1", "50/80", "96/160")
    both(quotas, "t2", "40/80", "96/160")
    quotas.add_request("t1", pair("120/200"))
    assert of(quotas, "t1") == pair("96/160")
    quotas.add_request("t2", pair("150/210"))
    assert (of(quotas, "t1"), of(quotas, "t2")) == (pair("53/80"), pair("43/80"))


def test_e10_min_before_weight() -> None:
    quotas = tree(50)
    add(quotas, "q1", 10, 40, request=30)
    add(quotas, "q2", 0, 40, request=30)
    assert cpus(quotas, "q1", "q2") == [30, 20]


def test_e11_max_changes_in_place() -> None:
    quotas = tree(50)
    for name in ("q1", "q2"):
        add(quotas, name, 10, 40, request=35)
    for maximum, limited in ((40, 35), (30, 30), (50, 35)):
        for name in ("q1", "q2"):
            add(quotas, name, 10, maximum)
        assert cpus(quotas, "q1", "q2") == [25, 25]
        assert [quota.limited["cpu"] for name in ("q1", "q2") if (quota := quotas.find(name))] == [limited] * 2


def test_e12_min_equal_to_max() -> None:
    quotas = tree(50)
    add(quotas, "q1", 40, 40, request=115)
    add(quotas, "q2", 5, 40, request=115)
    assert cpus(quotas, "q1", "q2") == [40, 10]


def test_e13_no_request_no_share() -> None:
    quotas = tree(50)
    add(quotas, "q1", 40, 40)
    assert cpus(quotas, "q1") == [0]


def test_e14_a_quota_that_does_not_lend_keeps_its_min() -> None:
    quotas = tree(100)
    add(quotas, "t1", 60, 96, request=120)
    add(quotas, "t2", 40, 96, lends=False)
    assert cpus(quotas, "t1", "t2") == [60, 40]


@pytest.mark.parametrize(
    ("lends", "want"),
    [
        pytest.param((False, False, False), [[60, 20, 20], [60, 40, 20], [80, 60, 20]], id="E15"),
        pytest.param((True, False, True), [[20, 20, 0], [40, 40, 0], [60, 60, 0]], id="E16"),
        pytest.param((True, False, False), [[40, 20, 20], [60, 40, 20], [80, 60, 20]], id="E17"),
    ],
)
def test_lending_at_each_level(lends: tuple[bool, bool, bool], want: list[list[int]]) -> None:
    quotas = tree(100)
    add(quotas, "p", 60, lends=lends[0])
    add(quotas, "c1", 20, parent="p", lends=lends[1])
    add(quotas, "c2", 20, parent="p", lends=lends[2])
    for step, added in enumerate((0, 40, 20)):
        if added:
            quotas.add_request("c1", {"cpu": added})
        assert cpus(quotas, "p", "c1", "c2") == want[step]


def test_e18_requests_of_quotas_that_do_not_lend() -> None:
    quotas = tree(100)
    add(quotas, "q1", 20, lends=False)
    add(quotas, "q2", 10, parent="q1", lends=False)
    add(quotas, "q3", 5, parent="q1", lends=False)
    q1, q2 = quotas.find("q1"), quotas.find("q2")
    assert q1
    assert q2
    for added, lower, upper in (
        (0, (0, 10), (15, 20)),
        (5, (5, 10), (15, 20)),
        (10, (15, 15), (20, 20)),
        (10, (25, 25), (30, 30)),
    ):
        quotas.add_request("q2", {"cpu": added})
        assert (q2.child_request["cpu"], q2.request(lends=False)["cpu"]) == lower
        assert (q1.child_request["cpu"], q1.request(lends=False)["cpu"]) == upper


def test_e19_three_levels() -> None:
    quotas = tree(pair("96/160"))
    both(quotas, "test1", "80/80", "96/160")
    both(quotas, "test1-a", "50/80", "60/80", "test1")
    both(quotas, "a-123", "20/40", "30/60", "test1-a")
    for added, want in (("10/30", "10/30"), ("15/15", "25/45"), ("30/30", "30/60")):
        quotas.add_request("a-123", pair(added))
        assert of(quotas, "a-123") == pair(want)
    for name in ("test1", "test1-a"):
        quota = quotas.find(name)
        assert quota
        assert quota.child_request == pair("30/60")


@pytest.mark.parametrize(
    ("total", "parent", "child", "asks", "runtime", "requested"),
    [
        pytest.param(
            "300/8000",
            ("100/100", "600/4096"),
            ("100/100", "500/2048"),
            ("500/4096", "550/4096"),
            ["300/2048", "300/2048"],
            ["500/2048", "500/2048"],
            id="E20",
        ),
        pytest.param(
            "350/1800",
            ("100/100", "300/1024"),
            ("100/100", "500/2048"),
            ("400/1500", "400/1500"),
            ["300/1024", "300/1024"],
            ["400/1500", "500/2048"],
            id="E21",
        ),
    ],
)
def test_a_child_max_above_the_parent_max(  # noqa: PLR0917 one argument for each column
    total: str,
    parent: tuple[str, str],
    child: tuple[str, str],
    asks: tuple[str, str],
    runtime: list[str],
    requested: list[str],
) -> None:
    quotas = tree(pair(total))
    both(quotas, "p", *parent)
    both(quotas, "c", *child, parent="p")
    above = quotas.find("p")
    assert above
    for step, ask in enumerate(asks):
        quotas.add_request("c", pair(ask))
        assert of(quotas, "c") == pair(runtime[step])
        assert above.child_request == pair(requested[step])


def test_e22_a_quota_moves_with_its_request_and_use() -> None:
    quotas = tree(pair("96/160"))
    for name in ("test1", "test2"):
        both(quotas, name, "0/0", "96/160")
    both(quotas, "a-123", "0/0", "96/160", "test1")
    both(quotas, "b", "0/0", "96/160", "test2")
    for name, amounts in (("a-123", "60/100"), ("b", "20/40")):
        quotas.add_request(name, pair(amounts))
        quotas.add_used(name, pair(amounts))
    both(quotas, "a-123", "0/0", "96/160", "test2")
    for name, want in (("test1", "0/0"), ("test2", "80/140")):
        quota = quotas.find(name)
        assert quota
        assert quota.child_request == quota.used == of(quotas, name) == pair(want)


def test_e23_use_of_system_and_default_is_deducted() -> None:
    quotas = tree(pair("100/540"))
    left = []
    for name in (SYSTEM, SYSTEM, DEFAULT, DEFAULT):
        quotas.add_used(name, pair("10/30"))
        left.append(quotas.total()["cpu"])
    assert left == [90, 80, 70, 60]


def scaled(asks: tuple[int, int, int], total: int, *, scale_min: bool = True) -> QuotaTree:
    quotas = tree(total, scale_min=scale_min)
    add(quotas, "p", 300_000, 600_000)
    for name, ask in zip("abc", asks, strict=True):
        add(quotas, name, 100_000, 600_000, "p", ask)
    return quotas


def scaled_mins(quotas: QuotaTree) -> list[int]:
    return [quotas.auto_scale_min(quota)["cpu"] for name in ("p", "a", "b", "c") if (quota := quotas.find(name))]


def test_e24_e25_min_scaled_down_and_back() -> None:
    quotas = scaled((200_000, 200_000, 200_000), 200_000)
    assert scaled_mins(quotas) == [200_000, 66_666, 66_666, 66_666]
    assert cpus(quotas, "a", "b", "c") == [66_667, 66_667, 66_666]
    quotas.set_cluster({"cpu": 600_000})
    assert scaled_mins(quotas) == [300_000, 100_000, 100_000, 100_000]
    assert cpus(quotas, "a", "b", "c") == [200_000] * 3


def test_e26_a_scaled_min_that_nobody_asks_for_is_lent() -> None:
    quotas = scaled((200_000, 0, 200_000), 200_000)
    assert cpus(quotas, "a", "b", "c") == [100_000, 0, 100_000]
    assert scaled_mins(quotas)[1:] == [66_666] * 3


def test_e27_without_scaling_the_mins_hold() -> None:
    quotas = scaled((200_000, 200_000, 200_000), 200_000, scale_min=False)
    assert cpus(quotas, "p", "a", "b", "c") == [300_000, 100_000, 100_000, 100_000]


@pytest.mark.parametrize(("total", "want"), [(200, 50), (100, 25), (50, 0)])
def test_e28_fixed_mins_come_first(total: int, want: int) -> None:
    total_min = 50 if total >= 150 else scaled_min(total, 50, 100, fixed=50)
    assert total_min == want


def test_e29_guaranteed_follows_use() -> None:
    quotas = tree(100, guarantee=True)
    add(quotas, "q1", 20)
    add(quotas, "q2", 10, parent="q1")
    add(quotas, "q3", 5, parent="q1")
    for added, lower, upper in ((5, (5, 10), (15, 20)), (10, (15, 15), (20, 20)), (10, (25, 25), (30, 30))):
        quotas.add_used("q2", {"cpu": added})
        for name, want in (("q2", lower), ("q1", upper)):
            quota = quotas.find(name)
            assert quota
            assert (quota.allocated["cpu"], quota.guaranteed["cpu"]) == want


def test_e45_weights_that_are_missing_equal_max() -> None:
    quotas = tree(90)
    add(quotas, "a", 0, 30, request=100)
    add(quotas, "b", 0, 60, request=100)
    assert cpus(quotas, "a", "b") == [30, 60]


def test_e46_use_of_the_default_quota_is_deducted_once() -> None:
    quotas = tree(100)
    quotas.add_used(DEFAULT, {"cpu": 20})
    quotas.add_request(DEFAULT, {"cpu": 20})
    add(quotas, "q", 10, 100, request=100)
    assert cpus(quotas, "q") == [80]
