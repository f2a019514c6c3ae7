"""Petastorm's shuffling queue: a loader that asks for shuffled rows after its reader was made."""

from __future__ import annotations

import warnings

from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import whole_number
from petastore.plan.shuffled import with_rows_shuffled
from petastore.readers.reader import Reader

__all__ = ["shuffle_as_a_queue_would"]


def shuffle_as_a_queue_would(reader: Reader, capacity: int) -> None:
    """Has a reader shuffle its rows, where a queue of some rows would; it mixes them at least as well.

    Args:
        reader: As it was made; one that shuffles rows stays as it is.
        capacity: Rows of the queue; 0 is none.

    Raises:
        InvalidArgumentError: `capacity` is no number of rows, or the reader has given rows already.

    Warns:
        UserWarning: The reader mixes others, which shuffle for themselves.
    """
    if whole_number(capacity, name="shuffling_queue_capacity", least=0) == 0:
        return
    plan = reader.plan
    if not isinstance(plan, Plan):
        warnings.warn(
            f"shuffling_queue_capacity={capacity} does nothing here: the readers of a mixture shuffle for themselves; "
            "ask for shuffle_rows=True when they are made",
            UserWarning,
            stacklevel=3,
        )
    elif not plan.request.order.shuffle_rows:
        if reader.cursor != Cursor():
            raise InvalidArgumentError(
                f"shuffling_queue_capacity={capacity} of a reader that has given rows already: another order would "
                "give some of them again, and leave others out; ask make_reader for shuffle_rows=True"
            )
        reader.replan(with_rows_shuffled(plan), reader.cursor)
