"""Tests of readers over real datasets: shards, batch sizes, last batches, reset, stop, close, decode errors."""

from __future__ import annotations

import collections
import copy
import gc
import itertools
import pickle
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import petastore
from petastore.errors import DecodeError, InvalidArgumentError, NoDataAvailableError, ReaderClosedError
from petastore.plan.request import LastBatchWord
from tests.pace import LONG
from tests.tier import IS_FULL, examples, sized

UNEVEN = [13, 1, 97, 0, 30, 7, 52]


def write_groups(directory: Path, rows: list[int], *, files: int = 1) -> str:
    """Write plain Parquet files with these row groups; `id` counts through all of them."""
    directory.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("word", pa.string())])
    starts = np.cumsum([0, *rows])
    per_file = -(-len(rows) // files)
    for number in range(files):
        with pq.ParquetWriter(directory / f"part-{number}.parquet", schema) as writer:
            for group in range(number * per_file, min((number + 1) * per_file, len(rows))):
                ids = np.arange(starts[group], starts[group + 1])
                words = pa.array([f"w{one}" for one in ids], pa.string())
                writer.write_table(pa.table([pa.array(ids), words], schema=schema), row_group_size=max(len(ids), 1))
    return str(directory)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_groups(tmp_path_factory.mktemp("uneven") / "data", UNEVEN, files=3)


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
@pytest.mark.parametrize("shuffle_rows", [False, True], ids=["groups", "rows"])
def test_two_ranks_have_equal_steps_with_uneven_row_groups(
    uneven: str, last_batch: LastBatchWord, shuffle_rows: bool
) -> None:
    # Batch sizes below and above a row group's rows, divisors of 200 and others; all sizes in `make test-all`.
    for batch_size in range(1, 65) if IS_FULL else (1, 7, 16, 25, 33, 64):
        counts, seen = [], collections.Counter[int]()
        for rank in range(2):
            with petastore.make_reader(
                uneven,
                cur_shard=rank,
                shard_count=2,
                last_batch=last_batch,
                shuffle_rows=shuffle_rows,
                schema_fields=["id"],
            ) as reader:
                batches = list(reader.iter_batches(batch_size))
                counts.append(len(batches))
                assert len(batches) == reader.steps_per_epoch(batch_size)
            for batch in batches:
                seen.update(batch["id"][batch["valid"]].tolist() if last_batch == "pad" else batch["id"].tolist())
        assert counts[0] == counts[1]
        if last_batch in ("even", "pad"):
            assert seen == collections.Counter(range(200))
        elif last_batch == "drop":
            assert sum(seen.values()) == 200 // (2 * batch_size) * 2 * batch_size
            assert max(seen.values(), default=1) == 1
        else:
            assert set(seen) == set(range(200))


def test_last_batch_pad_marks_repeats(uneven: str) -> None:
    for rank in range(2):
        with petastore.make_reader(uneven, cur_shard=rank, shard_count=2, last_batch="pad") as reader:
            *full, last = reader.iter_batches(64)
            assert all(batch["valid"].all() and batch.num_rows == 64 for batch in full)
            assert last["valid"].dtype == np.bool_
            assert (last.num_rows, int(last["valid"].sum())) == (64, 36)


def test_more_shards_than_row_groups_divide_the_rows(uneven: str) -> None:
    rows = []
    for rank in range(30):
        with petastore.make_reader(uneven, cur_shard=rank, shard_count=30, schema_fields=["id"]) as reader:
            rows.append([int(row.id) for row in reader])
    assert sorted(itertools.chain(*rows)) == list(range(200))
    assert {len(of_rank) for of_rank in rows} == {6, 7}


def test_reader_without_rows_yields_no_batches(tmp_path: Path) -> None:
    url = write_groups(tmp_path / "empty", [0])
    for last_batch in ("even", "drop", "pad", "wrap"):
        with petastore.make_reader(url, cur_shard=0, shard_count=2, last_batch=last_batch) as reader:
            assert (len(reader), list(reader.iter_batches(4)), list(reader)) == (0, [], [])


def test_last_batch_even_with_fewer_rows_than_ranks_raises(tmp_path: Path) -> None:
    url = write_groups(tmp_path / "three", [3])
    said = set()
    for rank in range(5):
        with pytest.raises(NoDataAvailableError) as caught:
            petastore.make_reader(url, cur_shard=rank, shard_count=5)
        said.add(str(caught.value))
    assert len(said) == 1
    assert "3 rows" in said.pop()


@pytest.mark.parametrize("last_batch", ["pad", "wrap"])
def test_last_batch_pad_and_wrap_work_with_fewer_rows_than_ranks(tmp_path: Path, last_batch: LastBatchWord) -> None:
    url = write_groups(tmp_path / "three", [3])
    seen: set[int] = set()
    for rank in range(5):
        with petastore.make_reader(url, cur_shard=rank, shard_count=5, last_batch=last_batch) as reader:
            (batch,) = reader.iter_batches(2)
            assert batch.num_rows == 2
            seen.update(batch["id"].tolist())
    assert seen == {0, 1, 2}


def test_reader_opened_repeatedly_returns_every_row(tmp_path: Path) -> None:
    url = write_groups(tmp_path / "one", [10])
    for _ in range(sized(full=1000, quick=50)):
        with petastore.make_reader(url, schema_fields=["id"]) as reader:
            assert [int(row.id) for row in reader] == list(range(10))


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    workers=st.integers(1, 5),
    seed=st.integers(0, 10),
    shuffle_rows=st.booleans(),
    batch_size=st.integers(1, 80),
    lanes=st.sampled_from([None, 1, 3, 6]),
)
def test_reader_order_does_not_depend_on_pool_or_workers(
    uneven: str, workers: int, seed: int, shuffle_rows: bool, batch_size: int, lanes: int | None
) -> None:
    def batches(**kwargs: Any) -> list[list[int]]:
        with petastore.make_reader(
            uneven, seed=seed, shuffle_rows=shuffle_rows, num_epochs=2, interleave=lanes, **kwargs
        ) as reader:
            found = list(reader.iter_batches(batch_size))
        assert all(batch["word"].tolist() == [f"w{one}" for one in batch["id"]] for batch in found)
        return [batch["id"].tolist() for batch in found]

    assert batches(workers_count=workers) == batches(reader_pool_type="dummy")


