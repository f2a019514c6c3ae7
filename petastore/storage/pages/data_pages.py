"""The data pages of a column chunk, as their headers say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from petastore.storage.pages.headers import (
    CHECKSUM,
    DATA,
    DATA_V2,
    ENCODINGS,
    PACKED,
    TYPE,
    UNPACKED,
    V1,
    V2,
    Header,
    PageWindow,
    check_length,
    headers_of,
    values_of,
)

__all__ = ["DataPage", "data_pages"]


class DataPage(NamedTuple):
    """A page of values, as its header says."""

    at: int
    """Where its data begin in the file."""
    packed: int
    """Bytes of the data as they lie there."""
    unpacked: int
    """Bytes of the data before they were compressed."""
    checksum: int | None
    """CRC-32 of the data as they lie there; None where there is none."""
    first: int
    """Values of the column chunk before it."""
    values: int
    encoding: str
    is_v2: bool
    is_packed: bool
    """Whether it is compressed, where the column chunk is."""
    repetition_bytes: int
    """Bytes of repetition levels, which come first; of version 2 alone, whose levels are never compressed."""
    definition_bytes: int

    @property
    def level_bytes(self) -> int:
        """Bytes of all levels of a page of version 2."""
        return self.repetition_bytes + self.definition_bytes


def data_pages(window: PageWindow, column: Any) -> Iterator[DataPage]:
    """The data pages of a column chunk, in order.

    Args:
        window: Reads the file.
        column: Its `pyarrow.parquet.ColumnChunkMetaData`.

    Raises:
        LookupError: While iterating: a header is damaged.
        ValueError: The same.
    """
    first = 0
    for header, after, left in headers_of(window.whole_header, column):
        check_length(header, left)
        if header[TYPE] in (DATA, DATA_V2):
            yield _data_page(header, after, first)
        first += values_of(header)


def _data_page(header: Header, at: int, first: int) -> DataPage:
    is_v2 = header[TYPE] == DATA_V2
    page, checksum = header[V2 if is_v2 else V1], header.get(CHECKSUM)
    return DataPage(
        at=at,
        packed=header[PACKED],
        unpacked=header[UNPACKED],
        checksum=None if checksum is None else checksum & 0xFFFFFFFF,
        first=first,
        values=page[1],
        encoding=ENCODINGS[page[4 if is_v2 else 2]],
        is_v2=is_v2,
        is_packed=not is_v2 or page.get(7, True),
        repetition_bytes=page[6] if is_v2 else 0,
        definition_bytes=page[5] if is_v2 else 0,
    )
