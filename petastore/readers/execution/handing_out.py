"""Handing out: what a reader gives when it is iterated itself, rows or batches of columns, as named tuples."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from petastore.once import once
from petastore.plan.request import Tail
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan
from petastore.readers.batch import Batch
from petastore.readers.execution.handouts import Handout, batches_of, rows_of
from petastore.schema.row import row_type
from petastore.schema.unischema import Unischema

__all__ = ["GivesBatches", "GivesRows", "HandingOut", "most_rows"]

_LARGEST_BATCH = 65_536
"""Rows of the batches that a batched reader gives when nobody says how many."""


class HandingOut(Protocol):
    """How spans are handed out to who iterates a reader."""

    @property
    def rows(self) -> int:
        """Rows of what one `next` gives, at most."""

    def handout(self, span: AssembledSpan) -> Handout:
        """What a span has become; its items are handed out one by one."""


def most_rows(largest_group: int) -> int:
    """Rows of the batches that a batched reader gives: those of the largest row group, within bounds."""
    return max(min(largest_group, _LARGEST_BATCH), 1)


@dataclasses.dataclass(frozen=True, eq=False)
class _NamedTuples:
    schema: Unischema
    """What comes out."""

    last_batch: Tail
    """Says whether there is a column that marks repeats."""

    @once
    def row_type(self) -> Any:
        """The named tuple."""
        names = tuple(self.schema.fields) + ((VALID_COLUMN,) if self.last_batch is Tail.PAD else ())
        return row_type(self.schema.name if self.schema.name.isidentifier() else "Row", names)


@dataclasses.dataclass(frozen=True, eq=False)
class GivesRows(_NamedTuples):
    """Rows one by one, as named tuples."""

    rows: int = 1
    """Rows of what one `next` gives."""

    def handout(self, span: AssembledSpan) -> Handout:
        """The rows of a span."""
        return rows_of(span, self.row_type)


@dataclasses.dataclass(frozen=True, eq=False)
class GivesBatches(_NamedTuples):
    """Batches, as named tuples of columns."""

    rows: int
    """Rows of a batch."""

    def handout(self, span: AssembledSpan) -> Handout:
        """The batches of a span."""
        return batches_of(span, self._named)

    def _named(self, batch: Batch) -> Any:
        return self.row_type._make(batch.values())
