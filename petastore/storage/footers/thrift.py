"""Walking the Thrift compact protocol, in which a Parquet footer is written. Pure.

Each function takes the bytes and a position in them, and returns what stands there with the position after it. Bytes
are not trusted: what cannot be is a ValueError, what is cut off an IndexError.

The protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

__all__ = [
    "BINARY",
    "FIXED_BYTES",
    "INTEGER",
    "INTEGERS",
    "LIST",
    "LIST_OF_STRUCTS",
    "ONE_BYTE_ELEMENTS",
    "PRESENCE",
    "STRUCT",
    "Read",
    "list_reader",
    "read_binary",
    "read_field",
    "read_integer",
    "read_list_header",
    "read_struct_list",
    "read_varint",
    "skip_struct",
    "skip_value",
    "some_structs_reader",
    "struct_reader",
]

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Reads what stands at a position; gives it with the position after it."""

# Types of the compact protocol. Maps do not occur in a footer.
INTEGERS = (4, 5, 6)
BINARY, LIST, _SET, STRUCT = 8, 9, 10, 12
LIST_OF_STRUCTS = bytes([0xF0 | STRUCT])
"""How a list of structs begins whose length follows."""

FIXED_BYTES = {1: 0, 2: 0, 3: 1, 7: 8}
"""Of types that always have as many bytes: how many. A boolean field lies in its header."""

ONE_BYTE_ELEMENTS = (1, 2, 3)
"""In a list a boolean has a byte of its own."""


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


def read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes at `at`, fewer where they are cut off, and the position after them."""
    length, at = read_varint(data, at)
    return data[at : at + length], at + length


INTEGER: Mapping[int, Read] = dict.fromkeys(INTEGERS, read_integer)
"""How `struct_reader` is asked for a field that is a number."""


def struct_reader(fields: Mapping[int, Mapping[int, Read]], *, until: int | None = None) -> Read:
    """Who reads some fields of a struct and skips the others: it gives a dict of those that are there, by number.

    Of a field that is there several times, the last one holds, as for any reader of Thrift.

    Args:
        fields: Of each field that is wanted: how a value is read that has a certain type. One of another type is
            skipped, and counts as not there.
        until: A field after which nothing more is looked for; the first one holds then.

    Example:
        >>> struct_reader({1: INTEGER, 3: INTEGER})(bytes([0x15, 8, 0x15, 10, 0x15, 11, 0]), 0)
        ({1: 4, 3: -6}, 7)
    """
    readers = {number << 4 | kind: read for number, kinds in fields.items() for kind, read in kinds.items()}
    wanted = readers.get

    def read_struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
        fields_there = {}
        number = 0
        while header := data[at]:
            kind = header & 15
            if header > 15:
                number, at = number + (header >> 4), at + 1
            else:
                number, at = read_integer(data, at + 1)
            read = wanted(number << 4 | kind)
            if read is not None:
                fields_there[number], at = read(data, at)
                if number == until:
                    return fields_there, skip_struct(data, at)
            elif kind in INTEGERS:
                while data[at] > 127:
                    at += 1
                at += 1
            else:
                at = skip_value(data, at, kind)
        return fields_there, at + 1

    return read_struct


def list_reader(kinds: Mapping[int, Read]) -> Mapping[int, Read]:
    """How `struct_reader` is asked for a field that is a list, given how an element is read that has a certain type.

    A list of another type is refused: a ValueError.

    Example:
        >>> struct_reader({1: list_reader(INTEGER)})(bytes([0x19, 0x25, 8, 10, 0]), 0)
        ({1: [4, 5]}, 5)
    """

    def read_list(data: bytes, at: int) -> tuple[list[Any], int]:
        count, kind, at = read_list_header(data, at)
        if not count:
            return [], at
        if kind not in kinds:
            raise ValueError(f"a list holds type {kind} instead of {' or '.join(map(str, kinds))}")
        read, elements = kinds[kind], []
        for _ in range(count):
            element, at = read(data, at)
            elements.append(element)
        return elements, at

    return {LIST: read_list}


def some_structs_reader(read: Read, places: Collection[int]) -> Mapping[int, Read]:
    """`list_reader` of structs, of which some are read and the others skipped: it gives a dict by their places."""

    def read_some(data: bytes, at: int) -> tuple[dict[int, Any], int]:
        count, at = read_struct_list(data, at)
        elements = {}
        for place in range(count):
            if place in places:
                elements[place], at = read(data, at)
            else:
                at = skip_struct(data, at)
        return elements, at

    return {LIST: read_some}


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
    if kind in FIXED_BYTES:
        return at + FIXED_BYTES[kind]
    raise ValueError(f"there is no type {kind}")


def _present(kind: int) -> Read:
    return lambda data, at: (True, skip_value(data, at, kind))


PRESENCE: Mapping[int, Read] = {kind: _present(kind) for kind in (*FIXED_BYTES, *INTEGERS, BINARY, LIST, _SET, STRUCT)}
"""How `struct_reader` is asked whether a field is there, of whatever type: it gives True."""


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
    if kind in ONE_BYTE_ELEMENTS:
        return at + count
    for _ in range(count):
        at = skip_value(data, at, kind)
    return at
