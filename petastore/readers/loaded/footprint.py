"""Memory footprint of a reader's rows, in row groups and in batches."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.inventory import Inventory
from petastore.lazy import once
from petastore.readers.loaded.arena import Layout, needs_decoding
from petastore.schema.arrow import is_text, storage_type
from petastore.schema.unischema import Unischema

if TYPE_CHECKING:
    from petastore.plan.row_group_parts import RowGroupParts

__all__ = ["ROUNDED", "Footprint"]

ROUNDED = 1.25
"""Maximum ratio of a buffer's size to the requested size (`petastore.decoding.buffers`)."""

_LEAST_SPAN_BYTES = 8 * 1024 * 1024
_MOST_SPAN_BYTES = 25 * 1024 * 1024
_SPANS_BYTES = 75 * 1024 * 1024
"""Minimum and maximum decoded bytes of one span (consecutive batches assembled together), and decoded bytes of all
spans that are assembled at a time.

In each span, of any size, threads wait for each other about twenty times, and each wait idles a CPU for about 50 µs.
With two workers, spans of 25 MB are read 1.1 to 1.5 times as fast as spans of 8 MB (measured). With many workers, some
worker always has work, so less memory is preferred. Batch sizes are often powers of two: 25 MB hold two batches of
12 MB and their labels."""

_UNKNOWN_VALUE_BYTES = 64
"""Assumed bytes of a value of unknown size."""

_LIKELY_EXPANSION = 8
"""Assumed ratio of decoded to stored bytes of images and compressed arrays, as for photographs."""

_WORK_BYTES = 24 * 1024 * 1024
"""Memory of a worker while it reads: compressed and decoded pages of the columns that are read together, and memory
retained by allocators (measured: 10 to 40 MB for two workers)."""

_ARROW_KEEPS = 1.75
"""Ratio of the memory that Arrow allocates for several variable-size cells to their bytes (measured), because their
buffer grows by doubling. A single cell gets a buffer of its size."""

_PLACE_BYTES = 20
"""Bytes of a row in memory besides its values: offsets, and its position in the plan."""

_SPAN_ROW_BYTES = 40
"""Bytes per row of assembled batches besides the values: the row's number and position."""

_COVERED_ROW_BYTES = 56
"""Bytes per row of a window besides the values: the row's number and position."""

