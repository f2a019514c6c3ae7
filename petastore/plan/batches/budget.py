"""The budget: what a reader needs in memory, and how much it may prepare ahead, known before a byte is read. Pure.

```text
row groups at hand       those that the order keeps for later batches, from being fetched ahead to their last row
spans                    batches being assembled, ready, and in the trainer's hands: one more than are worked on ahead
work                     what each worker needs besides: pages, compressed and decoded, and one stack to be permuted
```

The first is a matter of the order, of which `petastore.plan.batches.kept` tells, and cannot be made less without
another order. The others are a matter of speed: a budget makes spans smaller, and fewer of them, down to single batches
one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from petastore.errors import InvalidArgumentError
from petastore.plan.batches.kept import Kept

__all__ = ["ROUNDED", "Budget", "Needs", "fitted"]

ROUNDED = 1.25
"""Buffers are given out in sizes at most so many times as large as what is asked for (`petastore.decoding.buffers`)."""


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """What things take in memory."""

    row_bytes: int
    """Of a row in a batch."""

    permuted_row_bytes: int
    """Of a row of the largest stack, which is laid twice while it is permuted."""

    work_bytes: int
    """Of each worker besides."""

    plan_row_bytes: int = 0
    """Of a row of a batch on its way besides its values: which it is, and where it stands."""


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """How a reader runs, and what it then needs at most; print it.

    Example:
        >>> print(Budget(rows_per_span=512, ahead=3, at_hand_bytes=96_000_000, batch_bytes=34_000_000, work_bytes=0))
        at most 130.0 MB: 96.0 MB of row groups at hand, 34.0 MB of batches on their way (3 spans of 512 rows ahead),
        0.0 MB of work
    """

    rows_per_span: int
    """Rows that are assembled in one go, unless a single batch has more."""

    ahead: int
    """Spans that are worked on at a time."""

    at_hand_bytes: int
    """Of row groups at hand."""

    batch_bytes: int
    """Of batches on their way."""

    work_bytes: int
    """Of workers and of the plan itself."""

    @property
    def total_bytes(self) -> int:
        """Of everything."""
        return self.at_hand_bytes + self.batch_bytes + self.work_bytes

    def __str__(self) -> str:
        return (
            f"at most {_megabytes(self.total_bytes)}: {_megabytes(self.at_hand_bytes)} of row groups at hand, "
            f"{_megabytes(self.batch_bytes)} of batches on their way ({self.ahead:,} spans of {self.rows_per_span:,} "
            f"rows ahead), {_megabytes(self.work_bytes)} of work"
        )


_NOTHING_KEPT = Kept()


def fitted(
    needs: Needs,
    at_hand_bytes: Callable[[int], int],
    *,
    batch_size: int,
    rows_per_span: int,
    workers: int,
    limit: int | None,
    kept: Kept = _NOTHING_KEPT,
) -> Budget:
    """The fastest way to run that keeps to a limit.

    Args:
        needs: What things take.
        at_hand_bytes: Most bytes of row groups at hand, given how many rows before they are needed they are fetched.
        batch_size: Rows of a batch.
        rows_per_span: Rows that would be assembled in one go without a limit.
        workers: Tasks that run at a time; 0 where they run in the consumer's thread.
        limit: Bytes; None is as many as are useful.
        kept: Why row groups are at hand; what a refusal advises depends on it.

    Raises:
        InvalidArgumentError: Even single batches, one by one, need more.

    Example:
        >>> needs = Needs(row_bytes=1000, permuted_row_bytes=0, work_bytes=0)
        >>> sizes = {"batch_size": 100, "rows_per_span": 10_000, "workers": 2}
        >>> limits = (None, 10**8, 10**7, 1_300_000)
        >>> [fitted(needs, lambda _: 10**6, limit=limit, **sizes).rows_per_span for limit in limits]
        [10000, 10000, 2500, 100]
    """
    for rows in _halved(rows_per_span, batch_size):
        at_hand = at_hand_bytes((workers + 1) * rows)
        for ahead in range(workers + 1, 0, -1):
            budget = Budget(rows, ahead, at_hand, *_bytes_on_the_way(needs, rows, ahead, workers))
            if limit is None or budget.total_bytes <= limit:
                return budget
    what = "windows" if kept.is_of_windows else "rows"
    raise InvalidArgumentError(
        f"memory_budget={limit:,} bytes is less than the {budget.total_bytes:,} bytes that batches of {batch_size:,} "
        f"{what} need one by one: {budget.at_hand_bytes:,} of row groups at hand, {budget.batch_bytes:,} of batches, "
        f"{budget.work_bytes:,} of work. Give it {budget.total_bytes:,} or more; or "
        f"{kept.advice(budget, limit=limit or 0, workers=workers)}"
    )


def _halved(rows: int, least: int) -> list[int]:
    sizes = [max(rows, least)]
    while sizes[-1] > least:
        sizes.append(max(sizes[-1] // 2, least))
    return sizes


def _bytes_on_the_way(needs: Needs, rows: int, ahead: int, workers: int) -> tuple[int, int]:
    """Bytes of batches on their way, and of the work on them."""
    spans = (ahead + 1) * rows
    permuted = max(min(workers, ahead), 1) * rows
    batches = int(ROUNDED * (spans * needs.row_bytes + permuted * needs.permuted_row_bytes))
    return batches, max(workers, 1) * needs.work_bytes + spans * needs.plan_row_bytes


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
