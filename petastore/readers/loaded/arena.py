"""Arena: large arrays in which all row groups in memory are stored next to each other, and their layout.

The layout says which columns share one array, and which stay encoded cells. A *stack* is one array for all columns of
one dtype and shape, column after column, so that one call processes all of them. An arena has one array for each stack.

A shuffled batch has rows of many row groups. With separate arrays, one call would be needed for each row group, and
every call that releases the GIL must wait for the GIL afterwards. With an arena, one call copies the rows of all row
groups.

Each row group is stored in the first free range of rows that is large enough, so that memory that was used before is
reused. The operating system provides memory only when it is first used, so an arena can have its maximum size from
the start. A row group that does not fit gets separate arrays.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.plain import PlainCodec
from petastore.codecs.registry import BoundCodec, codec_of
from petastore.codecs.scalar import ScalarCodec
from petastore.decoding.buffers import Buffers, untouched
from petastore.forks import Lock
from petastore.lazy import once
from petastore.plan.order.mix import counting
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema

__all__ = ["Arena", "Layout", "Place", "ReusableMemory", "Stack", "needs_decoding", "stacked_array"]

_PART_BYTES = 2 * 1024 * 1024
"""Decoded bytes that are read at once: few enough that Arrow's memory for them stays in the CPU cache."""

_PART_COLUMNS = 64
"""Maximum number of columns that are read at once; more are slower."""

_CACHE_LINE = 64
"""Bytes of a CPU cache line: reading a shorter row also fetches its neighbors."""

_SHORT_ROW_BYTES = 16 * 1024
"""Maximum bytes of a row for which stacks (arrays of columns) are stored in read order.

Decoding a longer row takes much longer than the cache misses that this order avoids."""

_STACKED = "biufcmM"
"""NumPy dtype kinds whose values have a fixed size."""