def test_reader_yields_the_same_rows_singly_and_in_batches(uneven: str) -> None:
    with petastore.make_reader(uneven, seed=1, shuffle_rows=True) as reader:
        rows = [(int(row.id), row.word) for row in reader]
        reader.reset()
        batches = [
            pair for batch in reader.iter_batches(7) for pair in zip(batch["id"].tolist(), batch["word"], strict=True)
        ]
    assert sorted(rows) == sorted(batches) == [(one, f"w{one}") for one in range(200)]


def test_batch_reader_batch_size_is_the_largest_row_group(uneven: str) -> None:
    with petastore.make_batch_reader(uneven, shuffle_row_groups=False) as reader:
        batches = list(reader)
        assert len(reader) == len(batches) == 3
    assert [len(batch.id) for batch in batches] == [97, 97, 6]
    assert np.concatenate([batch.id for batch in batches]).tolist() == list(range(200))


def test_reader_len_is_known_before_the_first_read(uneven: str) -> None:
    with petastore.make_reader(uneven, num_epochs=3, cur_shard=1, shard_count=3) as reader:
        assert reader.num_rows == 67
        assert len(reader) == 201 == len(list(reader))
        assert reader.steps_per_epoch(10) == 7


def test_endless_reader_has_no_length(uneven: str) -> None:
    with petastore.make_reader(uneven, num_epochs=None) as reader:
        with pytest.raises(TypeError, match="endless"):
            len(reader)
        assert reader
        assert sum(1 for _ in itertools.islice(reader, 1000)) == 1000


def test_reader_reset_starts_again_at_any_time(uneven: str) -> None:
    with petastore.make_reader(uneven, shuffle_row_groups=False) as reader:
        for taken in (0, 1, 50, 199, 200):
            reader.reset()
            assert [int(row.id) for row in itertools.islice(reader, taken)] == list(range(taken))
        assert not reader.last_row_consumed
        reader.reset()
        assert len(list(reader)) == 200
        assert reader.last_row_consumed


