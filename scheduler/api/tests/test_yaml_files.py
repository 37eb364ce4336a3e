"""YAML files that would overflow the stack or the memory are refused, and the message names the limit."""

import pytest
import yaml

from seatrial.scheduler.api import yaml_files
from seatrial.scheduler.api.yaml_files import load_yaml

MERGES = b"a0: &a0 {x: 1, y: 2}\n" + b"".join(
    b"a%d: &a%d {<<: [%s]}\n" % (level, level, b",".join([b"*a%d" % (level - 1)] * 9)) for level in range(1, 12)
)


def test_a_file_within_the_limits_is_read() -> None:
    assert load_yaml(b"a: &x [1, b]\nc: *x\nd: {<<: {e: 1}, f: 2}") == {
        "a": [1, "b"],
        "c": [1, "b"],
        "d": {"e": 1, "f": 2},
    }


@pytest.mark.parametrize("quote", ["", "'"])
def test_a_text_may_be_long_and_begin_with_a_digit(quote: str) -> None:
    text = "0aQ/" * 2000  # as the data of a Secret, which is rarely quoted
    assert load_yaml(f"a: {quote}{text}{quote}".encode()) == {"a": text}


def test_a_quoted_number_may_be_long() -> None:
    assert load_yaml(b"a: '" + b"9" * 5000 + b"'") == {"a": "9" * 5000}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"[" * 1_000_000, "line 1: expected at most 100 levels", id="a-million-brackets"),
        pytest.param(b"\n".join(b" " * at + b"- " for at in range(300)), "at most 100 levels", id="block-style"),
        pytest.param(MERGES, "aliases and merge keys that add at most 1000000 values", id="merge-keys"),
        pytest.param(MERGES.replace(b"{<<: [", b"[").replace(b"]}", b"]"), "at most 1000000 values", id="aliases"),
        pytest.param(b"a: 2026-99-99", "a value cannot be read: month must be in 1..12", id="no-date"),
        pytest.param(b"a: " + b"9" * 3_000_000, "number of at most 1000 characters, found 3000000", id="a-long-number"),
        pytest.param(b"a: " + b"1:" * 100_000 + b"1", "number of at most 1000 characters", id="base-sixty"),
        pytest.param(b"a: -0b" + b"1" * 2000, "number of at most 1000 characters", id="binary"),
        pytest.param(b"a: {", "while parsing", id="no-yaml"),
    ],
)
def test_what_is_not_read_is_refused_in_words(data: bytes, message: str) -> None:
    with pytest.raises(yaml.YAMLError, match=message):
        load_yaml(data)


def test_a_long_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_files, "MAX_BYTES", 10)
    with pytest.raises(yaml.YAMLError, match="expected at most 10 bytes, found 11"):
        load_yaml(b"abcdefghijk")
