"""Room: what a memory budget leaves for values whose size only their cells tell, and spans that have to fit in there.

How many rows a span has is settled before anything is read, by what rows are likely to take. Once its cells are at hand
they say what they really take. A span that turns out larger than its share is not made ahead, but some batches at a
time, when they are asked for; and a batch for which there is no room even then is refused before it is decoded.

```text
a third    batches in the consumer's hands
a third    batches being made because they are asked for
a third    spans that are made ahead
```
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import DecodeError
from petastore.plan.batches.budget import ROUNDED, Budget
from petastore.plan.plan import Span
from petastore.readers.assembly.assemble import Assembles, LoadedRowGroups, SpanWork

__all__ = ["Room", "begin_in_room"]


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """How many bytes values may take whose size only their cells tell.

    Example:
        >>> budget = Budget(rows_per_span=100, ahead=3, at_hand_bytes=0, batch_bytes=500_000, work_bytes=0)
        >>> Room.of(budget, limit=9_500_000, free_row_bytes=0, workers=2)
        Room(limit=9500000, ahead_bytes=1000000, asked_bytes=3000000, workers=2)
    """

    limit: int
    """The `memory_budget`."""

    ahead_bytes: int
    """Of a span that is made before it is asked for."""

    asked_bytes: int
    """Of batches that are made together when they are asked for."""

    workers: int
    """Cells that are decoded at a time: each may take its size once more meanwhile."""

    @classmethod
    def of(cls, budget: Budget, *, limit: int, free_row_bytes: int, workers: int) -> Room:
        """What a budget leaves.

        Args:
            budget: How the reader runs.
            limit: The `memory_budget`.
            free_row_bytes: What the budget reckons with for such values of a row.
            workers: Tasks that run at a time.
        """
        reckoned = int(ROUNDED * (budget.ahead + 1) * budget.rows_per_span * free_row_bytes)
        third = (limit - budget.total_bytes + reckoned) // 3
        return cls(limit, third // budget.ahead, third, max(workers, 1))

    def taken(self, total: int, largest: int) -> int:
        """What values take, and what decoding them takes besides, given the bytes of all and of the largest one."""
        return total + min(self.workers * largest, total)


def begin_in_room(assembler: Assembles, room: Room, span: Span, loaded: LoadedRowGroups) -> SpanWork:
    """The work of a span, as `Assembles.begin`; in parts where its values take more than there is room for.

    Raises:
        DecodeError: There is no room even for a single batch; the largest of its cells is named.
    """
    maker, rows = assembler.decoded_rows(span)
    by_column = maker.decoded_sizes(rows, loaded)
    sizes = sum(by_column.values(), np.zeros(rows.num_rows, np.int64))
    if room.taken(int(sizes.sum()), int(sizes.max(initial=0))) <= room.ahead_bytes:
        return assembler.begin(span, loaded)
    borders = [0]
    total = largest = 0
    for batch, (first, stop) in enumerate(itertools.pairwise(rows.offsets.tolist())):
        size, most = int(sizes[first:stop].sum()), int(sizes[first:stop].max(initial=0))
        if room.taken(size, most) > room.asked_bytes:
            raise maker.placed(_no_room(room, by_column, room.taken(size, most), range(first, stop)), rows)
        total, largest = total + size, max(largest, most)
        if room.taken(total, largest) > room.asked_bytes:
            borders.append(batch)
            total, largest = size, most
    parts = [span.part(first, stop) for first, stop in itertools.pairwise([*borders, span.num_batches])]
    return SpanWork([], _nothing, tuple(functools.partial(_begin, assembler, part, loaded) for part in parts))


def _begin(assembler: Assembles, part: Span, loaded: LoadedRowGroups) -> SpanWork:
    return assembler.begin(part, {group: loaded[group] for group in np.unique(part.groups).tolist()})


def _nothing() -> Any:
    raise AssertionError("what is made in parts is not made as a whole")


def _no_room(room: Room, by_column: dict[str, NDArray[np.int64]], taken: int, rows: range) -> DecodeError:
    column, row, size = max(
        ((name, rows.start + int(np.argmax(sizes[rows.start : rows.stop])), int(sizes[rows.start : rows.stop].max()))
         for name, sizes in by_column.items()),
        key=lambda cell: cell[2],
    )  # fmt: skip
    return DecodeError(
        f"the cell takes {size:,} bytes of memory once it is decoded, and its batch of {len(rows):,} rows {taken:,} "
        f"with what decoding needs; memory_budget={room.limit:,} leaves {room.asked_bytes:,} for such values of "
        "a batch. Give it more, ask for smaller batches, or leave the column out by schema_fields",
        column=column,
        row=row,
    )
