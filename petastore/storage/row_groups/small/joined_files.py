"""Small Parquet files as one: their bytes one behind the other, under one footer with the row groups of all.

To have Arrow open a file of a few thousand bytes takes longer than to decode what is in it. A row group says where its
pages begin, counted from the begin of its file; with these numbers moved it may stand in any footer. So the files are
opened once, and decoded in one call.

Nobody must notice but by the clock. What Arrow would read of each file by itself it reads of this one too: all pages of
a column chunk lie in its own file, and have just as many values as the row group has rows. Where that does not hold, or
is not to be seen at a glance, files are read one by one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from petastore.storage.footers.thrift import read_integer
from petastore.storage.row_groups.small.joined_footers import LARGEST, Chunks, alike_row_groups

__all__ = ["JoinedFiles", "joined_files"]

_MAGIC = b"PAR1"
_NUMBER, _ANY = rb"([\x80-\xff]*[\x00-\x7f])", rb"[\x80-\xff]*[\x00-\x7f]"
_SIZES = rb"\x15" + _ANY + rb"\x15" + _NUMBER
# Headers as nearly all writers have them, with a checksum or without; that of a data page up to its values.
_DICTIONARY_PAGE = re.compile(
    rb"\x15\x04" + _SIZES + rb"(?:\x15" + _ANY + rb"\x3c|\x4c)\x15" + _ANY + rb"\x15.[\x11\x12]?\x00\x00", re.DOTALL
)
_DATA_PAGE = re.compile(rb"\x15\x00" + _SIZES + rb"(?:\x15" + _ANY + rb"\x1c|\x2c)\x15" + _NUMBER, re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class JoinedFiles:
    """Row groups of several files, as one Parquet file."""

    data: bytes
    """The file."""

    chunks: Chunks
    """What is said of its column chunks."""

    def have_a_page_each(self, leaves: Sequence[int]) -> bool:
        """Whether each chunk of some leaf columns has one data page, with as many values as there are rows.

        Args:
            leaves: Columns that do not repeat.
        """
        return all(self._has_a_page_each(leaf) for leaf in leaves)

    def _has_a_page_each(self, leaf: int) -> bool:
        rows, values, dictionary, first = (
            numbers.tolist()
            for numbers in (
                self.chunks.rows,
                self.chunks.values[:, leaf],
                self.chunks.dictionary[:, leaf],
                self.chunks.data[:, leaf],
            )
        )
        return rows == values and all(map(self._is_a_page, rows, dictionary, first))

    def _is_a_page(self, rows: int, dictionary: int, first: int) -> bool:
        """Whether a page of so many rows stands somewhere, just behind its dictionary if it has one."""
        if dictionary >= 0:
            page = _DICTIONARY_PAGE.match(self.data, dictionary)
            if page is None or page.end() + read_integer(page[1], 0)[0] != first:
                return False
        page = _DATA_PAGE.match(self.data, first)
        return page is not None and read_integer(page[2], 0)[0] == rows


def joined_files(
    files: Sequence[bytes], footers: Sequence[bytes], asked: Sequence[tuple[int, int]]
) -> JoinedFiles | None:
    """Several files with one schema as one; None where their footers are not alike, or one of them is damaged.

    Args:
        files: All bytes of each, at least one file; not trusted.
        footers: The Thrift bytes of the footer of each.
        asked: Of each row group that is taken: the number of its file, and its number there; at least one.
    """
    sizes = np.array([len(file) for file in files])
    alike = alike_row_groups(footers, asked)
    members = [member for member, _ in asked]
    ends = sizes - [len(footer) + 8 for footer in footers]
    if alike is None or sizes.sum() > LARGEST >> 1 or not alike.chunks.lie_before(ends[members]):
        return None
    begins = np.cumsum(sizes) - sizes
    footer = alike.joined(begins)
    data = b"".join([*files, footer, len(footer).to_bytes(4, "little"), _MAGIC])
    return JoinedFiles(data, alike.chunks.moved(begins[members]))