def test_reader_shuffles_each_iteration_differently(uneven: str) -> None:
    with petastore.make_reader(uneven, seed=3, shuffle_rows=True) as reader:
        begin = reader.state_dict()
        passes = [[int(row.id) for row in reader] for _ in range(3)]  # a loop over a finished reader restarts
        assert [sorted(one) for one in passes] == [list(range(200))] * 3
        assert len({tuple(one) for one in passes}) == 3
        reader.reset()
        next(reader)
        reader.reset()  # the epoch had begun, so the next pass is a new one
        assert reader.state_dict()["epoch"] == 4
        reader.load_state_dict(begin)
        assert [int(row.id) for row in reader] == passes[0]
    with petastore.make_reader(uneven, seed=3, shuffle_rows=True, num_epochs=3) as reader:
        assert [int(row.id) for row in reader] == [one for of_pass in passes for one in of_pass]


def test_reader_loop_continues_after_a_break(uneven: str) -> None:
    with petastore.make_reader(uneven, shuffle_row_groups=False) as reader:
        for row in reader:
            if row.id == 20:
                break
        assert next(reader).id == 21
        assert len(list(reader)) == 178
        assert len(list(reader)) == 200


def test_iter_batches_continues_at_the_current_position(uneven: str) -> None:
    with petastore.make_reader(uneven, shuffle_row_groups=False) as reader:
        first = [batch["id"].tolist() for batch in itertools.islice(reader.iter_batches(30), 2)]
        rest = [batch["id"].tolist() for batch in reader.iter_batches(70)]
    assert list(itertools.chain(*first, *rest)) == list(range(200))


def test_batch_kept_by_the_user_does_not_change_later(uneven: str) -> None:
    with petastore.make_reader(uneven, shuffle_rows=True, num_epochs=3) as reader:
        kept = [(batch, batch["id"].copy()) for batch in reader.iter_batches(16)]
    assert len(kept) == 3 * 13
    assert all((batch["id"] == copy).all() for batch, copy in kept)


def test_stopped_reader_raises(uneven: str) -> None:
    reader = petastore.make_reader(uneven)
    next(reader)
    for _ in range(2):  # stop and join are idempotent
        reader.stop()
        reader.join()
    for use in (lambda: next(reader), reader.reset, lambda: list(reader.iter_batches(3))):
        with pytest.raises(ReaderClosedError):
            use()


def test_reader_close_stops_its_workers(uneven: str) -> None:
    reader = petastore.make_reader(uneven)
    next(reader)
    for _ in range(2):  # close is idempotent
        reader.close()
    assert reader.stopped
    assert threads_of_petastore() == []
    with pytest.raises(ReaderClosedError):
        next(reader)


def test_reader_stop_wakes_an_iterating_thread(uneven: str) -> None:
    reader = petastore.make_reader(uneven, num_epochs=None, schema_fields=["id"])
    running = threading.Event()
    ended: list[str] = []

    def consume() -> None:
        try:
            for _ in reader:
                running.set()
        except ReaderClosedError:
            ended.append("closed")

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert running.wait(LONG)
    reader.stop()
    consumer.join(LONG)
    reader.join()
    assert ended == ["closed"]


def threads_of_petastore() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("petastore")]


def test_unclosed_reader_warns_and_stops(uneven: str) -> None:
    reader = petastore.make_reader(uneven, num_epochs=None)
    next(reader)
    assert threads_of_petastore()
    forgotten = weakref.ref(reader)
    with pytest.warns(ResourceWarning, match="was not stopped"):  # noqa: PT031 - what is forgotten, then collected
        del reader
        gc.collect()
    assert forgotten() is None
    assert threads_of_petastore() == []


def test_iter_batches_after_another_loop_says_that_this_iterator_has_ended(uneven: str) -> None:
    with petastore.make_reader(uneven) as reader:
        first = reader.iter_batches(4)
        next(first)
        next(reader)
        for _ in range(2):
            with pytest.raises(ReaderClosedError, match=r"iterator has ended, because another loop .*Start a new loop"):
                next(first)
        second = reader.iter_batches(4)
        next(second)
        reader.stop()
        with pytest.raises(ReaderClosedError, match="stopped"):
            next(second)


