"""Limits, with the worked examples of the specification (E8a, E10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.descheduler.limits import EvictionLimiter, ObjectLimiter, TokenBucket, limit_of


@pytest.mark.parametrize(
    ("replicas", "value", "want"),
    [(6, "80%", 4), (6, "150%", 6), (6, 5, 5), (6, 7, 6), (6, None, 2), (50, "0%", 1), (6, 0, 1)],
)
def test_the_limit_of_a_workload(replicas: int, value: int | str | None, want: int) -> None:
    assert limit_of(replicas, value) == want


@pytest.mark.parametrize(
    ("caps", "requests", "want"),
    [
        pytest.param((1, None, None), ["a/n1", "b/n1"], [True, False], id="per-node"),
        pytest.param((None, 1, None), ["default/n1", "default/n2"], [True, False], id="per-namespace"),
        pytest.param((None, None, 2), ["default/n1", "default/n1", "kube-system/n2"], [True, True, False], id="total"),
        pytest.param(
            (1, 1, 2),
            ["default/n1", "default/n1", "default/n2", "kube-system/n1"],
            [True, False, False, False],
            id="all-three",
        ),
    ],
)
def test_caps_of_a_round(
    caps: tuple[int | None, int | None, int | None], requests: list[str], want: list[bool]
) -> None:
    limiter = EvictionLimiter(*caps)
    allows = []
    for entry in requests:
        namespace, node = entry.split("/")
        allows.append(limiter.allows(node, namespace))
        if allows[-1]:
            limiter.done(node, namespace)
    assert allows == want
    limiter.reset()
    assert limiter.allows("n1", "default")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=60),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 20),
)
def test_no_cap_is_ever_exceeded(
    requests: list[tuple[str, str]], per_node: int, per_namespace: int, total: int
) -> None:
    limiter = EvictionLimiter(per_node, per_namespace, total)
    done = []
    for node, namespace in requests:
        if limiter.allows(node, namespace):
            limiter.done(node, namespace)
            done.append((node, namespace))
    assert len(done) <= total
    assert all(sum(eviction[0] == node for eviction in done) <= per_node for node in "abc")
    assert all(sum(eviction[1] == namespace for eviction in done) <= per_namespace for namespace in "xyz")


@given(st.lists(st.floats(0, 30), max_size=50), st.integers(1, 5))
def test_a_bucket_gives_no_more_than_burst_and_rate(pauses: list[float], burst: int) -> None:
    bucket, now, taken = TokenBucket(0.5, burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        taken += bucket.take(now)
        assert taken <= burst + 0.5 * now + 1e-6


def test_an_object_waits_for_its_next_token() -> None:
    limiter = ObjectLimiter(60.0)
    assert limiter.allows("w", 0.0)
    limiter.evicted("w", 2, 1, 0.0)  # two a minute
    assert not limiter.allows("w", 29.0)
    assert limiter.allows("w", 30.0)
    assert limiter.allows("other", 1.0)


def test_an_idle_limiter_is_dropped() -> None:
    limiter = ObjectLimiter(60.0)
    limiter.evicted("w", 1, 1, 0.0)
    limiter.allows("w", 89.0)
    assert len(limiter) == 1
    limiter.allows("w", 90.0)
    assert len(limiter) == 0


def test_a_limit_of_none_holds_nothing_back() -> None:
    limiter = ObjectLimiter(60.0)
    limiter.evicted("w", 0, 1, 0.0)
    assert limiter.allows("w", 0.0)
