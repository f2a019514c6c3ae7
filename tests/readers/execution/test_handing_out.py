"""What iterating gives: rows one by one or batches, as named tuples that say which are repeats where there are some."""

from __future__ import annotations

import numpy as np
import pytest

from petastore import Unischema, UnischemaField
from petastore.decoding.decode import Decoded
from petastore.plan import Tail
from petastore.readers.execution.handing_out import GivesBatches, GivesRows, most_rows
from tests.readers.execution.test_handouts import span_of

SCHEMA = Unischema("point", [UnischemaField("x", np.int64), UnischemaField("y", np.int64)])
COLUMNS = {"x": Decoded(np.arange(5), None), "y": Decoded(np.arange(5) * 2, None)}


def test_rows_come_one_by_one_whatever_the_batches() -> None:
    giving = GivesRows(SCHEMA, Tail.EVEN)
    rows = list(giving.handout(span_of([2, 0, 3], COLUMNS)))
    assert giving.rows == 1
    assert [tuple(row) for row in rows] == [(n, 2 * n) for n in range(5)]
    assert {type(row) for row in rows} == {giving.row_type}
    assert type(rows[0]).__name__ == "point"


def test_batches_come_as_they_were_cut() -> None:
    batches = list(GivesBatches(SCHEMA, Tail.EVEN, rows=2).handout(span_of([2, 3], COLUMNS)))
    assert [(batch.x.tolist(), batch.y.tolist()) for batch in batches] == [([0, 1], [0, 2]), ([2, 3, 4], [4, 6, 8])]


@pytest.mark.parametrize("giving", [GivesRows, GivesBatches])
def test_repeats_are_marked_where_there_may_be_some(giving: type[GivesRows | GivesBatches]) -> None:
    assert giving(SCHEMA, Tail.PAD, rows=1).row_type._fields == ("x", "y", "valid")
    assert giving(SCHEMA, Tail.EVEN, rows=1).row_type._fields == ("x", "y")


def test_a_name_that_no_class_can_have_is_not_one() -> None:
    assert GivesRows(Unischema("of two words", list(SCHEMA)), Tail.EVEN).row_type.__name__ == "Row"


def test_batches_have_the_rows_of_the_largest_row_group_within_bounds() -> None:
    assert [most_rows(rows) for rows in (0, 1, 1000, 65_536, 10**9)] == [1, 1, 1000, 65_536, 65_536]
