"""Row groups of many footers in one footer, for a file in which their files stand one behind the other. Pure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.storage.footers.alike_footers import Slot, Walked, steps_through, walk_together
from petastore.storage.footers.thrift import LIST_OF_STRUCTS

__all__ = ["LARGEST", "AlikeRowGroups", "Chunks", "alike_row_groups"]

_FIRST_PAGE = 4
"""Before it stands the magic of the file."""

_WRITTEN_BYTES = 5
"""Of each number that is written here: smaller ones are padded, as their coding allows."""

LARGEST = (1 << (7 * _WRITTEN_BYTES - 1)) - 1
"""The largest number that can be written."""

_OF_CHUNKS = ("values", "stored", "data")
_WANTED = ("rows", "dictionary", "begin", "end", *_OF_CHUNKS)


@dataclasses.dataclass(frozen=True, slots=True)
class Chunks:
    """What is said of the column chunks of row groups; arrays have the shape (row groups, columns)."""

    rows: NDArray[np.int64]
    """Of each row group, shape (row groups,)."""

    values: NDArray[np.int64]
    """How many there are, missing ones included."""

    stored: NDArray[np.int64]
    """Bytes of all pages."""

    dictionary: NDArray[np.int64]
    """Where the dictionary page is; -1 is that there is none."""

    data: NDArray[np.int64]
    """Where the first data page is."""

    def moved(self, by: NDArray[np.int64]) -> Chunks:
        """The same where each row group stands so much further back, shape (row groups,)."""
        far = by[:, None]
        dictionary = np.where(self.dictionary < 0, -1, self.dictionary + far)
        return dataclasses.replace(self, dictionary=dictionary, data=self.data + far)

    def lie_before(self, ends: NDArray[np.int64]) -> bool:
        """Whether all pages may be where they are said to be, if the pages of the file of each end at a place."""
        first = np.where(self.dictionary < 0, self.data, self.dictionary)
        are_in_order = (first >= _FIRST_PAGE) & (first <= self.data) & (self.dictionary != self.data)
        return bool((are_in_order & (self.stored > 0) & (self.stored <= ends[:, None] - first)).all())


@dataclasses.dataclass(frozen=True, slots=True)
class AlikeRowGroups:
    """Row groups of several footers that are alike."""

    chunks: Chunks
    """What they say."""

    footers: Sequence[bytes]
    asked: Sequence[tuple[int, int]]
    walked: Walked
    slots: _Slots

    def joined(self, begins: NDArray[np.int64]) -> bytes:
        """One footer with these row groups, for a file in which those of the footers begin at places of their own.

        Args:
            begins: Where, shape (footers,).
        """
        first, walked = self.footers[0], self.walked
        rows, begin, end = (self.slots.of[Slot(-1, -1, what)] for what in ("rows", "begin", "end"))
        pieces = [first[: walked.begins[0, rows]], _written(self.chunks.rows.sum(keepdims=True) << 1).tobytes()]
        pieces += [first[walked.ends[0, rows] : walked.begins[0, begin]], LIST_OF_STRUCTS]
        pieces.append(_written(np.array([len(self.asked)])).tobytes())
        pieces += self._row_groups(begins)
        return b"".join([*pieces, first[walked.begins[0, end] :]])

    def _row_groups(self, begins: NDArray[np.int64]) -> Iterable[bytes]:
        """The row groups, in pieces: what stays, and between two such a number that was moved."""
        walked = self.walked
        cuts: dict[int, tuple[list[list[int]], list[list[int]], NDArray[np.uint8]]] = {}
        for group in {group for _, group in self.asked}:
            moved = self.slots.of_pages(group)
            begin, end = (self.slots.of[Slot(group, -1, what)] for what in ("begin", "end"))
            froms = np.column_stack([walked.begins[:, [begin]], walked.ends[:, moved]]).tolist()
            tos = np.column_stack([walked.begins[:, moved], walked.begins[:, [end]]]).tolist()
            cuts[group] = froms, tos, _written((walked.numbers[:, moved] + begins[:, None]) << 1)
        for place, group in self.asked:
            froms, tos, numbers = cuts[group]
            stays = map(self.footers[place].__getitem__, map(slice, froms[place], tos[place]))
            yield from itertools.chain.from_iterable(
                itertools.zip_longest(stays, map(bytes, numbers[place]), fillvalue=b"")
            )


def alike_row_groups(footers: Sequence[bytes], asked: Sequence[tuple[int, int]]) -> AlikeRowGroups | None:
    """Some row groups of footers; None where these have not all one schema, or one of them is damaged.

    Args:
        footers: The Thrift bytes of each, at least one; not trusted.
        asked: Of each row group: the number of its footer, and its number there; at least one.
    """
    steps = steps_through(footers[0], _WANTED)
    if steps is None:
        return None
    walked = walk_together(footers, steps)
    slots = _Slots([step.slot for step in steps if step.slot is not None])
    members, ordinals = np.array(asked, np.int64).T
    if not walked.is_alike.all() or not slots.are_complete or not ordinals.max() < slots.groups:
        return None
    chunks = slots.chunks(walked, members, ordinals)
    is_right = (chunks.rows >= 0).all() and chunks.rows.sum() <= LARGEST >> 1
    return AlikeRowGroups(chunks, footers, asked, walked, slots) if is_right else None


class _Slots:
    """What is wanted of footers that are alike, and which of the numbers found it is."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self.of = {slot: number for number, slot in enumerate(slots)}
        self.groups = 1 + max((slot.group for slot in slots), default=-1)
        self._columns = 1 + max((slot.column for slot in slots), default=-1)

    @property
    def are_complete(self) -> bool:
        """Whether all is there that row groups need."""
        groups, columns = range(self.groups), range(self._columns)
        of_file = [Slot(-1, -1, what) for what in ("rows", "begin", "end")]
        of_groups = [Slot(group, -1, "rows") for group in groups]
        of_chunks = [Slot(*chunk) for chunk in itertools.product(groups, columns, _OF_CHUNKS)]
        return bool(of_chunks) and all(slot in self.of for slot in (*of_file, *of_groups, *of_chunks))

    def chunks(self, walked: Walked, members: NDArray[np.int64], ordinals: NDArray[np.int64]) -> Chunks:
        """What some row groups say of their chunks, given their footers and their numbers there."""
        rows = np.array([self.of[Slot(group, -1, "rows")] for group in range(self.groups)])
        others = {}
        for what in ("dictionary", *_OF_CHUNKS):
            chunks = itertools.product(range(self.groups), range(self._columns), [what])
            numbers = np.array([self.of.get(Slot(*chunk), -1) for chunk in chunks]).reshape(self.groups, -1)[ordinals]
            others[what] = np.where(numbers < 0, -1, walked.numbers[members[:, None], numbers])
        return Chunks(walked.numbers[members, rows[ordinals]], **others)

    def of_pages(self, group: int) -> list[int]:
        """The numbers of a row group that say where pages are, in the order in which they stand there."""
        return [at for slot, at in self.of.items() if slot.group == group and slot.what in ("data", "dictionary")]


def _written(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Unsigned numbers as Thrift writes them, in as many bytes each, shape (..., bytes)."""
    written = (numbers[..., None] >> np.arange(0, 7 * _WRITTEN_BYTES, 7)) & 127
    written[..., :-1] |= 128
    return written.astype(np.uint8)
