"""Tests of row groups larger than 2 GiB, which exceed 32-bit offsets: `pq.write_table` makes them of 22,000 photos."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import make_batch_reader
from petastore.adapters.torch import MapDataset
from petastore.errors import DecodeError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # 2.2 GiB each

ROWS, CELL_BYTES = 2250, 2**20


def cell(number: int) -> bytes:
    return number.to_bytes(4, "little") * (CELL_BYTES // 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a file with one row group of more than 2 GiB of bytes."""
    folder = tmp_path_factory.mktemp("bytes")
    schema = pa.schema({"id": pa.int64(), "photo": pa.binary()})
    parts = [
        pa.table({"id": range(first, first + 225), "photo": [cell(number) for number in range(first, first + 225)]})
        for first in range(0, ROWS, 225)
    ]
    with pq.ParquetWriter(folder / "a.parquet", schema, use_dictionary=False, compression="zstd") as writer:
        writer.write_table(pa.concat_tables(parts))
    return str(folder)


def test_row_group_with_more_than_2_gib_of_bytes_is_read(folder: str) -> None:
    seen = 0
    with make_batch_reader(folder, shuffle_row_groups=False) as reader:
        for batch in reader.iter_batches(50):
            for number, photo in zip(batch["id"].tolist(), batch["photo"], strict=True):
                assert photo == cell(number)
                seen += 1
    assert seen == ROWS


def test_rows_by_number_of_more_than_2_gib_of_bytes_are_read(folder: str) -> None:
    numbers = [ROWS - 1, 0, 1125]
    assert MapDataset(folder).rows.take(numbers)["photo"].tolist() == [cell(number) for number in numbers]


def test_memory_budget_named_in_dictionary_error_is_large_enough(tmp_path: Path) -> None:
    photos = pa.DictionaryArray.from_arrays(pa.array([0] * 1126, pa.int32()), pa.array([bytes(CELL_BYTES)]))
    pq.write_table(pa.table({"photo": photos}), tmp_path / "a.parquet", store_schema=False)
    with (
        make_batch_reader(str(tmp_path)) as reader,
        pytest.raises(DecodeError, match="Set memory_budget to 4,722,786,304"),
    ):
        next(reader.iter_batches(10))
    with make_batch_reader(str(tmp_path), memory_budget=4_722_786_304) as reader:
        assert sum(len(batch["photo"]) for batch in reader.iter_batches(10)) == 1126
