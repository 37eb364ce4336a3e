"""Reasons as sentences: rows are reasons of recorded runs."""

import pytest

from seatrial.harness.results import Case
from seatrial.reports.reasons import LONGEST, cause, sentence


@pytest.mark.parametrize(
    ("reason", "want"),
    [
        pytest.param("", "", id="none"),
        pytest.param("assert 1 == 4", "expected 4; found 1", id="two-numbers"),
        pytest.param(
            "expected settled(cluster) == 4, found 1 == 4\n+ where",
            "settled(cluster): expected 4; found 1",
            id="source",
        ),
        pytest.param(
            "expected minors(expect.running('first')) == high, found [0, 1] == [2, 3]",
            "minors(expect.running('first')): expected 2, 3; found 0, 1",
            id="lists",
        ),
        pytest.param(
            "expected evicted(cluster, at_least=1) == {'much'}, found {'little', 'much'} == {'much'}",
            "evicted(cluster, at_least=1): expected much; found little, much",
            id="sets",
        ),
        pytest.param(
            "expected jobs(cluster) == [], found [PodMigration...1:04:35Z'))))] == []",
            "jobs(cluster): expected none; found PodMigration…",
            id="a-value-that-pytest-cut",
        ),
        pytest.param("expected n <= 3, found 5 <= 3", "n: expected at most 3; found 5", id="a-bound"),
        pytest.param("expected A not in x.get('b', {}), found 'a' not in {'a': 'c'}", "A: a is in a: c", id="not-in"),
        pytest.param("[]", "found none", id="an-empty-list-alone"),
        pytest.param("{'phase': 'Running', 'running': 3}", "found phase: Running, running: 3", id="a-mapping-alone"),
        pytest.param(
            "expected job move to end within 120 s, it is JobStatus(phase='Running', status='', pod_ref=None, of=())",
            "expected job move to end within 120 s, it is JobStatus: phase Running",
            id="an-object",
        ),
        pytest.param(
            "a card was given twice: [('n1', 0), ('n1', 3)]", "a card was given twice: (n1, 0), (n1, 3)", id="pairs"
        ),
        pytest.param(
            "expected nothing to move for 3 s; these did (before, after): {'x': (('f-1', ''), ('f-1', 'n1'))}",
            "expected nothing to move for 3 s; these did (before, after): x: ((f-1, nothing), (f-1, n1))",
            id="words-in-parentheses-stay",
        ),
        pytest.param(
            'pod p2 had the devices {"gpu":[{"minor":2}]}', 'pod p2 had the devices {"gpu":[{"minor":2}]}', id="json"
        ),
        pytest.param("expected pod 'a' to run within 30 s", "expected pod 'a' to run within 30 s", id="a-sentence"),
        pytest.param("AssertionError: 3 pods where 2 would do\nmore", "3 pods where 2 would do", id="an-assertion"),
        pytest.param("ClusterError: etcd did not answer", "etcd did not answer", id="an-error-of-ours"),
        pytest.param("KeyError: 'x'", "KeyError: 'x'", id="an-error-of-python"),
        pytest.param("(" * 900, "(" * (LONGEST - 2) + " …", id="deep-nesting"),
        pytest.param(f"expected {'-' * 900}x == 1, found 2 == 1", f"{'-' * (LONGEST - 2)} …", id="a-deep-left-side"),
        pytest.param(f"found {'x' * 900}", f"found {'x' * (LONGEST - 8)} …", id="one-long-word"),
        pytest.param("these are open [ and ' and (", "these are open [ and ' and (", id="unbalanced"),
    ],
)
def test_sentence(reason: str, want: str) -> None:
    assert sentence(reason) == want


def test_a_long_reason_is_cut_at_the_end_of_a_word() -> None:
    text = sentence("word " * 100)
    assert text.endswith("word …")
    assert LONGEST - 6 < len(text) <= LONGEST


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(
            Case("a::t[1]", "failed", reason="found 1"),
            Case("a::t[2]", "failed", reason="found 2"),
            True,
            id="one-test",
        ),
        pytest.param(
            Case("a::t", "failed", reason="no run"), Case("a::u", "failed", reason="no run"), False, id="two-tests"
        ),
        pytest.param(
            Case("a::t", "broken", reason="down"), Case("b::u", "broken", reason="down"), True, id="one-fault"
        ),
        pytest.param(
            Case("a::t", "failed", reason="AUD-202 The devices: pod a"),
            Case("b::u", "failed", reason="AUD-202 The devices: pod b"),
            True,
            id="one-rule-of-the-auditor",
        ),
        pytest.param(
            Case("a::t[1]", "failed", reason="none"), Case("a::t[2]", "broken", reason="none"), False, id="verdicts"
        ),
    ],
)
def test_cause(one: Case, other: Case, same: bool) -> None:
    assert (cause(one) == cause(other)) is same