_CHUNK_BYTES = 1000
"""Bytes of memory for a column chunk in a parsed footer (measured: 990, and 110 in the file)."""


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes that a reader's rows take in memory. Immutable; each figure is computed once.

    Example:
        >>> from petastore.schema.field import UnischemaField
        >>> view = Unischema("s", [UnischemaField("x", "f4"), UnischemaField("word", str)])
        >>> inventory = Inventory.of_rows([1000, 1000], bytes_per_row=20)
        >>> footprint = Footprint(view, view, Layout.of(view, rows=1000), inventory)
        >>> footprint.row_bytes, footprint.group_bytes.tolist()
        (68, [58000, 58000])
    """

    view: Unischema
    """Fields that are read."""

    stored: Unischema
    """All fields of the dataset."""

    layout: Layout
    """Memory layout of row groups: the columns that share an array, and the columns that stay encoded cells."""

    inventory: Inventory
    """Sizes and row counts of the dataset's row groups; if `parts` is set, of the parts of its row groups."""

    rows_of_window: int = 0
    """Number of rows of a window that have fields; 0 for a reader of rows. These rows are in memory twice."""

    head_bytes: int = 0
    """Bytes per worker of the cache of row groups' first rows, which windows need; 0 for a reader of rows."""

    parts: RowGroupParts | None = None
    """Division of huge row groups into parts, row ranges that are loaded one by one. `inventory` then has an entry for
    each part. None if row groups are loaded whole."""

    streamed_column_bytes: int = 0
    """Bytes of memory, besides the rows, for decoding one column of a huge row group part by part."""

    page_bytes: int = 0
    """Bytes of memory for the largest pages of all columns while huge row groups are decoded; 0 if unknown."""

    @once
    def streamed_bytes(self) -> int:
        """Bytes of memory for decoding huge row groups part by part; 0 if no row group is huge."""
        if self.parts is None:
            return 0
        rows = self.inventory.rows * sum(len(stack.names) * stack.row_bytes for stack in self.layout.stacks)
        # Two parts are in memory, because a part is decoded while the previous part is copied.
        decoded = int((rows + self._encoded_bytes)[self.parts.is_divided].max(initial=0))
        return decoded + max(decoded + self.streamed_column_bytes * len(self.view.fields), self.page_bytes)

    @once
    def row_bytes(self) -> int:
        """Bytes of a decoded row, or of a window and its rows. The bytes of variable-size values are estimated."""
        of_row = max(sum(field.decoded_bytes or 0 for field in self.view) + self.free_row_bytes, 1)
        return 2 * self.rows_of_window * of_row if self.rows_of_window else of_row

    @once
    def free_row_bytes(self) -> int:
        """Estimated bytes of a decoded row's variable-size values: the mean decompressed size of a row's pages.

        0 if all columns have a fixed size.
        """
        if all(field.decoded_bytes is not None for field in self.view):
            return 0
        return max(
            math.ceil(self.inventory.decoded_bytes.sum() / max(self.inventory.num_rows, 1)), _UNKNOWN_VALUE_BYTES
        )

    @once
    def value_row_bytes(self) -> int:
        """Bytes of a row's variable-size values as Python objects, in which a character of text may take two bytes."""
        free = [field for field in self.view if field.decoded_bytes is None]
        has_text = any(is_text(storage_type(field)) for field in free)
        return (2 if has_text else 1) * self.free_row_bytes + _UNKNOWN_VALUE_BYTES * len(free)

    @once
    def decodes_values(self) -> bool:
        """Whether decoding variable-size values takes memory besides the values."""
        return any(field.decoded_bytes is None and needs_decoding(field) for field in self.view)

    def rows_per_span(self, ahead: int, *, is_bounded: bool = False) -> int:
        """Return the number of rows to assemble together: the rows of a span (consecutive batches).

        Args:
            ahead: Number of spans that are assembled at a time.
            is_bounded: Whether memory is limited. A larger size of decoded images is then assumed, because spans that
                exceed the budget must be split.
        """
        size = min(max(_SPANS_BYTES // ahead, _LEAST_SPAN_BYTES), _MOST_SPAN_BYTES)
        more = 0
        if is_bounded and self.free_row_bytes and self._holds_files:
            more = (_LIKELY_EXPANSION - 1) * self.free_row_bytes
        return max(size // (self.row_bytes + more), 1)

    @once
    def _holds_files(self) -> bool:
        """Whether any column stores files, such as images, whose decoded size is not known in advance."""
        return any(field.decoded_bytes is None and hasattr(codec_of(field), "decode_bytes") for field in self.view)

    @once
    def group_bytes(self) -> NDArray[np.int64]:
        """Maximum memory of each loaded row group, shape (groups,)."""
        stacked = sum(len(stack.names) * stack.row_bytes for stack in self.layout.stacks)
        rows = self.inventory.rows
        at_hand = rows * math.ceil(ROUNDED * (stacked + _PLACE_BYTES))
        return (at_hand + np.ceil(np.where(rows > 1, _ARROW_KEEPS, 1) * self._encoded_bytes)).astype(np.int64)

    @once
    def _encoded_bytes(self) -> NDArray[np.int64]:
        """Estimated decoded bytes of the columns that stay Arrow cells in memory, for each row group, shape (groups,).

        These are the columns `layout.encoded`. Scalars of known size count with this size. For the other columns, the
        sizes of all such scalars and of the stacked columns are subtracted from the row group's decoded size in the
        footer, and the rest is divided evenly among the remaining columns of the file, also those that are not read.
        Partition columns have no cells.
        """
        encoded = set(self.layout.encoded)
        if not encoded:
            return np.zeros(self.inventory.num_row_groups, np.int64)
        stacked = {name for stack in self.layout.stacks for name in stack.names}
        sizes = {
            field.name: field.decoded_bytes
            for field in self.stored
            if field.decoded_bytes is not None and (field.is_scalar or field.name in stacked)
        }
        rest = np.maximum(self.inventory.decoded_bytes - self.inventory.rows * sum(sizes.values()), 0)
        others, read = len(self.stored.fields) - len(sizes), len(encoded - sizes.keys())
        of_numbers = self.inventory.rows * sum(sizes[name] for name in encoded & sizes.keys())
        return of_numbers - (-rest * read // max(others, read, 1))

    @once
    def permuted_row_bytes(self) -> int:
        """Bytes per row of the largest array of columns (stack): reordering its rows needs a second copy."""
        return max((len(stack.names) * stack.row_bytes for stack in self.layout.stacks), default=0)

    @property
    def plan_row_bytes(self) -> int:
        """Bytes per row for the plan of assembled batches (row numbers and indices), without the values."""
        return _SPAN_ROW_BYTES + self.rows_of_window * _COVERED_ROW_BYTES

    @once
    def work_bytes(self) -> int:
        """Bytes that each worker needs while it reads a row group."""
        # While the following rows of windows are appended to a row group, its cells are in memory twice.
        copies = 2 if self.rows_of_window else 1
        encoded = self._encoded_bytes if self.parts is None else self._encoded_bytes[~self.parts.is_divided]
        return _WORK_BYTES + copies * int(encoded.max(initial=0)) + self.head_bytes

    @once
    def footer_bytes(self) -> int:
        """Bytes of memory for the parsed footers of all files."""
        places = np.stack([self.inventory.file, self.inventory.ordinal])
        row_groups = int((np.diff(places, prepend=-1) != 0).any(axis=0).sum())  # parts of one row group are adjacent
        return row_groups * len(self.stored.fields) * _CHUNK_BYTES
