"""Bookkeeping of one load process: what the answers and the watch say, in whatever order they come."""

from typing import Any

from seatrial.harness.load.record import Progress, Record


def _pod(name: str, node: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}}


def _sent(*names: str) -> Record:
    record = Record()
    for name in names:
        record.send(name, "whole", due=1.0, now=1.01)
    return record


def test_the_watch_may_be_quicker_than_the_answer() -> None:
    record = _sent("a")
    assert record.event("ADDED", _pod("a"), 1.02) is None
    assert record.event("MODIFIED", _pod("a", "n1"), 1.03) == "a"
    record.created("a", 1.04)
    (sample,) = record.part(cpu_seconds=0, wall_seconds=1).samples
    assert (sample.seen, sample.bound, sample.answered, sample.node) == (1.02, 1.03, 1.04, "n1")
    assert sample.latency == 1.03 - 1.01


def test_the_same_node_again_is_no_second_binding_another_one_is() -> None:
    record = _sent("a", "b")
    assert record.event("ADDED", _pod("a", "n1"), 2.0) == "a"
    assert record.event("MODIFIED", _pod("a", "n1"), 2.1) is None
    assert record.event("ADDED", _pod("b", "n1"), 2.0) == "b"
    assert record.event("MODIFIED", _pod("b", "n2"), 2.1) is None
    seen = {
        sample.pod: (sample.nodes_seen, sample.bound) for sample in record.part(cpu_seconds=0, wall_seconds=1).samples
    }
    assert seen == {"a": (1, 2.0), "b": (2, 2.0)}
    assert record.progress.bound == 2


def test_a_load_is_settled_when_what_was_created_is_gone() -> None:
    record = _sent("a", "b")
    for name in ("a", "b"):
        record.created(name, 1.1)
    record.event("DELETED", _pod("a", "n1"), 3.0)
    record.event("DELETED", _pod("a", "n1"), 3.1)
    before = record.settled
    record.event("DELETED", _pod("b", "n1"), 3.2)
    assert (before, record.settled) == (False, True)
    assert record.progress == Progress(created=2, bound=2, deleted=2)


def test_a_pod_that_was_sent_again_keeps_its_first_time() -> None:
    record = _sent("a")
    record.send("a", "whole", due=5.0, now=5.1)
    (sample,) = record.part(cpu_seconds=0, wall_seconds=1).samples
    assert (sample.due, sample.sent) == (1.0, 1.01)


def test_what_was_refused_or_is_a_strangers_counts_for_nothing() -> None:
    record = _sent("a")
    record.failed("create: 422 Invalid")
    record.never_created("a")
    assert record.event("ADDED", _pod("a", "n1"), 2.0) is None
    assert record.event("ADDED", _pod("stranger", "n1"), 2.0) is None
    part = record.part(cpu_seconds=0, wall_seconds=1)
    assert (part.samples, part.errors) == ([], {"create: 422 Invalid": 1})
