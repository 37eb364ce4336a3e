import pytest

from seatrial.scheduler.api.quantity import MAX_AMOUNT, Quantity, QuantityError, amount, canonical, text


@pytest.mark.parametrize(
    ("resource", "quantity", "want"),
    [
        pytest.param("cpu", "500m", 500, id="milli-cores"),
        pytest.param("cpu", 2, 2000, id="whole-cores-without-quotes"),
        pytest.param("cpu", "0.1", 100, id="a-tenth-of-a-core"),
        pytest.param("cpu", "100u", 1, id="micro-cores-round-up"),
        pytest.param("memory", "16Gi", 16 << 30, id="binary-bytes"),
        pytest.param("memory", "1.5Gi", 3 << 29, id="fraction-of-a-binary-unit"),
        pytest.param("memory", "16G", 16_000_000_000, id="decimal-bytes"),
        pytest.param("memory", "1e3", 1000, id="exponent"),
        pytest.param("nvidia.com/gpu", "1500m", 2, id="cards-round-up"),
        pytest.param("memory", "-1", -1, id="negative"),
    ],
)
def test_amount(resource: str, quantity: Quantity, want: int) -> None:
    assert amount(resource, quantity) == want


@pytest.mark.parametrize("wrong", ["", "16gi", "1 Gi", "Gi", "1.2.3", "--1", "1e", "٣", True])
def test_refuses_what_is_no_quantity(wrong: Quantity) -> None:
    with pytest.raises(QuantityError, match="is not a quantity; expected a number"):
        amount("memory", wrong)


@pytest.mark.parametrize(
    "long", ["9" * 200_000, f"0.{'1' * 5000}", "1" * 60_000 + "x"], ids=["digits", "fraction", "wrong-suffix"]
)
def test_long_texts_are_refused_by_their_length_and_quoted_in_short(long: Quantity) -> None:
    with pytest.raises(QuantityError, match="more than 512 characters") as refused:
        amount("memory", long)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("huge", ["1e1000", "9" * 512, "100Ei", 10**400, 1e300, "1e9223372036854775807"])
def test_an_amount_is_cut_at_the_largest_number_as_in_go(huge: Quantity) -> None:
    assert amount("memory", huge) == amount("cpu", huge) == MAX_AMOUNT
    assert canonical(huge) == "9223372036854775807"


@pytest.mark.parametrize("tiny", ["1e-1000", f"0.{'0' * 500}1", "1e-40"])
def test_an_amount_below_a_billionth_counts_as_one(tiny: Quantity) -> None:
    assert canonical(tiny) == "1n"
    assert amount("memory", "0e1000") == 0


@pytest.mark.parametrize("wrong", ["1e99999999999999999999", float("nan"), float("inf")])
def test_what_is_beyond_64_bits_in_the_exponent_is_refused(wrong: Quantity) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        amount("memory", wrong)


@pytest.mark.parametrize(
    ("quantity", "want"),
    [
        ("1024Mi", "1Gi"),
        ("0.5", "500m"),
        ("2000m", "2"),
        ("18000", "18k"),
        ("1536Mi", "1536Mi"),
        ("0", "0"),
        ("1e3", "1k"),
        (40, "40"),
    ],
)
def test_canonical_text_is_what_the_api_server_stores(quantity: Quantity, want: str) -> None:
    assert canonical(quantity) == want


@pytest.mark.parametrize(
    ("resource", "value", "want"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 40 << 30, "40Gi"),
        ("koordinator.sh/gpu-memory", 5 << 29, "2560Mi"),
        ("koordinator.sh/gpu-core", 1024, "1024"),
    ],
)
def test_text_reverses_amount(resource: str, value: int, want: str) -> None:
    assert text(resource, value) == want
    assert amount(resource, want) == value