def test_iter_batches_ends_inside_its_loaded_batches_when_another_loop_starts(uneven: str) -> None:
    with petastore.make_reader(uneven, shuffle_row_groups=False) as reader:
        first = reader.iter_batches(1)
        seen = [int(batch["id"][0]) for batch in itertools.islice(first, 50)]
        second = reader.iter_batches(1)
        seen.append(int(next(first)["id"][0]))  # the second loop has not started
        seen.append(int(next(second)["id"][0]))
        with pytest.raises(ReaderClosedError, match="another loop"):
            next(first)
        seen += [int(row.id) for row in itertools.islice(reader, 40)]
        with pytest.raises(ReaderClosedError, match="another loop"):
            next(second)
        reader.load_state_dict(reader.state_dict())
        seen += [int(batch["id"][0]) for batch in reader.iter_batches(1)]
    assert seen == list(range(200))


def test_iter_batches_after_its_end_is_empty_until_the_reader_stops(uneven: str) -> None:
    with petastore.make_reader(uneven) as reader:
        batches = reader.iter_batches(4)
        assert len(list(batches)) == 50
        reader.reset()
        assert list(batches) == []
        assert len(list(reader)) == 200
    with pytest.raises(ReaderClosedError, match="stopped"):
        next(reader)


def test_garbage_collected_iter_batches_stops_the_worker_threads(uneven: str) -> None:
    reader = petastore.make_reader(uneven, num_epochs=None)
    batches = reader.iter_batches(4)
    next(batches)
    assert threads_of_petastore()
    del batches, reader
    gc.collect()
    assert threads_of_petastore() == []


def test_default_seed_is_random_without_shards_and_0_with_shards(uneven: str) -> None:
    with petastore.make_reader(uneven) as first, petastore.make_reader(uneven) as second:
        assert first.plan.request.order.seed != second.plan.request.order.seed
    seeds = set()
    for rank in range(2):
        with petastore.make_reader(uneven, cur_shard=rank, shard_count=2) as reader:
            seeds.add(reader.plan.request.order.seed)
    assert seeds == {0}


def test_reader_repr_describes_the_data(uneven: str) -> None:
    with petastore.make_reader(uneven, seed=5, cur_shard=1, shard_count=4) as reader:
        assert "shard 1 of 4, 50 of 200 rows, 2 columns, 1 epoch, seed 5" in repr(reader)


def test_integer_column_with_nulls_keeps_its_dtype(tmp_path: Path) -> None:
    table = pa.table({"n": pa.array([1, None, 2**60], pa.int64()), "s": ["a", None, "c"]})
    pq.write_table(table, tmp_path / "part.parquet")
    with petastore.make_batch_reader(str(tmp_path)) as reader:
        (batch,) = reader
        assert batch.n.dtype == np.int64
        assert batch.n.tolist() == [1, None, 2**60]
        assert batch.s.tolist() == ["a", None, "c"]
    with petastore.make_reader(str(tmp_path)) as reader:
        assert [(row.n, row.s) for row in reader] == [(1, "a"), (None, None), (2**60, "c")]


def test_last_batch_pad_raises_when_a_valid_column_exists(tmp_path: Path) -> None:
    pq.write_table(pa.table({"valid": [1]}), tmp_path / "part.parquet")
    with pytest.raises(InvalidArgumentError, match="'valid'"):
        petastore.make_reader(str(tmp_path), last_batch="pad")


def test_reader_cannot_be_pickled(uneven: str) -> None:
    with petastore.make_reader(uneven) as reader:
        for send in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match=r"ElasticDataLoader.*ReaderDataset.*call make_reader there") as refused:
                send(reader)
            assert isinstance(refused.value, InvalidArgumentError)
        assert len(list(reader)) == sum(UNEVEN)


