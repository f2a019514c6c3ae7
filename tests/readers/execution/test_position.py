"""Tests of `reader.position()`: next step and last rows, also after a resume, for batches, rows and mixtures."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import petastore
from petastore import Unischema, UnischemaField, make_mixed_reader, make_reader
from petastore.plan.request import LastBatchWord

SCHEMA = Unischema("row", [UnischemaField("id", "int64")])


@pytest.fixture
def url(tmp_path: Path) -> str:
    petastore.write_dataset(tmp_path / "rows", SCHEMA, [{"id": row} for row in range(50)], rows_per_row_group=10)
    return str(tmp_path / "rows")


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
def test_reader_position_has_the_next_step_and_the_rows_of_the_last_batch(url: str, last_batch: LastBatchWord) -> None:
    with make_reader(
        url, provenance=True, shuffle_rows=True, seed=1, num_epochs=2, cur_shard=1, shard_count=2, last_batch=last_batch
    ) as reader:
        assert (reader.position().epoch, reader.position().step, reader.position().rows) == (0, 0, ())
        steps = reader.steps_per_epoch(4)
        for number, batch in enumerate(reader.iter_batches(4), start=1):
            position = reader.position()
            assert (position.epoch, position.step) == divmod(number, steps)
            places = zip(batch["source_file"], batch["source_row_group"], batch["source_row"], strict=True)
            assert position.rows == tuple(places)
        assert number == 2 * steps
        assert reader.position().rows == position.rows


def test_reader_position_after_a_resume_continues_counting_steps(url: str) -> None:
    with make_reader(url, seed=1) as reader, make_reader(url, seed=1) as resumed:
        _ = list(itertools.islice(reader.iter_batches(4), 5))
        resumed.load_state_dict(reader.state_dict())
        assert (resumed.position(batch_size=4).step, resumed.position().rows) == (5, ())
        assert resumed.position().step == 20
        next(resumed.iter_batches(4))
        assert resumed.position().step == 6
        assert len(resumed.position().rows) == 4


def test_reader_position_in_a_row_loop_names_the_last_row(url: str) -> None:
    with make_reader(url, shuffle_row_groups=False) as reader:
        for row in itertools.islice(reader, 13):
            position = reader.position()
            assert position.step == row.id + 1
            ((file, group, number),) = position.rows
            assert group * 10 + number == row.id
        assert file.endswith(".parquet")


def test_reader_position_in_a_mixture_names_the_dataset(url: str) -> None:
    with make_mixed_reader([url, url], [1, 1], provenance=True) as reader:
        for number, batch in enumerate(itertools.islice(reader.iter_batches(4), 3), start=1):
            assert reader.position().step == number
            assert [file for file, _, _ in reader.position().rows] == batch["source_file"].tolist()
