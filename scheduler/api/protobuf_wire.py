"""The wire format of protocol buffers: field numbers and values of a message, read and written."""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1
_SMALL = [bytes([value]) for value in range(0x80)]  # most tags and lengths


class Malformed(ValueError):
    """The bytes are not a valid message."""


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Field number, wire type and value of each field, in their order.

    A value is an unsigned integer for VARINT, else the bytes.

    Raises:
        Malformed: the data end too early, or hold a group.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = varint(data, at)
        elif wire == FIXED64:
            size = 8
        elif wire == FIXED32:
            size = 4
        else:
            raise Malformed(f"wire type {wire} of field {number} at byte {at}: expected 0, 1, 2 or 5")
        if at + size > end:
            raise Malformed(f"field {number} at byte {at}: expected {size} bytes, found {end - at}")
        yield number, wire, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned integer at offset `at`, and the offset of its end.

    Raises:
        Malformed: it does not end within ten bytes of the data.
    """
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    raise Malformed(f"number at byte {at}: expected its end within ten bytes, found none")


def signed(value: int) -> int:
    """A 64-bit number in two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


def number_field(number: int, value: int) -> bytes:
    """A field of wire type VARINT; a negative value is written in two's complement of 64 bits."""
    return _encoded(number << 3 | VARINT) + _encoded(value & _MASK)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field of wire type BYTES: a string, an embedded message, raw bytes."""
    return _encoded(number << 3 | BYTES) + _encoded(len(content)) + content


def fixed64_field(number: int, content: bytes) -> bytes:
    """A field of wire type FIXED64, of eight bytes."""
    return _encoded(number << 3 | FIXED64) + content


def _encoded(value: int) -> bytes:
    if value < len(_SMALL):
        return _SMALL[value]
    values = bytearray()
    while value > 0x7F:
        values.append(value & 0x7F | 0x80)
        value >>= 7
    values.append(value)
    return bytes(values)