def test_reader_accepts_any_column_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a-b": [1], "class": [2], "x.y": [3], "名": [4], "_id": [5]}), tmp_path / "part.parquet")
    with petastore.make_reader(str(tmp_path)) as reader:
        row = next(reader)
        assert row._asdict() == {"a-b": 1, "class": 2, "x.y": 3, "名": 4, "_id": 5}
        assert row["x.y"] == 3


def test_decode_error_names_file_row_group_and_row(tmp_path: Path) -> None:
    from petastore.codecs import NdarrayCodec

    schema = petastore.Unischema("s", [petastore.UnischemaField("a", "float32", (2,), NdarrayCodec())])
    url = str(tmp_path / "data")
    rows = [{"a": np.zeros(2, np.float32)} for _ in range(9)]
    petastore.write_dataset(url, schema, rows, rows_per_row_group=4)
    (file,) = Path(url).glob("*.parquet")
    table = pq.read_table(file)
    cells = table["a"].to_pylist()
    cells[6] = b"no npy at all"
    broken = tmp_path / "broken"
    broken.mkdir()
    pq.write_table(pa.table([cells], schema=table.schema), broken / "part.parquet", row_group_size=4)
    (broken / "_common_metadata").write_bytes((Path(url) / "_common_metadata").read_bytes())
    with petastore.make_reader(str(broken)) as reader, pytest.raises(DecodeError) as caught:
        list(reader)
    error = caught.value
    assert (error.column, error.file, error.row_group, error.row) == ("a", "part.parquet", 1, 2)


def test_partition_columns_come_from_directory_names(tmp_path: Path) -> None:
    for day, number in itertools.product(["2026-01-01", "2026-01-02"], [7, 8]):
        directory = tmp_path / f"day={day}" / f"n={number}"
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), directory / "part.parquet")
    with petastore.make_reader(str(tmp_path), shuffle_rows=True) as reader:
        rows = sorted((row.day, int(row.n), int(row.id)) for row in reader)
    days = [np.datetime64("2026-01-01"), np.datetime64("2026-01-02")]
    assert rows == [(day, n, n) for day in days for n in (7, 8)]
    with petastore.make_reader(str(tmp_path), schema_fields=["day"]) as reader:
        assert sorted(row.day for row in reader) == [days[0]] * 2 + [days[1]] * 2


SOURCES: dict[str, Callable[[str], Any]] = {
    "a directory": lambda url: url,
    "a directory as a file URL": lambda url: f"file://{url}/",
    "one file": lambda url: f"{url}/part-0.parquet",
    "a list of files": lambda url: [f"file://{url}/part-{number}.parquet" for number in (2, 0, 1)],
    "a path object": Path,
}


@pytest.mark.parametrize("source", SOURCES)
def test_reader_accepts_a_list_of_urls(uneven: str, source: str) -> None:
    with petastore.make_reader(SOURCES[source](uneven), schema_fields=["id"]) as reader:
        expected = 111 if source == "one file" else 200
        assert sorted(int(row.id) for row in reader) == list(range(expected))


def test_shuffling_works_for_every_arrow_type(tmp_path: Path) -> None:
    numbers = range(60)
    lists = [[n] * (n % 4) if n % 5 else None for n in numbers]
    columns = {
        "id": pa.array(numbers),
        "view": pa.array([f"v{n}" for n in numbers], pa.string_view()),
        "large": pa.array([f"v{n}" for n in numbers], pa.large_string()),
        "category": pa.array([f"v{n // 3}" for n in numbers]).dictionary_encode(),
        "struct": pa.array([{"a": n} for n in numbers]),
        "list": pa.array(lists, pa.list_(pa.int64())),
        "list_view": pa.array(lists, pa.list_view(pa.int64())),
        "map": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(columns), tmp_path / "part.parquet", row_group_size=7)
    with petastore.make_reader(str(tmp_path), shuffle_rows=True, seed=1) as reader:
        rows = sorted(reader, key=lambda row: row.id)
    for n, row in enumerate(rows):
        assert (row.view, row.large, row.category, row.struct, row.map) == (
            f"v{n}",
            f"v{n}",
            f"v{n // 3}",
            {"a": n},
            [("k", n)],
        )
        for column in (row.list, row.list_view):
            assert (None if column is None else column.tolist()) == lists[n]
