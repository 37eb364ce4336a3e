"""A cache of functions of texts: what it keeps, and that its memory is bounded."""

from seatrial.harness.apiserver.text_cache import TextCache


def test_a_result_is_computed_once_and_long_texts_are_not_kept() -> None:
    computed: list[str] = []

    def compute(text: str) -> int:
        computed.append(text)
        return len(text)

    cache = TextCache(compute, characters=10, longest=4)
    assert [cache[text] for text in ("abcd", "abcd", "abcde", "abcde")] == [4, 4, 5, 5]
    assert computed == ["abcd", "abcde", "abcde"]


def test_all_texts_together_are_bounded() -> None:
    cache = TextCache(len, characters=100, longest=50)
    for number in range(1000):
        assert cache[f"{number:09}"] == 9
        assert sum(map(len, cache)) <= 100
    cache = TextCache(len, characters=100, longest=50)
    for text in ("", *map(chr, range(1000))):
        cache[text]
        assert len(cache) <= 100
