"""What rows take is reckoned from the schema where it says it, and from what is stored where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.inventory import Inventory
from petastore.readers.loaded.footprint import Footprint
from petastore.readers.loaded.layout import Layout

NUMBER, ARRAY = UnischemaField("x", np.float32), UnischemaField("array", np.uint8, (10, 10), NdarrayCodec())
WORD = UnischemaField("word", np.str_)
IMAGE = UnischemaField("image", np.uint8, (None, None, 3), CompressedImageCodec("jpeg"))


def footprint(*fields: UnischemaField, rows: list[int], bytes_per_row: int, read: tuple[str, ...] = ()) -> Footprint:
    stored = Unischema("s", list(fields))
    view = stored.create_schema_view(list(read)) if read else stored
    inventory = Inventory.of_rows(rows, bytes_per_row=bytes_per_row)
    return Footprint(view, stored, Layout.of(view, rows=max(rows, default=1)), inventory)


def test_fixed_fields_take_what_the_schema_says() -> None:
    found = footprint(NUMBER, ARRAY, rows=[10], bytes_per_row=10**6)
    assert (found.row_bytes, found.free_row_bytes) == (104, 0)


def test_free_fields_are_taken_to_be_what_is_stored_of_a_row_or_an_object() -> None:
    assert footprint(NUMBER, WORD, rows=[10], bytes_per_row=500).free_row_bytes == 500
    assert footprint(NUMBER, WORD, rows=[10], bytes_per_row=5).free_row_bytes == 64
    assert footprint(NUMBER, WORD, rows=[], bytes_per_row=5).row_bytes == 68


def test_a_row_of_nothing_takes_a_byte() -> None:
    assert footprint(UnischemaField("x", np.uint8, (0,), NdarrayCodec()), rows=[3], bytes_per_row=1).row_bytes == 1


def test_row_groups_take_their_rows_and_what_is_kept_as_cells() -> None:
    numbers = footprint(NUMBER, rows=[100, 0, 300], bytes_per_row=4).group_bytes
    assert numbers.tolist() == [3000, 0, 9000]  # 1.25 × (4 + 20) a row
    with_words = footprint(NUMBER, WORD, rows=[100, 0, 300], bytes_per_row=54).group_bytes
    assert with_words.tolist() == [100 * 30 + 8750, 0, 300 * 30 + 26_250]  # and 1.75 × 50 a row


def test_what_is_not_read_takes_its_part_of_what_is_stored() -> None:
    one, other = (UnischemaField(name, np.int16, (None,), NdarrayCodec()) for name in ("one", "other"))
    both = footprint(one, other, rows=[100], bytes_per_row=100).group_bytes
    alone = footprint(one, other, rows=[100], bytes_per_row=100, read=("one",)).group_bytes
    assert (both.tolist(), alone.tolist()) == ([2500 + 17_500], [2500 + 8750])


def test_text_that_is_not_read_takes_its_part_of_what_is_stored() -> None:
    """What one column of several takes was taken to be what all of them do."""
    words = [UnischemaField(name, np.str_) for name in ("word", "other", "third", "fourth")]
    every = footprint(NUMBER, *words, rows=[100], bytes_per_row=404).group_bytes
    alone = footprint(NUMBER, *words, rows=[100], bytes_per_row=404, read=("word",)).group_bytes
    assert (every.tolist(), alone.tolist()) == ([3000 + 70_000], [2500 + 17_500])


def test_a_partition_column_takes_no_part_of_the_text() -> None:
    day, other = UnischemaField("day", np.int32), UnischemaField("other", np.str_)
    stored, view = Unischema("s", [day, WORD, other]), Unischema("v", [day, WORD])
    inventory = Inventory.of_rows([100], bytes_per_row=104)
    found = Footprint(view, stored, Layout.of(view, rows=100, apart={"day"}), inventory).group_bytes
    assert found.tolist() == [2500 + 175 * (4 + 50)]


@pytest.mark.parametrize(("ahead", "megabytes"), [(1, 25), (3, 25), (5, 15), (100, 8)])
def test_spans_have_megabytes_by_how_many_are_worked_on(ahead: int, megabytes: int) -> None:
    found = footprint(NUMBER, rows=[10], bytes_per_row=4)
    assert found.rows_per_span(ahead) == megabytes * 2**20 // 4


def test_files_are_taken_to_be_larger_once_decoded_where_memory_is_bounded() -> None:
    images = footprint(IMAGE, rows=[10], bytes_per_row=10_000)
    assert images.rows_per_span(3, is_bounded=True) == images.rows_per_span(3) // 8
    numbers = footprint(NUMBER, rows=[10], bytes_per_row=4)
    assert numbers.rows_per_span(3, is_bounded=True) == numbers.rows_per_span(3)
    assert footprint(IMAGE, rows=[1], bytes_per_row=10**9).rows_per_span(3) == 1


def test_a_budget_reckons_with_the_largest_stack_and_the_cells_of_the_largest_row_group() -> None:
    small = footprint(NUMBER, ARRAY, WORD, rows=[10, 20], bytes_per_row=1000).needs
    large = footprint(NUMBER, ARRAY, WORD, rows=[10, 2000], bytes_per_row=1000).needs
    assert small.permuted_row_bytes == 100
    assert large.work_bytes > small.work_bytes > 24 * 2**20
    assert footprint(WORD, rows=[1], bytes_per_row=9).needs.permuted_row_bytes == 0
