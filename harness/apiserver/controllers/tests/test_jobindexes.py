"""Completion indexes in text form."""

import pytest

from seatrial.harness.apiserver.controllers.jobindexes import format_indexes, parse_indexes


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        pytest.param("", set(), id="none"),
        pytest.param("0", {0}, id="one"),
        pytest.param("1,3-5,7", {1, 3, 4, 5, 7}, id="numbers-and-ranges"),
        pytest.param("0-1", {0, 1}, id="two-in-a-row-are-a-range"),
        pytest.param("9-11", {9, 10, 11}, id="across-ten"),
    ],
)
def test_round_trip(text: str, indexes: set[int]) -> None:
    assert parse_indexes(text) == indexes
    assert format_indexes(indexes) == text


def test_malformed_parts_are_ignored() -> None:
    assert parse_indexes("1,x,3-y, 5") == {1, 5}


@pytest.mark.parametrize("text", ["0-99999999999", "9" * 5000, "\u00b2", "3-1", "0-\u00b2", "-5", "1_0"])
def test_ranges_that_no_job_has_are_ignored(text: str) -> None:
    """A client may write anything into a status; a range of ten billion would take all memory."""
    assert parse_indexes(f"{text},7") == {7}
