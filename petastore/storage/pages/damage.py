"""Headers of pages, which no checksum covers: held against what the footer says of their column chunk.

The checksum of a page is over its data alone. A bit that flips in its header may have fewer values read of it, or have
them read in another encoding, and give other values without any error. So what a header says twice, or what the footer
says as well, has to agree: the values of all pages are as many as those of the chunk; an encoding is one of those that
the chunk is declared to have; the levels of a page of version 2 fill the bytes that its header gives them. Of pages
without a checksum only the length is looked at, if that: their data may have flipped just as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.footers.thrift import read_varint
from petastore.storage.pages.headers import (
    CHECKSUM,
    DATA,
    DATA_V2,
    ENCODINGS,
    LEAST_BYTES,
    PACKED,
    RLE,
    TYPE,
    UNPACKED,
    V1,
    V2,
    Header,
    PageWindow,
    Read,
    check_length,
    headers_of,
    is_without_checksum,
    values_of,
)
from petastore.storage.ranges.column_chunks import first_page

__all__ = ["FEWEST_TOGETHER", "refuse_damaged_pages"]

_SMALL_BYTES = 64 * 1024
FEWEST_TOGETHER = 32

_LEFT_OUT_BYTES = 128
"""Old releases of parquet-mr leave the header of the dictionary out of the bytes of a column chunk."""


def refuse_damaged_pages(
    read: Read, metadata: Any, leaves: Iterable[int], *, file: DataFile, ordinal: int, unchecked: bool = False
) -> None:
    """Refuse a row group whose page headers contradict the footer, or themselves.

    Args:
        read: Gives so many bytes of the file from a position on; fewer where it ends.
        metadata: The `pyarrow.parquet.FileMetaData` of a file whose leaf columns have been read, or checked by
            `Footer.check_chunks`: only then is asking for them safe.
        leaves: Leaf columns to look at.
        file: The file, for the message.
        ordinal: The row group.
        unchecked: Whether the lengths of pages without a checksum are looked at, too.

    Raises:
        DecodeError: A header is not what it was; the message says how.
    """
    wanted, group = list(leaves), metadata.row_group(ordinal)
    # Who writes checksums writes them for all.
    are_checked = not wanted or not is_without_checksum(read(LEAST_BYTES, first_page(group.column(wanted[0]))))
    if not (are_checked or unchecked):
        return
    columns = [group.column(leaf) for leaf in wanted]
    together = are_checked and len(wanted) >= FEWEST_TOGETHER
    are_right = _seen_right(read, columns) if together else [False] * len(wanted)
    window = PageWindow(read, _SMALL_BYTES) if group.total_byte_size <= _SMALL_BYTES else PageWindow(read)
    for leaf, column, is_right in zip(wanted, columns, are_right, strict=True):
        if is_right:
            continue
        levels = metadata.schema.column(leaf)
        try:
            _check_chunk(window, column, levels.max_definition_level, levels.max_repetition_level, unchecked)
        except (LookupError, ValueError, OverflowError, RecursionError) as problem:
            raise DecodeError(
                f"the data is damaged: the page header of {column.path_in_schema} at byte {window.header_at:,} is "
                f"damaged: {problem}",
                file=file.path,
                row_group=ordinal,
            ) from None


def _seen_right(read: Read, columns: Sequence[Any]) -> Iterable[bool]:
    from petastore.storage.pages.side_by_side import seen_right  # only wide tables have such columns

    return seen_right(read, columns)


def _check_chunk(window: PageWindow, column: Any, max_definition: int, max_repetition: int, unchecked: bool) -> None:
    encodings, values, are_checked = column.encodings, 0, True
    for header, after, left in headers_of(window.header, column):
        check_length(header, left if CHECKSUM in header else left + _LEFT_OUT_BYTES)
        are_checked = are_checked and CHECKSUM in header
        if not (are_checked or unchecked):
            return
        if not are_checked:
            continue
        values += values_of(header)
        if header[TYPE] == DATA:
            _check_v1(header[V1], encodings, max_definition, max_repetition)
        elif header[TYPE] == DATA_V2:
            _check_v2(header, encodings, window, after, (max_definition, max_repetition))
    if are_checked and values != column.num_values:
        raise ValueError(f"pages have {values:,} values, but the footer says {column.num_values:,}")


def _check_v1(page: Header, encodings: Sequence[str], max_definition: int, max_repetition: int) -> None:
    _check_encoding(page.get(2), encodings)
    if max_definition:
        _check_levels_encoding(page.get(3), encodings)
    if max_repetition:
        _check_levels_encoding(page.get(4), encodings)


def _check_v2(header: Header, encodings: Sequence[str], window: PageWindow, at: int, most: tuple[int, int]) -> None:
    page = header.get(V2, {})
    _check_encoding(page.get(4), encodings)
    definition, repetition = page.get(5, -1), page.get(6, -1)
    if definition < 0 or repetition < 0 or definition + repetition > header[PACKED]:
        raise ValueError(f"levels have {definition:,} and {repetition:,} bytes of a page of {header[PACKED]:,}")
    if not page.get(7, True) and header[PACKED] != header.get(UNPACKED):
        raise ValueError("a page that is not compressed has another size than that")
    levels = window.bytes_at(at, repetition + definition)[: repetition + definition]
    _check_runs(levels[:repetition], most[1], page.get(1, 0))
    _check_runs(levels[repetition:], most[0], page.get(1, 0))


def _check_encoding(encoding: int | None, encodings: Sequence[str]) -> None:
    name = ENCODINGS.get(-1 if encoding is None else encoding, str(encoding))
    if name not in encodings:
        raise ValueError(f"a page has the encoding {name}, but the footer says {', '.join(encodings)}")


def _check_levels_encoding(encoding: int | None, encodings: Sequence[str]) -> None:
    if encoding != RLE and "BIT_PACKED" not in encodings:
        raise ValueError(f"levels have the encoding {encoding}")


def _check_runs(levels: bytes, highest: int, values: int) -> None:
    """Refuse levels of which the runs do not fill the bytes and the values."""
    width = highest.bit_length()
    at = read = 0
    while width and at < len(levels):
        run, at = read_varint(levels, at)
        read += (run >> 1) * 8 if run & 1 else run >> 1
        at += (run >> 1) * width if run & 1 else (width + 7) // 8
    if at != len(levels) or (width and not values <= read < values + 8):
        raise ValueError(f"{read:,} levels in {len(levels):,} bytes belong to {values:,} values")
