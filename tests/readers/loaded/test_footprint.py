"""Tests of memory estimates per row: from the schema for fixed shapes, else from the stored bytes."""

from __future__ import annotations

import numpy as np
import pytest

from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.inventory import Inventory
from petastore.readers.loaded.arena import Layout
from petastore.readers.loaded.footprint import Footprint

NUMBER, ARRAY = UnischemaField("x", np.float32), UnischemaField("array", np.uint8, (10, 10), NdarrayCodec())
WORD = UnischemaField("word", np.str_)
IMAGE = UnischemaField("image", np.uint8, (None, None, 3), CompressedImageCodec("jpeg"))


def footprint(*fields: UnischemaField, rows: list[int], bytes_per_row: int, read: tuple[str, ...] = ()) -> Footprint:
    stored = Unischema("s", list(fields))
    view = stored.create_schema_view(list(read)) if read else stored
    inventory = Inventory.of_rows(rows, bytes_per_row=bytes_per_row)
    return Footprint(view, stored, Layout.of(view, rows=max(rows, default=1)), inventory)


def test_memory_estimate_of_fixed_shape_fields_follows_the_schema() -> None:
    found = footprint(NUMBER, ARRAY, rows=[10], bytes_per_row=10**6)
    assert (found.row_bytes, found.free_row_bytes) == (104, 0)


def test_memory_estimate_of_variable_fields_follows_the_stored_bytes() -> None:
    assert footprint(NUMBER, WORD, rows=[10], bytes_per_row=500).free_row_bytes == 500
    assert footprint(NUMBER, WORD, rows=[10], bytes_per_row=5).free_row_bytes == 64
    assert footprint(NUMBER, WORD, rows=[], bytes_per_row=5).row_bytes == 68


def test_memory_estimate_of_an_empty_row_is_one_byte() -> None:
    assert footprint(UnischemaField("x", np.uint8, (0,), NdarrayCodec()), rows=[3], bytes_per_row=1).row_bytes == 1


def test_memory_estimate_of_a_row_group_counts_rows_and_encoded_cells() -> None:
    numbers = footprint(NUMBER, rows=[100, 0, 300], bytes_per_row=4).group_bytes
    assert numbers.tolist() == [3000, 0, 9000]  # 1.25 × (4 + 20) bytes per row
    with_words = footprint(NUMBER, WORD, rows=[100, 0, 300], bytes_per_row=54).group_bytes
    assert with_words.tolist() == [100 * 30 + 8750, 0, 300 * 30 + 26_250]  # plus 1.75 × 50 bytes per row


def test_memory_estimate_excludes_the_share_of_columns_not_read() -> None:
    one, other = (UnischemaField(name, np.int16, (None,), NdarrayCodec()) for name in ("one", "other"))
    both = footprint(one, other, rows=[100], bytes_per_row=100).group_bytes
    alone = footprint(one, other, rows=[100], bytes_per_row=100, read=("one",)).group_bytes
    assert (both.tolist(), alone.tolist()) == ([2500 + 17_500], [2500 + 8750])


def test_memory_estimate_divides_text_bytes_equally_among_columns() -> None:
    """Each column is estimated at its share of the text bytes, not at all of them."""
    words = [UnischemaField(name, np.str_) for name in ("word", "other", "third", "fourth")]
    every = footprint(NUMBER, *words, rows=[100], bytes_per_row=404).group_bytes
    alone = footprint(NUMBER, *words, rows=[100], bytes_per_row=404, read=("word",)).group_bytes
    assert (every.tolist(), alone.tolist()) == ([3000 + 70_000], [2500 + 17_500])


def test_memory_estimate_gives_partition_columns_no_stored_bytes() -> None:
    day, other = UnischemaField("day", np.int32), UnischemaField("other", np.str_)
    stored, view = Unischema("s", [day, WORD, other]), Unischema("v", [day, WORD])
    inventory = Inventory.of_rows([100], bytes_per_row=104)
    found = Footprint(view, stored, Layout.of(view, rows=100, apart={"day"}), inventory).group_bytes
    assert found.tolist() == [2500 + 175 * (4 + 50)]


@pytest.mark.parametrize(("ahead", "megabytes"), [(1, 25), (3, 25), (5, 15), (100, 8)])
def test_rows_per_span_depends_on_the_number_of_spans_in_progress(ahead: int, megabytes: int) -> None:
    found = footprint(NUMBER, rows=[10], bytes_per_row=4)
    assert found.rows_per_span(ahead) == megabytes * 2**20 // 4


def test_rows_per_span_is_smaller_for_images_with_a_memory_budget() -> None:
    images = footprint(IMAGE, rows=[10], bytes_per_row=10_000)
    assert images.rows_per_span(3, is_bounded=True) == images.rows_per_span(3) // 8
    numbers = footprint(NUMBER, rows=[10], bytes_per_row=4)
    assert numbers.rows_per_span(3, is_bounded=True) == numbers.rows_per_span(3)
    assert footprint(IMAGE, rows=[1], bytes_per_row=10**9).rows_per_span(3) == 1


def test_memory_estimate_of_decoding_grows_with_the_largest_row_group() -> None:
    small = footprint(NUMBER, ARRAY, WORD, rows=[10, 20], bytes_per_row=1000)
    large = footprint(NUMBER, ARRAY, WORD, rows=[10, 2000], bytes_per_row=1000)
    assert small.permuted_row_bytes == 100
    assert large.work_bytes > small.work_bytes > 24 * 2**20
    assert (small.footer_bytes, small.plan_row_bytes) == (2 * 3 * 1000, 40)
    assert footprint(WORD, rows=[1], bytes_per_row=9).permuted_row_bytes == 0
