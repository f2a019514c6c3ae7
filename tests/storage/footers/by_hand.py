"""Parquet footers built by hand, with values that no writer produces."""

from __future__ import annotations

__all__ = ["HIGH", "LOW", "binary", "field", "footer_by_hand", "struct_list", "varint", "zigzag"]

LOW, HIGH = (-3).to_bytes(4, "little", signed=True), (7).to_bytes(4, "little")


# A footer by hand, in Thrift's compact protocol: FileMetaData {4: [RowGroup {1: [ColumnChunk {3: ColumnMetaData}]}]}.
def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def zigzag(number: int) -> bytes:
    return varint(number * 2 if number >= 0 else -number * 2 - 1)


def field(step: int, kind: int, value: bytes) -> bytes:
    return bytes([step << 4 | kind]) + value


def binary(data: bytes) -> bytes:
    return varint(len(data)) + data


def struct_list(items: list[bytes]) -> bytes:
    return bytes([len(items) << 4 | 12]) + b"".join(item + b"\x00" for item in items)


def footer_by_hand(statistics: bytes, *, orders: bytes = struct_list([field(1, 12, b"\x00")])) -> bytes:
    metadata = field(1, 5, zigzag(1)) + field(11, 12, statistics + b"\x00")
    chunk = field(3, 12, metadata + b"\x00")
    group = field(1, 9, struct_list([chunk]))
    return field(4, 9, struct_list([group])) + field(3, 9, orders) + b"\x00"
