"""Selection: the rows of each row group that a filter selects. No I/O.

A selection consists of the number of selected rows of each row group, and of bitmaps for partly selected row groups. A
bitmap has one bit for each row. All bitmaps share one buffer. Each bitmap begins at a byte, with the most significant
bit first. For every 64 bytes, the number of set bits before them is stored, so that `select` is a binary search.
Together this takes 0.14 bytes per row, and 24 bytes per row group with a bitmap.

The plan is computed from the counts, so epochs with a filter have equal steps and can resume, as without a filter. A
selection also contains the reasons why other rows were skipped; these reasons do not affect equality.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError
from petastore.lazy import once

__all__ = ["Pruned", "PrunedBy", "RowBitmaps", "Selection"]


_BLOCK = 64
"""Block size in bytes.

For each block of the bitmaps, the number of set bits before the block is stored."""

_ROWS_WORTH_UNPACKING = 256
"""Minimum number of requested rows per row group for unpacking whole bitmaps.

For fewer rows, a binary search for each row is faster."""

_COUNTED_AT_ONCE = 2**14
"""Number of blocks or rows that are processed at a time.

Temporary arrays of this size stay in the CPU cache."""

# _BIT_NUMBERS[byte, k]: index of the k-th set bit of a byte, shape (256, 8)
_BIT_NUMBERS = np.argsort(~np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1), axis=1, kind="stable")


class RowBitmaps(Mapping[int, NDArray[np.bool_]]):
    """Bitmaps of selected rows, one for each partly selected row group.

    Bitmaps are stored as bits, and the mapping unpacks a bitmap to a bool array on access.

    Args:
        groups: Row groups that have a bitmap, ascending, shape (n,).
        rows: Number of rows of each of these row groups, shape (n,).
        packed: Concatenated bitmaps; bits beyond the rows of a row group are 0.

    Example:
        >>> bitmaps = RowBitmaps.pack([(1, np.array([False, True, True])), (4, np.array([True, False]))])
        >>> list(bitmaps), bitmaps[1].tolist(), bitmaps.counts.tolist()
        ([1, 4], [False, True, True], [2, 1])
        >>> bitmaps.select(np.array([1, 1, 3], np.int32), np.array([0, 1, 7])).tolist()
        [1, 2, 7]
    """

    def __init__(self, groups: NDArray[Any], rows: NDArray[Any], packed: bytes | bytearray | memoryview) -> None:
        self.groups = groups.astype(np.int32)
        self._rows = rows.astype(np.int32)
        sizes = -(-self._rows.astype(np.int64) // 8)
        # starts: (n + 1,) byte at which each bitmap begins, then the byte after the last bitmap
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        padding = bytes(_BLOCK - len(packed) % _BLOCK)
        if isinstance(packed, bytearray):
            packed.extend(padding)  # pad in place, without a copy
        else:
            packed = bytes(packed) + padding
        self._bytes = np.frombuffer(packed, np.uint8)
        words = self._bytes.view(np.uint64).reshape(-1, _BLOCK // 8)
        # before: (blocks + 1,) number of set bits before each block
        self._before = np.zeros(len(words) + 1, np.int64)
        for first in range(0, len(words), _COUNTED_AT_ONCE):
            counts = np.bitwise_count(words[first : first + _COUNTED_AT_ONCE]).sum(axis=1, dtype=np.int64)
            np.cumsum(counts, out=self._before[first + 1 : first + 1 + len(counts)])
            self._before[first + 1 : first + 1 + len(counts)] += self._before[first]
        # ranks: (n + 1,) number of set bits before each bitmap, then the number of all set bits
        self._ranks = np.concatenate(
            [[0], *map(self._rank, np.array_split(self._starts[1:], _num_chunks(len(groups))))]
        )

    @classmethod
    def pack(cls, bitmaps: Iterable[tuple[int, NDArray[np.bool_]]]) -> RowBitmaps:
        """Pack bool arrays into bitmaps, and return them.

        Args:
            bitmaps: Pairs of row group and bool array (rows,), by ascending row group.
        """
        groups, rows, packed = [], [], bytearray()
        for group, bitmap in bitmaps:
            groups.append(group)
            rows.append(len(bitmap))
            packed += np.packbits(bitmap).tobytes()
        return cls(np.array(groups, np.int64), np.array(rows, np.int64), packed)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of selected rows of each row group with a bitmap, shape (n,)."""
        return np.diff(self._ranks)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Start of each bitmap in `packed`, then the number of all bytes; shape (n + 1,)."""
        return self._starts

    @property
    def packed(self) -> NDArray[np.uint8]:
        """Bytes of all bitmaps, concatenated."""
        return self._bytes[: self._starts[-1]]

    def select(self, groups: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert indices among the selected rows to row numbers in the row groups.

        In row groups without a bitmap, the index of a row equals its row number.

        Args:
            groups: Row group of each row, shape (n,).
            places: Index of each row among the selected rows of its row group, from 0; shape (n,).

        Returns:
            Row numbers, a new array of shape (n,).
        """
        if not len(self.groups) or not len(groups):
            return places.copy()
        order = np.argsort(groups, kind="stable")
        runs = np.flatnonzero(np.diff(groups[order], prepend=-1))
        if len(runs) * _ROWS_WORTH_UNPACKING <= len(groups):
            rows = places.copy()
            for of_group in np.split(order, runs[1:]):
                if int(groups[of_group[0]]) in self:
                    rows[of_group] = np.flatnonzero(self[int(groups[of_group[0]])])[places[of_group]]
            return rows
        parts = _num_chunks(len(groups))
        return np.concatenate(list(map(self._select, np.array_split(groups, parts), np.array_split(places, parts))))

    def _select(self, groups: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Compute the result of `select` by a binary search for each row."""
        index = np.minimum(np.searchsorted(self.groups, groups), len(self.groups) - 1)
        has_bitmap = np.flatnonzero(self.groups[index] == groups)
        rows = places.copy()
        rank = self._ranks[index[has_bitmap]] + places[has_bitmap]
        order = np.argsort(rank)  # the binary search below is 10 times faster for ascending numbers
        rank, has_bitmap = rank[order], has_bitmap[order]
        block = np.searchsorted(self._before, rank, side="right") - 1
        words = self._bytes.view(np.uint64).reshape(-1, _BLOCK // 8)[block]
        word, rest = _part_of(words, rank - self._before[block])
        word += block * (_BLOCK // 8)
        byte, rest = _part_of(self._bytes.reshape(-1, 8)[word], rest)
        byte += word * 8
        rows[has_bitmap] = (byte - self._starts[index[has_bitmap]]) * 8 + _BIT_NUMBERS[self._bytes[byte], rest]
        return rows

    def _rank(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of set bits before each byte position in `packed`, shape (n,)."""
        block, inside = np.divmod(positions, _BLOCK)
        own = np.bitwise_count(self._bytes.reshape(-1, _BLOCK)[block])
        return self._before[block] + np.where(np.arange(_BLOCK) < inside[:, None], own, 0).sum(axis=1, dtype=np.int64)

    def _index(self, group: int) -> int | None:
        """Return the index of a row group's bitmap; None if the row group has no bitmap."""
        index = int(np.searchsorted(self.groups, group))
        return index if index < len(self.groups) and self.groups[index] == group else None

    def __getitem__(self, group: int) -> NDArray[np.bool_]:
        index = self._index(group)
        if index is None:
            raise KeyError(group)
        packed = self._bytes[self._starts[index] : self._starts[index + 1]]
        return np.unpackbits(packed, count=int(self._rows[index])).view(np.bool_)

    def __contains__(self, group: object) -> bool:
        return isinstance(group, (int, np.integer)) and self._index(int(group)) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self.groups.tolist())

    def __len__(self) -> int:
        return len(self.groups)


