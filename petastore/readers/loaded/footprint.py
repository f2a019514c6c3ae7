"""The footprint: what rows of a reader take in memory, at hand and in batches."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.registry import codec_of
from petastore.inventory import Inventory
from petastore.once import once
from petastore.plan.batches.budget import ROUNDED, Needs
from petastore.readers.loaded.layout import Layout
from petastore.schema.unischema import Unischema

__all__ = ["Footprint"]

_LEAST_SPAN_BYTES = 8 * 1024 * 1024
_MOST_SPAN_BYTES = 25 * 1024 * 1024
_SPANS_BYTES = 75 * 1024 * 1024
"""Decoded bytes that are assembled in one go, and of all spans that are worked on at a time. Threads hand over to each
other some twenty times a span, whatever its size, and each time a processor does nothing for some 50 µs (measured with
two workers: spans of 25 MB are read 1.1 to 1.5 times as fast as those of 8 MB). With many workers there is always
another one that has something to do, and memory counts for more. Batches have powers of two as often as not: 25 MB
have room for twice 12 and their labels."""

_UNKNOWN_VALUE_BYTES = 64
"""What a value is taken to need where neither schema nor footers tell."""

_LIKELY_EXPANSION = 8
"""How many times larger than what is stored images and compressed arrays are taken to be; photographs are."""

_WORK_BYTES = 24 * 1024 * 1024
"""What a worker needs while it reads: pages, compressed and decoded, of the few columns that are read in one go, and
what allocators keep of them (measured: 10 to 40 MB for two workers)."""

_ARROW_KEEPS = 1.75
"""Times as much as its cells take that Arrow's allocator keeps of row groups that come and go (measured)."""

_PLACE_BYTES = 20
"""What a row at hand takes besides its values: where it lies, and its place in the plan."""

_SPAN_ROW_BYTES = 40
"""What a row of a span takes besides its values: which it is, and where it stands."""


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What a reader's rows take. A value; works out what is asked for, once.

    Example:
        >>> from petastore.schema.field import UnischemaField
        >>> view = Unischema("s", [UnischemaField("x", "f4"), UnischemaField("word", str)])
        >>> inventory = Inventory.of_rows([1000, 1000], bytes_per_row=20)
        >>> footprint = Footprint(view, view, Layout.of(view, rows=1000), inventory)
        >>> footprint.row_bytes, footprint.group_bytes.tolist()
        (68, [58000, 58000])
    """

    view: Unischema
    """The fields that are read."""

    stored: Unischema
    """All fields of the dataset."""

    layout: Layout
    """How row groups are kept at hand."""

    inventory: Inventory
    """What exists."""

    @once
    def row_bytes(self) -> int:
        """Bytes of a decoded row; a guess from what is stored where the schema leaves sizes free."""
        return max(sum(field.decoded_bytes or 0 for field in self.view) + self.free_row_bytes, 1)

    @once
    def free_row_bytes(self) -> int:
        """Bytes of those values of a decoded row whose sizes the schema leaves free: a guess from what is stored."""
        if all(field.decoded_bytes is not None for field in self.view):
            return 0
        return max(
            math.ceil(self.inventory.decoded_bytes.sum() / max(self.inventory.num_rows, 1)), _UNKNOWN_VALUE_BYTES
        )

    def rows_per_span(self, ahead: int, *, is_bounded: bool = False) -> int:
        """Rows that are best assembled in one go, where so many spans are worked on at a time.

        Args:
            ahead: How many.
            is_bounded: Whether memory is: then files are taken to be larger once decoded, so that few spans have to be
                made in parts because they turn out too large.
        """
        size = min(max(_SPANS_BYTES // ahead, _LEAST_SPAN_BYTES), _MOST_SPAN_BYTES)
        more = 0
        if is_bounded and self.free_row_bytes and self._holds_files:
            more = (_LIKELY_EXPANSION - 1) * self.free_row_bytes
        return max(size // (self.row_bytes + more), 1)

    @once
    def _holds_files(self) -> bool:
        """Whether there are columns whose codec decodes files, such as images, of any size."""
        return any(field.decoded_bytes is None and hasattr(codec_of(field), "decode_bytes") for field in self.view)

    @once
    def group_bytes(self) -> NDArray[np.int64]:
        """Of each row group: what it takes at hand, at most, shape (groups,)."""
        stacked = sum(len(stack.names) * stack.row_bytes for stack in self.layout.stacks)
        at_hand = self.inventory.rows * math.ceil(ROUNDED * (stacked + _PLACE_BYTES))
        return (at_hand + np.ceil(_ARROW_KEEPS * self._encoded_bytes)).astype(np.int64)

    @once
    def _encoded_bytes(self) -> NDArray[np.int64]:
        """Of each row group: its cells of columns that are not stacked.

        What footers say of a whole row group, less what is stacked and numbers take, is divided evenly among the
        others, whether they are read or not. Partition columns have no cells; numbers are taken to have some.
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

    @property
    def needs(self) -> Needs:
        """What a budget has to reckon with."""
        permuted = max((len(stack.names) * stack.row_bytes for stack in self.layout.stacks), default=0)
        work = _WORK_BYTES + int(self._encoded_bytes.max(initial=0))
        return Needs(self.row_bytes, permuted, work, _SPAN_ROW_BYTES)
