"""Walking the Thrift compact protocol, in which a Parquet footer is written. Pure.

Each function takes the bytes and a position in them, and returns what stands there with the position after it. Bytes
are not trusted: what cannot be is a ValueError, what is cut off an IndexError.

The protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

__all__ = [
    "BINARY",
    "INTEGERS",
    "LIST",
    "LIST_OF_STRUCTS",
    "STRUCT",
    "read_field",
    "read_integer",
    "read_list_header",
    "read_struct_list",
    "read_varint",
    "skip_struct",
    "skip_value",
]

# Types of the compact protocol. Maps do not occur in a footer.
INTEGERS = (4, 5, 6)
BINARY, LIST, _SET, STRUCT = 8, 9, 10, 12
LIST_OF_STRUCTS = bytes([0xF0 | STRUCT])
"""How a list of structs begins whose length follows."""

_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # a boolean field lies in its header
_ONE_BYTE_ELEMENTS = (1, 2, 3)  # in a list a boolean has a byte of its own


def read_field(data: bytes, at: int, previous: int) -> tuple[int, int, int]:
    """Number and type of the field at `at`, and the position of its value."""
    header = data[at]
    if header >> 4:
        return previous + (header >> 4), header & 15, at + 1
    number, after = read_integer(data, at + 1)
    return number, header & 15, after


def read_struct_list(data: bytes, at: int) -> tuple[int, int]:
    """Length of the list of structs at `at`, and the position of the first."""
    count, kind, at = read_list_header(data, at)
    if count and kind != STRUCT:
        raise ValueError(f"a list holds type {kind} instead of structs")
    return count, at


def read_list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Length and element type of the list at `at`, and the position of its first element."""
    header = data[at]
    if header >> 4 != 15:
        return header >> 4, header & 15, at + 1
    count, at = read_varint(data, at + 1)
    return count, header & 15, at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number at `at`, and the position after it."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def read_integer(data: bytes, at: int) -> tuple[int, int]:
    """The signed number at `at`, zigzag-coded, and the position after it."""
    value, at = read_varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def skip_value(data: bytes, at: int, kind: int) -> int:
    """The position after the value at `at`."""
    if kind in INTEGERS:
        while data[at] > 127:
            at += 1
        return at + 1
    if kind == BINARY:
        length, at = read_varint(data, at)
        return at + length
    if kind == STRUCT:
        return skip_struct(data, at)
    if kind in (LIST, _SET):
        return _skip_list(data, at)
    if kind in _FIXED:
        return at + _FIXED[kind]
    raise ValueError(f"there is no type {kind}")


def skip_struct(data: bytes, at: int) -> int:
    """The position after the struct of which some field starts at `at`; nearly all time is spent here."""
    while header := data[at]:
        at += 1
        if header < 16:
            at = skip_value(data, at, 4)
        kind = header & 15
        if kind in INTEGERS:
            while data[at] > 127:
                at += 1
            at += 1
        elif kind > 2:
            at = skip_value(data, at, kind)
    return at + 1


def _skip_list(data: bytes, at: int) -> int:
    count, kind, at = read_list_header(data, at)
    if kind in _ONE_BYTE_ELEMENTS:
        return at + count
    for _ in range(count):
        at = skip_value(data, at, kind)
    return at