@dataclasses.dataclass(frozen=True)
class Stack:
    """Columns of one dtype and shape, stored in one array `(columns, rows, *shape)`."""

    names: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    in_read_order: bool = False
    """Whether the rows are stored in the order in which the epoch reads them, instead of file order."""

    @once
    def row_bytes(self) -> int:
        """Bytes of one value: of one row in one column."""
        return self.dtype.itemsize * math.prod(self.shape)

    @once
    def rows_at_once(self) -> int | None:
        """Number of rows to read at a time; None to read all rows of a row group."""
        return None if self.row_bytes <= _CACHE_LINE else max(_PART_BYTES // self.row_bytes, 1)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Memory layout of row groups: columns that are stored in arrays (stacks), and columns that stay encoded cells.

    Immutable; one per reader.

    Example:
        >>> fields = [UnischemaField("x", "f4"), UnischemaField("name", str), UnischemaField("y", "f4")]
        >>> layout = Layout.of(Unischema("s", fields), rows=1000)
        >>> layout.stacks[0].names, layout.encoded
        (('x', 'y'), ('name',))
    """

    stacks: tuple[Stack, ...]
    """Arrays of columns (stacks). Scalars of one dtype are divided into several stacks if reading all of them at once
    is slower."""

    encoded: tuple[str, ...]
    """Names of columns that stay encoded cells."""

    @once
    def places(self) -> dict[str, tuple[int, int]]:
        """Stack number (array of columns of one dtype and shape) and index in the stack, by name of stacked column."""
        return {
            name: (number, place) for number, stack in enumerate(self.stacks) for place, name in enumerate(stack.names)
        }

    @once
    def reorders_rows(self) -> bool:
        """Whether any stack (array of columns) stores its rows in read order instead of file order."""
        return any(stack.in_read_order for stack in self.stacks)

    @once
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of stacks (arrays of columns), one tuple for each dtype and shape, which may need several stacks."""
        kinds: dict[tuple[np.dtype[Any], tuple[int, ...]], list[int]] = {}
        for number, stack in enumerate(self.stacks):
            kinds.setdefault((stack.dtype, stack.shape), []).append(number)
        return tuple(map(tuple, kinds.values()))

    @classmethod
    def of(cls, view: Unischema, *, rows: int, apart: AbstractSet[str] = frozenset()) -> Layout:
        """Return the memory layout of these fields: which are stored in arrays, and which stay encoded cells.

        Args:
            view: Fields to read.
            rows: Number of rows of a large row group.
            apart: Names of fields that must not be stacked.
        """
        names: dict[tuple[np.dtype[Any], tuple[Any, ...]], list[list[str]]] = {}
        for field in view:
            if field.name in apart or not _may_be_stacked(field):
                continue
            of_kind = names.setdefault((field.dtype, field.shape), [[]])
            if len(of_kind[-1]) == _columns_at_once(field, rows):
                of_kind.append([])
            of_kind[-1].append(field.name)
        are_short = sum(field.decoded_bytes or 0 for field in view) <= _SHORT_ROW_BYTES
        stacks = tuple(
            Stack(tuple(together), dtype, shape, are_short and dtype.itemsize * math.prod(shape) <= _CACHE_LINE)
            for (dtype, shape), of_kind in names.items()
            for together in of_kind
        )
        stacked = {name for stack in stacks for name in stack.names}
        return cls(stacks, tuple(field.name for field in view if field.name not in stacked))


def _columns_at_once(field: UnischemaField, rows: int) -> int:
    """Return how many columns of a field's type one array may hold; 1 for fields that are arrays.

    Args:
        field: Field of one of the columns.
        rows: Number of rows of a large row group.
    """
    return max(min(_PART_BYTES // max(rows * field.dtype.itemsize, 1), _PART_COLUMNS), 1) if field.is_scalar else 1


def _may_be_stacked(field: UnischemaField) -> bool:
    return field.is_fixed and field.dtype.kind in _STACKED and hasattr(codec_of(field), "viewer")


def needs_decoding(field: UnischemaField) -> bool:
    """Return whether decoding a cell takes memory besides its value; False for cells that are only copied."""
    return not isinstance(codec_of(field), (PlainCodec, ScalarCodec))


def stacked_array(stack: Stack, table: pa.Table, columns: Mapping[str, BoundCodec]) -> NDArray[Any] | None:
    """Return columns of numbers as one array, without a Python object for each column.

    Args:
        stack: Names, dtype and shape of the columns.
        table: Table with the columns that the files store; each column has a single chunk.
        columns: Codec of each column that the files store, by name.

    Returns:
        A new array of shape (columns, rows). None if it is impossible, for example because a column has nulls or
        another type than declared.

    Example:
        >>> from petastore.schema.field import UnischemaField
        >>> columns = {name: BoundCodec.of(UnischemaField(name, "int64")) for name in "xy"}
        >>> stacked_array(Stack(("x", "y"), np.dtype(np.int64), ()), pa.table({"x": [1, 2], "y": [3, 4]}), columns)
        array([[1, 2],
               [3, 4]])
    """
    schema = table.schema
    if table.num_rows == 0 or stack.shape or stack.dtype.kind not in "iuf" or schema.names != list(stack.names):
        return None
    stored = pa.from_numpy_dtype(stack.dtype)
    codecs = (columns[name].codec for name in stack.names)
    if any(kind != stored for kind in schema.types) or not all(
        isinstance(codec, (PlainCodec, ScalarCodec)) for codec in codecs
    ):
        return None
    (batch,) = table.to_batches()
    try:
        values: NDArray[Any] = batch.to_tensor(row_major=False).to_numpy().T
    except pa.ArrowException:  # Arrow raises it if a column has nulls
        return None
    return values


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Place:
    """Memory of the fixed-size columns of a row group: a row range of shared arrays, or separate arrays."""

    first: int
    """Index of the range's first row in the arrays."""

    rows: int
    """Number of rows of the range."""

    stacks: tuple[NDArray[Any], ...]
    """One array for each stack (all columns of one dtype and shape) of the layout, `(columns, rows, *shape)`. Row
    groups in an arena share these arrays."""

    places: NDArray[np.int32] | None
    """Index, counted from `first`, of each row in those arrays (stacks) that are stored in read order; -1 for rows that
    are not read. Row groups that share the arrays also share these indices. None if all arrays are in file order."""

    lease: object = None
    """Object whose garbage collection frees the rows of the arena; None for separate arrays."""

    def stack(self, number: int) -> NDArray[Any]:
        """Return a view of one stack (the columns of one dtype and shape), shape `(columns, rows, *shape)`.

        The view is valid while this object is referenced.
        """
        return self.stacks[number][:, self.first : self.first + self.rows]

    def write_order(self, read_order: NDArray[np.int64] | None) -> None:
        """Write to `places` the index of each row in those arrays (stacks) whose rows are stored in read order.

        Args:
            read_order: Distinct rows in reading order; None means file order.
        """
        if self.places is None:
            return
        here = self.places[self.first : self.first + self.rows]
        if read_order is None:
            here[:] = counting(self.rows)
        else:
            here.fill(-1)
            here[read_order] = counting(len(read_order))

    def places_of(self, rows: NDArray[np.int64], *, in_read_order: bool) -> NDArray[np.int64]:
        """Return the index of each row in the shared arrays, shape (rows,); `rows` are row numbers in file order."""
        if not in_read_order or self.places is None:
            return self.first + rows
        return self.first + self.places[self.first + rows].astype(np.int64)


class _Lease:
    """Owner of a range of rows in an arena: garbage collection of this object frees the range."""

    __slots__ = ("_arena", "_first", "_stop")

    def __init__(self, arena: Arena, first: int, stop: int) -> None:
        self._arena, self._first, self._stop = arena, first, stop

    def __del__(self) -> None:
        self._arena.take_back(self._first, self._stop)


class Arena:
    """Large arrays shared by the row groups in memory: one array for each stack, each row group in a range of rows.

    Thread-safe. Garbage collection may free row ranges at any time in any thread.

    Args:
        layout: Layout that lists the stacks (arrays of columns).
        rows: Maximum number of rows.
        buffers: Allocator whose memory limit includes the memory that the arena has used so far.

    Example:
        >>> from petastore.schema.field import UnischemaField
        >>> from petastore.schema.unischema import Unischema
        >>> layout = Layout.of(Unischema("s", [UnischemaField("x", "f4"), UnischemaField("y", "f4")]), rows=100)
        >>> arena = Arena(layout, 250, Buffers())
        >>> first, second = arena.place(100), arena.place(100)
        >>> arena.place(100), second.stack(0).shape
        (None, (2, 100))
        >>> del first; arena.place(50).first
        0
    """

    def __init__(self, layout: Layout, rows: int, buffers: Buffers) -> None:
        self._touched = self._row_bytes = 0
        self._buffers = buffers
        self._lock = Lock()
        self._free = [(0, rows)]
        self._returned: collections.deque[tuple[int, int]] = collections.deque()
        self.rows = rows
        """Maximum number of rows."""
        self._stacks = tuple(untouched((len(stack.names), rows, *stack.shape), stack.dtype) for stack in layout.stacks)
        self._places = untouched((rows,), np.int32) if layout.reorders_rows else None
        arrays = self._stacks if self._places is None else (*self._stacks, self._places)
        self._row_bytes = sum(array.nbytes for array in arrays) // max(rows, 1)

    def place(self, rows: int) -> Place | None:
        """Allocate the first free range of this many rows; None if no range is large enough, or if `rows` is 0."""
        with self._lock:
            self._free = _joined([*self._free, *self._returned_by_now()])
            wide = (number for number, (first, stop) in enumerate(self._free) if 0 < rows <= stop - first)
            number = next(wide, None)
            if number is None:
                return None
            first, stop = self._free[number]
            self._free[number] = first + rows, stop
            fresh = max(first + rows - self._touched, 0)
            self._touched += fresh
        # `count` acquires the lock of `buffers`. The arena's lock is released before, so that no thread holds one of
        # the locks while it waits for the other.
        self._buffers.count(fresh * self._row_bytes)
        return Place(first, rows, self._stacks, self._places, _Lease(self, first, first + rows))

    def _returned_by_now(self) -> Iterator[tuple[int, int]]:
        while self._returned:
            yield self._returned.popleft()

    def take_back(self, first: int, stop: int) -> None:
        """Free a range of rows. Takes no lock, because garbage collection may call this method at any time."""
        self._returned.append((first, stop))

    def __del__(self) -> None:
        if getattr(self, "_touched", 0):  # not set if the constructor was interrupted
            self._buffers.count(-self._touched * self._row_bytes)


class ReusableMemory:
    """Reusable memory of a reader: each new iteration over the reader uses the arrays of the previous one.

    Example:
        >>> memory = ReusableMemory()
        >>> memory.arena(Layout((), ()), 0) is None, memory.buffers.kept_bytes
        (True, 0)
    """

    def __init__(self) -> None:
        self.buffers = Buffers()
        """Allocator of arrays for columns and for row groups in memory."""
        self._arena: Arena | None = None

    def arena(self, layout: Layout, rows: int) -> Arena | None:
        """Return the arena (shared arrays for the row groups in memory); None if each row group has separate arrays.

        Args:
            layout: Layout of the row groups; the same at each call.
            rows: Maximum number of rows; 0 for no arena.
        """
        if rows and (self._arena is None or self._arena.rows < rows):
            with contextlib.suppress(OSError):  # raised if the address space is exhausted
                self._arena = Arena(layout, rows, self.buffers)
        return self._arena if rows else None

    def close(self) -> None:
        """Free all memory, and memory that is returned later. May be called again."""
        self._arena = None
        self.buffers.close()


def _joined(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return half-open ranges of rows sorted by their start, with adjacent ones merged and empty ones dropped."""
    joined: list[tuple[int, int]] = []
    for first, stop in sorted(parts):
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], stop
        elif first < stop:
            joined.append((first, stop))
    return joined