def _num_chunks(rows: int) -> int:
    """Return the number of chunks in which to process this many rows or row groups."""
    return rows // _COUNTED_AT_ONCE + 1


def _part_of(parts: NDArray[Any], rest: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the set bit with a given number in each row of an array of integers.

    Args:
        parts: Unsigned integers, shape (n, parts).
        rest: Number of the set bit among all set bits of its row, from 0, shape (n,).

    Returns:
        Column of the integer that contains the bit, and the number of the bit among the set bits of this integer, both
        of shape (n,).
    """
    counts = np.bitwise_count(parts)
    ends = np.cumsum(counts, axis=1, dtype=np.int16)
    part = (ends <= rest[:, None]).sum(axis=1)
    along = np.arange(len(parts))
    return part, rest - ends[along, part] + counts[along, part]


PrunedBy: TypeAlias = Literal[
    "row-group index",
    "partition values",
    "statistics",
    "filter",
    "predicate",
    "excluded rows",
    "bad rows",
    "windows",
    "selection",
]
"""Names of the filter steps that skip rows; see `PRUNED_BY`."""

PRUNED_BY: tuple[PrunedBy, ...] = get_args(PrunedBy)
"""Filter steps that skip rows, in the order in which they are applied.

First, whole row groups are skipped by a row-group selector, by partition values and by statistics; then, single rows by
the filter and the predicate. `"excluded rows"` are those of `exclude_rows=`, and `"bad rows"` those that `on_error=`
skips. `"windows"` skips rows at which no window starts. `"selection"` means rows that are missing in a selection that
the user made."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pruned:
    """Numbers of row groups and rows that one filter step excluded.

    Example:
        >>> Pruned("statistics", row_groups=3, rows=3000)
        Pruned(by='statistics', row_groups=3, rows=3000)
    """

    by: PrunedBy
    """Name of the filter step, one of `PRUNED_BY`."""

    row_groups: int
    """Number of row groups of which this step excluded all remaining rows.

    Empty row groups are not counted."""

    rows: int
    """Number of rows that this step excluded, including those of whole row groups."""

    def __post_init__(self) -> None:
        if self.by not in PRUNED_BY:
            raise InvalidArgumentError(f"by must be one of {', '.join(map(repr, PRUNED_BY))}, got {self.by!r}")
        if self.row_groups < 0 or self.rows < self.row_groups:
            raise InvalidArgumentError(
                f"row_groups must be at least 0, and rows at least row_groups, got row_groups={self.row_groups} and "
                f"rows={self.rows}"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Selection:
    """Selected rows of each row group: the result of filters and predicates.

    Returned by `petastore.select_rows`. Two selections are equal if their fingerprints are equal.

    Example:
        >>> selection = Selection(np.array([5, 2, 0]), {1: np.array([False, True, False, True])})
        >>> selection.rows_at(np.array([0, 1, 1], np.int32), np.array([3, 0, 1])).tolist()
        [3, 1, 3]
        >>> selection
        Selection(7 rows in 2 of 3 row groups)
    """

    counts: NDArray[np.int64]
    """Number of selected rows of each row group, shape (groups,)."""

    bitmaps: Mapping[int, NDArray[np.bool_]]
    """For each partly selected row group, a bool array (rows,), True if selected.

    Bitmaps are stored as one bit per row, and an array is unpacked on access."""

    pruned: tuple[Pruned, ...] = ()
    """Numbers of rows that each filter step excluded; may be incomplete.

    Not part of the fingerprint."""

    before: Selection | None = dataclasses.field(default=None, repr=False, kw_only=True)
    """Selection before the last call of `without`; None if no rows were excluded.

    With it, states that were saved before the exclusion can be resumed. Not part of the fingerprint."""

    def __post_init__(self) -> None:
        counts = np.array(self.counts, dtype=np.int64)
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        if not isinstance(self.bitmaps, RowBitmaps):
            bitmaps = RowBitmaps.pack((group, self.bitmaps[group]) for group in sorted(self.bitmaps))
            object.__setattr__(self, "bitmaps", bitmaps)
        groups = self.packed.groups
        # A row group number out of range gets the count -1. It differs from every number of selected rows, so that the
        # check below raises an error.
        of_groups = np.append(counts, -1)[np.where((groups < 0) | (groups >= len(counts)), len(counts), groups)]
        wrong = np.flatnonzero(of_groups != self.packed.counts)
        if len(wrong):
            group, count, selected = (int(each[wrong[0]]) for each in (groups, of_groups, self.packed.counts))
            counted = f"counts[{group}] is {count:,}" if count >= 0 else f"counts has {len(counts):,} row groups"
            raise InvalidArgumentError(
                f"the bitmap of row group {group} must have one True for each row that counts declares, got "
                f"{selected:,} True where {counted}"
            )

    @classmethod
    def of_flags(
        cls,
        flags: Iterable[tuple[int, NDArray[np.bool_]]],
        rows: NDArray[np.int64],
        *,
        whole: NDArray[np.bool_] | None = None,
        pruned: tuple[Pruned, ...] = (),
    ) -> Selection:
        """Return a selection from bool arrays of rows and a mask of whole row groups.

        Args:
            flags: Row groups, ascending, each with a bool array (rows,) of its selected rows.
            rows: Rows per row group of the dataset, shape (groups,).
            whole: Mask of the row groups, not in `flags`, of which all rows are selected, shape (groups,). None means
                that there are none.
            pruned: Numbers of rows that each filter step excluded, as far as known.
        """
        counts = np.where(False if whole is None else whole, rows, 0)

        def partial() -> Iterator[tuple[int, NDArray[np.bool_]]]:
            for group, of_group in flags:
                counts[group] = np.count_nonzero(of_group)
                if 0 < counts[group] < len(of_group):
                    yield group, of_group

        bitmaps = RowBitmaps.pack(partial())
        return cls(counts, bitmaps, pruned)

    def without(self, excluded: Mapping[int, NDArray[np.bool_]], rows: NDArray[np.int64], *, by: PrunedBy) -> Selection:
        """Return this selection without given rows; the same object if none is selected.

        Args:
            excluded: Bool array (rows,) for each row group with excluded rows, True for rows to exclude. It may also be
                True for rows that are not selected.
            rows: Rows per row group of the dataset, shape (groups,).
            by: Name of the filter step that excludes the rows, for `pruned`.

        Example:
            >>> rows = np.array([3, 2])
            >>> Selection(rows, {}).without({1: np.array([True, False])}, rows, by="excluded rows")
            Selection(4 rows in 2 of 2 row groups)
        """
        is_partial = np.zeros(len(rows), np.bool_)
        is_partial[[*self.packed.groups.tolist(), *excluded]] = True
        is_partial &= self.counts > 0

        def flags() -> Iterator[tuple[int, NDArray[np.bool_]]]:
            for group in np.flatnonzero(is_partial).tolist():
                bitmap = self.bitmaps.get(group, np.True_)
                yield group, bitmap & ~excluded.get(group, np.zeros(rows[group], np.bool_))

        left = Selection.of_flags(flags(), rows, whole=(self.counts > 0) & ~is_partial)
        left_out = int((self.counts - left.counts).sum())
        emptied = int(((self.counts > 0) & (left.counts == 0)).sum())
        if not left_out:
            return self
        return dataclasses.replace(left, pruned=(*self.pruned, Pruned(by, emptied, left_out)), before=self)

    @property
    def packed(self) -> RowBitmaps:
        """Bitmaps of the partly selected row groups, packed to one bit per row."""
        return cast("RowBitmaps", self.bitmaps)

    @once
    def fingerprint(self) -> str:
        """Fingerprint: 32 hexadecimal digits, equal for equal selections."""
        digest = hashlib.sha256(self.counts.astype("<i8").tobytes())
        for group, (first, stop) in zip(self.bitmaps, itertools.pairwise(self.packed.offsets.tolist()), strict=True):
            digest.update(group.to_bytes(8, "little") + self.packed.packed[first:stop].tobytes())
        return digest.hexdigest()[:32]

    def rows_at(self, groups: NDArray[np.int32], places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert indices among the selected rows to row numbers in their row groups.

        Args:
            groups: Row group of each row, shape (n,).
            places: Index of each row among the selected rows of its row group, from 0; shape (n,).

        Returns:
            Row numbers, a new array of shape (n,).
        """
        return self.packed.select(groups, places)

    def places_of(self, groups: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert row numbers to indices among the selected rows: inverse of `rows_at`.

        Args:
            groups: Row group of each row, shape (n,).
            rows: Row number of each row in its row group, shape (n,).

        Returns:
            Indices, a new array of shape (n,); -1 for rows that are not selected.

        Example:
            >>> selection = Selection(np.array([5, 2, 0]), {1: np.array([False, True, False, True])})
            >>> selection.places_of(np.array([0, 1, 1, 2]), np.array([3, 3, 2, 0])).tolist()
            [3, 1, -1, -1]
        """
        places = np.where(self.counts[groups] > 0, rows, -1)
        for group in np.intersect1d(groups, self.packed.groups).tolist():
            here, is_selected = groups == group, self.bitmaps[group]
            places[here] = np.where(is_selected, np.cumsum(is_selected) - 1, -1)[rows[here]]
        return places

    def __eq__(self, other: object) -> bool:
        return self.fingerprint == other.fingerprint if isinstance(other, Selection) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        kept = int((self.counts > 0).sum())
        return f"{type(self).__name__}({int(self.counts.sum()):,} rows in {kept:,} of {len(self.counts):,} row groups)"
