"""YAML within limits: what a hostile file would take is refused before any object is built."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yaml import safe_dump

from seatrial.scheduler.api.yaml_files import MAX_DEPTH, MAX_SIZE, YamlError, parse_yaml, read_yaml

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=20,
)
TOO_DEEP = f"expected at most {MAX_DEPTH} levels, found more"
TOO_FAR = "aliases that stand for at most 1,000,000 values"
TOO_LONG = "expected a number of at most 1000 characters, found"


def bomb(levels: int) -> str:
    """Lists of ten times the list before."""
    below = (f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels))
    return "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *below])


def merged(levels: int) -> str:
    """Objects that merge the object before nine times."""
    below = (
        f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}], k{level}: 0}}" for level in range(1, levels)
    )
    return "\n".join(["a0: &a0 {x: 1, y: 2}", *below])


@given(VALUES)
def test_what_was_written_is_read(value: object) -> None:
    assert parse_yaml(safe_dump(value)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[" * 1_000_000, f"line 1, column 101: {TOO_DEEP}", id="brackets"),
        pytest.param("- " * 100_000, TOO_DEEP, id="dashes"),
        pytest.param("{a: " * 100_000, TOO_DEEP, id="braces"),
        pytest.param(bomb(12), TOO_FAR, id="aliases"),
        pytest.param(merged(12), TOO_FAR, id="merge-keys"),
        pytest.param("a: " + "9" * 3_000_000, f"{TOO_LONG} 3000000", id="a-long-number"),
        pytest.param("a: " + "1:" * 100_000 + "1", f"{TOO_LONG} 200001", id="base-sixty"),
        pytest.param("a: -0b" + "1" * 2000, f"{TOO_LONG} 2003", id="binary"),
        pytest.param("[" + "0," * 200_001 + "]", "expected at most 200,000 values, found more", id="many-values"),
        pytest.param(b"a: \xff\xfe", "utf", id="no-utf-8"),
        pytest.param("a: 2024-13-45", "month must be in 1..12", id="a-month-that-is-none"),
        pytest.param("a: [1", "expected ',' or ']'", id="unfinished"),
        pytest.param("a: !!python/object:os.system {}", "could not determine a constructor", id="objects"),
        pytest.param("a: 1\n---\nb: 2", "but found another document", id="two-documents"),
        pytest.param("x" * (MAX_SIZE + 1), "expected at most 16 MiB, found more", id="size"),
    ],
)
def test_beyond_a_limit(text: bytes | str, message: str) -> None:
    with pytest.raises(YamlError) as refused:
        parse_yaml(text)
    assert message in str(refused.value).lower() if message == "utf" else message in str(refused.value)


def test_ordinary_aliases_stay() -> None:
    assert parse_yaml("base: &b {cpu: 1}\none: {<<: *b, memory: 2}\ntwo: *b") == {
        "base": {"cpu": 1}, "one": {"cpu": 1, "memory": 2}, "two": {"cpu": 1},
    }  # fmt: skip


def test_a_quoted_text_may_be_long() -> None:
    assert parse_yaml("a: '" + "9" * 5000 + "'") == {"a": "9" * 5000}


def test_a_file_without_an_end_is_not_read_to_its_end() -> None:
    with pytest.raises(YamlError, match="expected at most 16 MiB"):
        read_yaml(Path("/dev/zero"))
