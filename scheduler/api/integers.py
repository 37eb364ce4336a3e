"""Numbers in labels, annotations and file fields, as Go's strconv reads them."""

MAX_INT32, MAX_INT64 = (1 << 31) - 1, (1 << 63) - 1
MAX_LENGTH = 64  # characters of a number


def integer(text: str, low: int = -MAX_INT64 - 1, high: int = MAX_INT64) -> int | None:
    """A whole number in decimal digits, as `strconv.ParseInt` reads it; None if the text is none, or out of bounds."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if len(text) > MAX_LENGTH or not (digits.isascii() and digits.isdigit()):
        return None
    value = int(text)
    return value if low <= value <= high else None


def finite(text: str) -> float | None:
    """A decimal number, as `strconv.ParseFloat` reads it; None if the text is none, infinite or not a number."""
    if len(text) > MAX_LENGTH or not text.isascii() or not set(text) <= set("0123456789+-.eE"):
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None
