"""Why an order keeps row groups at hand, and what to ask for instead where memory is short. Pure.

What helps depends on the case: less `shuffle_buffer_bytes` where rows are shuffled, smaller row groups where one of
them is more than the budget, smaller batches where they are the most of it. The part that takes most comes first.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

__all__ = ["Kept", "Needed"]


class Needed(Protocol):
    """What a way to run needs, as `petastore.plan.batches.budget.Budget` has it, in bytes."""

    @property
    def at_hand_bytes(self) -> int:
        """Of row groups at hand."""

    @property
    def batch_bytes(self) -> int:
        """Of batches on their way."""

    @property
    def work_bytes(self) -> int:
        """Of workers and of the plan itself."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """What of a request decides how many row groups are at hand.

    Example:
        >>> from petastore.plan.batches.budget import Budget
        >>> needed = Budget(rows_per_span=8, ahead=1, at_hand_bytes=90_000_000, batch_bytes=20_000, work_bytes=1000)
        >>> print(Kept(largest_group_bytes=90_000_000).advice(needed, limit=10**6, workers=2))
        write row groups of fewer rows (rows_per_row_group, row_group_size_mb): the largest takes 90.0 MB; read fewer
        columns
        >>> print(Kept(largest_group_bytes=9_000_000, shuffles_rows=True).advice(needed, limit=10**7, workers=2))
        ask for less shuffle_buffer_bytes, which keeps fewer row groups and mixes less; read fewer columns
    """

    largest_group_bytes: int = 0
    """Of the row group that takes most at hand."""

    shuffles_rows: bool = False
    """Whether rows are shuffled: then `shuffle_buffer_bytes` chose how many row groups are read side by side."""

    lanes: int = 1
    """Row groups that each rank reads side by side, where rows are not shuffled."""

    sources: int = 1
    """Datasets that are mixed."""

    is_of_windows: bool = False
    """Whether windows of rows are read, which need the row groups of all their rows."""

    def advice(self, needed: Needed, *, limit: int, workers: int) -> str:
        """What to ask for instead, the most helpful first.

        Args:
            needed: The least that is needed.
            limit: Bytes that there are.
            workers: Tasks that run at a time.
        """
        parts = [
            (needed.at_hand_bytes, self._of_row_groups(limit, needed.at_hand_bytes)),
            (needed.batch_bytes, self._of_batches()),
            (needed.work_bytes, ["ask for fewer workers (workers_count)"] if workers > 1 else []),
        ]
        parts.sort(key=lambda part: part[0], reverse=True)
        # What is less than a twentieth of the budget is not what makes it too small.
        wanted = [part for place, part in enumerate(parts) if place == 0 or part[0] > limit / 20]
        advised = dict.fromkeys(advice for _, of_part in wanted for advice in of_part)
        return "; ".join([*advised, "read fewer columns"])

    def _of_row_groups(self, limit: int, at_hand: int) -> list[str]:
        advice = []
        of_one = self.largest_group_bytes
        if self.shuffles_rows:
            advice.append("ask for less shuffle_buffer_bytes, which keeps fewer row groups and mixes less")
        elif self.lanes > 1:
            advice.append(f"ask for fewer lanes than {self.lanes:,} a rank")
        if self.sources > 1:
            advice.append(f"mix fewer datasets than {self.sources:,}, each of which has row groups at hand")
        if of_one > limit or 2 * of_one > at_hand or not advice:
            advice.insert(
                0 if of_one > limit else len(advice),
                "write row groups of fewer rows (rows_per_row_group, row_group_size_mb): the largest takes "
                f"{of_one / 1e6:,.1f} MB",
            )
        if self.is_of_windows:
            advice.append("ask for shorter windows, which reach into fewer row groups")
        return advice

    def _of_batches(self) -> list[str]:
        return ["ask for smaller batches", *(["ask for shorter windows"] if self.is_of_windows else [])]
