"""Tests of windows (NGram): they equal a double loop over sorted rows, for any row groups, shards and order."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import NGram, TransformSpec, Unischema, UnischemaField, col
from petastore.adapters.torch import DataLoader
from petastore.codecs import NdarrayCodec
from petastore.dataset import Dataset, ReadInParts
from petastore.errors import DecodeError, InvalidArgumentError, NoDataAvailableError
from petastore.inventory import DataFile
from petastore.plan.request import LastBatchWord, OrderOptions, PlanOptions
from petastore.readers.options import DatasetOptions, ReadOptions, RowOptions, RunOptions
from petastore.readers.window_reader import open_window_reader
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.work.pools import PoolType
from tests.readers.transforms_to_send import unchanged
from tests.windows_by_hand import windows_by_hand

ROWS = 400
SCHEMA = Unischema(
    "track",
    [
        UnischemaField("time", np.int64),
        UnischemaField("pose", np.float32, (2, 3)),
        UnischemaField("name", np.str_, (), None, nullable=True),
        UnischemaField("points", np.int16, (None,), NdarrayCodec()),
        UnischemaField("speed", np.float64, (), None, nullable=True),
    ],
)
FIELDS = {-1: ["time", "pose", "speed"], 0: ["name", "time"], 2: ["p.*", "time", "speed"]}
"""Offset 1 is skipped; `name` is at one offset, `pose` and `speed` are at two."""


def times_of(rows: int) -> list[int]:
    """Return sorted timestamps with duplicates and gaps of up to 4."""
    steps = np.random.default_rng(5).choice([0, 1, 1, 1, 2, 2, 3, 4], rows)
    return np.cumsum(steps).tolist()


TIMES = times_of(ROWS)


def row_of(number: int) -> dict[str, Any]:
    return {
        "time": TIMES[number],
        "pose": np.full((2, 3), number, np.float32),
        "name": None if number % 7 == 0 else f"n{number}",
        "points": np.arange(number % 5, dtype=np.int16),
        "speed": None if number % 3 == 0 else number / 2,
    }


@pytest.fixture(scope="module")
def tracks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Write the same rows in 1, 2, 57 and 200 row groups; 57 in 5 files, 200 in 40."""
    folder = tmp_path_factory.mktemp("tracks")
    for row_groups, per_file in ((1, None), (2, None), (57, 84), (200, 10)):
        per_group = -(-ROWS // row_groups)
        rows = (row_of(number) for number in range(ROWS))
        petastore.write_dataset(
            folder / str(row_groups), SCHEMA, rows, rows_per_row_group=per_group, rows_per_file=per_file
        )
    return {row_groups: str(folder / str(row_groups)) for row_groups in (1, 2, 57, 200)}


def expected_windows(*, length: int = 4, most: int = 2, overlap: bool = True) -> list[tuple[int, ...]]:
    """Return the row numbers of each expected window."""
    found = windows_by_hand([TIMES], length=length, most=most, overlap=overlap)
    return [tuple(row for _, row in window) for window in found]


def ngram(overlap: bool = True, most: Any = 2) -> NGram:
    return NGram(FIELDS, most, "time", overlap)


def numbers_in(windows: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the row numbers of windows from `make_reader`; check the values of each row."""
    found = []
    for window in windows:
        assert list(window) == [-1, 0, 1, 2]
        number = int(window[-1].pose[0, 0])
        rows = [row_of(number + place) for place in range(4)]
        assert window[-1]._fields == ("time", "pose", "speed")
        assert np.array_equal(window[-1].pose, rows[0]["pose"])
        assert (window[-1].time, window[-1].speed) == (rows[0]["time"], rows[0]["speed"])
        assert window[0]._asdict() == {"time": rows[1]["time"], "name": rows[1]["name"]}
        assert window[1] == ()
        assert window[2]._fields == ("time", "pose", "points", "speed")
        assert np.array_equal(window[2].pose, rows[3]["pose"])
        assert np.array_equal(window[2].points, rows[3]["points"])
        found.append(tuple(range(number, number + 4)))
    return found


def read(url: str, overlap: bool = True, **options: Any) -> list[tuple[int, ...]]:
    options = {"shuffle_row_groups": False, "reader_pool_type": "dummy", **options}
    with petastore.make_reader(url, ngram(overlap), **options) as reader:
        counted = len(reader)
        found = numbers_in(list(reader))
    assert len(found) == counted
    return found


@pytest.mark.parametrize("row_groups", [1, 2, 57, 200])
@pytest.mark.parametrize("overlap", [True, False])
def test_windows_equal_a_reference_implementation_in_order(
    tracks: dict[int, str], row_groups: int, overlap: bool
) -> None:
    expected = expected_windows(overlap=overlap)
    assert read(tracks[row_groups], overlap) == expected
    assert read(tracks[row_groups], overlap, reader_pool_type="thread") == expected


@pytest.mark.parametrize("row_groups", [1, 2, 200])
@pytest.mark.parametrize("shards", [3, 8])
@pytest.mark.parametrize("overlap", [True, False])
def test_shards_have_each_window_once(tracks: dict[int, str], row_groups: int, shards: int, overlap: bool) -> None:
    parts = [read(tracks[row_groups], overlap, cur_shard=shard, shard_count=shards) for shard in range(shards)]
    assert sorted(window for part in parts for window in part) == expected_windows(overlap=overlap)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(part == sorted(part) for part in parts)


@pytest.mark.parametrize("row_groups", [1, 57, 200])
@pytest.mark.parametrize("shards", [1, 3])
def test_shuffling_permutes_windows(tracks: dict[int, str], row_groups: int, shards: int) -> None:
    options: dict[str, Any] = {"shuffle_rows": True, "shuffle_row_groups": True, "seed": 3, "shard_count": shards}
    parts = [read(tracks[row_groups], cur_shard=shard, **options) for shard in range(shards)]
    assert sorted(window for part in parts for window in part) == expected_windows()
    assert all(part != sorted(part) for part in parts)


def test_window_counts_are_known_before_the_first_batch(tracks: dict[int, str]) -> None:
    windows = len(expected_windows())
    with petastore.make_reader(tracks[57], ngram(), num_epochs=3) as reader:
        assert (reader.num_rows, len(reader), reader.steps_per_epoch(10)) == (windows, 3 * windows, -(-windows // 10))
    with petastore.make_batch_reader(tracks[57], ngram(), cur_shard=1, shard_count=4) as reader:
        assert reader.num_rows in (windows // 4, -(-windows // 4))


def stacked(numbers: Sequence[tuple[int, ...]], name: str, places: Sequence[int]) -> list[list[Any]]:
    return [[row_of(window[place])[name] for place in places] for window in numbers]


@pytest.mark.parametrize("make", [petastore.make_reader, petastore.make_batch_reader])
def test_window_batches_are_stacked_arrays(tracks: dict[int, str], make: Any) -> None:
    expected = expected_windows()
    with make(tracks[57], ngram(), shuffle_row_groups=False) as reader:
        batches = list(reader.iter_batches(32))
        assert [field.shape for field in reader.schema] == [(3,), (2, 2, 3), (1,), (1, None), (2,)]
    assert sum(batch.num_rows for batch in batches) == len(expected)
    for place, batch in enumerate(batches):
        numbers = expected[32 * place : 32 * place + 32]
        assert list(batch) == ["time", "pose", "name", "points", "speed"]
        assert batch["time"].tolist() == stacked(numbers, "time", [0, 1, 3])
        assert np.array_equal(batch["pose"], np.array(stacked(numbers, "pose", [0, 3])))
        assert batch["name"].tolist() == stacked(numbers, "name", [1])
        assert batch["speed"].tolist() == stacked(numbers, "speed", [0, 3])
        assert (batch["points"].dtype, batch["points"].shape) == (np.dtype(object), (len(numbers), 1))
        for found, points in zip(batch["points"], stacked(numbers, "points", [3]), strict=True):
            assert np.array_equal(found[0], points[0])


def test_window_batch_reader_equals_row_reader(tracks: dict[int, str]) -> None:
    with petastore.make_batch_reader(tracks[2], ngram(), shuffle_row_groups=False) as reader:
        batches = list(reader)
        assert len(batches) == len(reader)
    assert batches[0]._fields == ("time", "pose", "name", "points", "speed")
    times = [time for batch in batches for time in batch.time.tolist()]
    assert times == stacked(expected_windows(), "time", [0, 1, 3])


@pytest.mark.parametrize("row_groups", [2, pytest.param(200, marks=pytest.mark.slow)])
def test_window_state_resumes_at_the_next_window(tracks: dict[int, str], row_groups: int) -> None:
    options: dict[str, Any] = {"shuffle_rows": True, "seed": 11, "num_epochs": 2}
    with petastore.make_reader(tracks[row_groups], ngram(), **options) as reader:
        whole = numbers_in(list(reader))
    assert whole[: len(whole) // 2] != whole[len(whole) // 2 :]
    with petastore.make_reader(tracks[row_groups], ngram(), **options) as reader:
        begun = numbers_in([next(reader) for _ in range(77)])
        state = json.loads(json.dumps(reader.state_dict()))
    with petastore.make_reader(tracks[row_groups], ngram(), **options) as reader:
        reader.load_state_dict(state)
        assert begun + numbers_in(list(reader)) == whole


def test_window_state_resumes_on_other_ranks(tracks: dict[int, str]) -> None:
    options: dict[str, Any] = {"shuffle_rows": True, "seed": 11, "interleave": 24}
    ranks = [petastore.make_reader(tracks[57], ngram(), cur_shard=r, shard_count=2, **options) for r in range(2)]
    begun = []
    for reader in ranks:
        batches = reader.iter_batches(9)
        begun += [tuple(row) for _ in range(5) for row in next(batches)["time"].tolist()]
        batches.close()  # type: ignore[attr-defined]
    state = ranks[0].state_dict()
    assert state == ranks[1].state_dict()
    for reader in ranks:
        reader.stop()
        reader.join()
    rest = []
    for rank in range(3):
        with petastore.make_reader(tracks[57], ngram(), cur_shard=rank, shard_count=3, **options) as reader:
            reader.load_state_dict(state)
            rest += [tuple(row) for batch in reader.iter_batches(9) for row in batch["time"].tolist()]
    expected = [tuple(TIMES[window[place]] for place in (0, 1, 3)) for window in expected_windows()]
    assert collections.Counter(begun + rest) == collections.Counter(expected)


@pytest.mark.parametrize(("last_batch", "rest"), [("drop", 0), ("pad", 32), ("wrap", 32)])
def test_last_batch_applies_to_windows(tracks: dict[int, str], last_batch: LastBatchWord, rest: int) -> None:
    windows = len(expected_windows())
    with petastore.make_reader(tracks[57], ngram(), shuffle_row_groups=False, last_batch=last_batch) as reader:
        sizes = [batch.num_rows for batch in reader.iter_batches(32)]
        assert sizes == [32] * (windows // 32 + (rest > 0))
        if last_batch == "pad":
            reader.reset()
            valid = np.concatenate([batch["valid"] for batch in reader.iter_batches(32)])
            assert valid.sum() == windows
            assert next(iter(reader))["valid"] is True


def write_plain(folder: Path, **columns: Any) -> str:
    pq.write_table(pa.table(columns), folder / "part.parquet", row_group_size=4)
    return str(folder)


def test_windows_are_formed_from_filtered_rows(tmp_path: Path) -> None:
    cars = ["a" if number % 3 else "b" for number in range(60)]
    url = write_plain(tmp_path, time=np.arange(60), car=cars, group=np.arange(60) // 20)
    asked = NGram({0: ["time"], 1: ["time"], 2: ["time", "car"]}, 2, "time")
    kept = [number for number in range(60) if cars[number] == "a" and number // 20 != 1]
    expected = [[kept[row] for _, row in window] for window in windows_by_hand([kept], length=3, most=2)]
    options: dict[str, Any] = {"filters": (col("car") == "a") & (col("group") != 1)}
    with petastore.make_batch_reader(url, asked, shuffle_row_groups=False, **options) as reader:
        assert reader.num_rows == len(expected)
        batches = list(reader.iter_batches(7))
    assert [row for batch in batches for row in batch["time"].tolist()] == expected
    assert {car for batch in batches for car in batch["car"].ravel().tolist()} == {"a"}
    # Filters separate interleaved sequences, each of which is sorted.
    with petastore.make_reader(
        url, asked, shuffle_row_groups=False, predicate=lambda row: row["car"] == "a" and row["group"] != 1
    ) as reader:
        assert [[int(window[offset].time) for offset in range(3)] for window in reader] == expected


def test_windows_of_filtered_rows_may_span_row_groups(tmp_path: Path) -> None:
    url = write_plain(tmp_path, time=np.arange(100), is_key=np.arange(100) % 33 == 0)
    with petastore.make_reader(
        url, NGram({0: ["time"], 3: ["time"]}, 33, "time"), filters=[("is_key", "==", True)]
    ) as reader:
        assert [(int(window[0].time), int(window[3].time)) for window in reader] == [(0, 99)]


def test_rows_of_a_window_have_the_partition_value_of_their_own_file(tmp_path: Path) -> None:
    for day in range(3):
        (tmp_path / f"day={day}").mkdir()
        write_plain(tmp_path / f"day={day}", time=np.arange(6) + 6 * day)
    with petastore.make_reader(str(tmp_path), NGram({0: ["time"], 1: ["time", "day"]}, 1, "time")) as reader:
        found = sorted((int(window[0].time), int(window[1].time), int(window[1].day)) for window in reader)
    assert found == [(time, time + 1, (time + 1) // 6) for time in range(17)]


def test_window_timestamp_may_be_a_partition_column(tmp_path: Path) -> None:
    for day in range(3):
        (tmp_path / f"day={day}").mkdir()
        write_plain(tmp_path / f"day={day}", id=np.arange(2) + 2 * day)
    with petastore.make_reader(str(tmp_path), NGram({0: ["id"], 1: ["id"]}, 0, "day")) as reader:
        assert sorted((int(window[0].id), int(window[1].id)) for window in reader) == [(0, 1), (2, 3), (4, 5)]


def test_file_with_an_earlier_timestamp_starts_a_sequence(tmp_path: Path) -> None:
    pq.write_table(pa.table({"time": [5, 6, 7]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"time": [1, 2, 3]}), tmp_path / "b.parquet")
    with petastore.make_reader(
        str(tmp_path), NGram({0: ["time"], 1: ["time"]}, 100, "time"), shuffle_row_groups=False
    ) as reader:
        assert [(int(w[0].time), int(w[1].time)) for w in reader] == [(5, 6), (6, 7), (1, 2), (2, 3)]


def test_unsorted_window_rows_raise_with_their_row(tmp_path: Path) -> None:
    url = write_plain(tmp_path, time=[0, 1, 2, 3, 4, 6, 5, 7])
    with pytest.raises(
        InvalidArgumentError,
        match=r"row 2 of row group 1 in part\.parquet: rows must be sorted by the timestamp 'time' .*, got 5 after 6",
    ):
        petastore.make_reader(url, NGram({0: ["time"], 1: ["time"]}, 100, "time"))


@pytest.mark.parametrize(
    ("gone", "rule", "kept"),
    [(None, "null", col("time").is_valid()), (float("nan"), "NaN", col("time") <= float("inf"))],
)
def test_missing_window_timestamps_raise_with_their_row(tmp_path: Path, gone: Any, rule: str, kept: Any) -> None:
    url = write_plain(tmp_path, time=[0.0, 1.0, 2.0, 3.0, 4.0, gone, 6.0, 7.0], row=range(8))
    asked = NGram({0: ["time"], 1: ["time"]}, 100, "time")
    with pytest.raises(
        InvalidArgumentError,
        match=rf"row 1 of row group 1 in part\.parquet: the timestamp 'time' must not be {rule} .*, got .*{rule}",
    ):
        petastore.make_reader(url, asked)
    with petastore.make_reader(url, asked, filters=kept) as reader:
        assert len(reader) == 6
    keys = NGram({0: ["time"], 1: ["time"]}, 100, "row", group_by="time")
    with pytest.raises(InvalidArgumentError, match=rf"the group_by column 'time' must not be {rule} for windows, got"):
        petastore.make_reader(url, keys)
    with petastore.make_reader(url, asked, filters=[("time", "<", 4)]) as reader:
        assert len(reader) == 3


def test_undecodable_window_cells_are_named(tmp_path: Path) -> None:
    schema = Unischema("s", [UnischemaField("time", np.int64), UnischemaField("a", np.float32, (2,), NdarrayCodec())])
    rows = [{"time": number, "a": np.zeros(2, np.float32)} for number in range(9)]
    petastore.write_dataset(tmp_path / "right", schema, rows)
    (file,) = (tmp_path / "right").glob("*.parquet")
    table = pq.read_table(file)
    cells = table["a"].to_pylist()
    cells[5] = b"no npy at all"
    broken = tmp_path / "broken"
    broken.mkdir()
    pq.write_table(pa.table([table["time"], cells], schema=table.schema), broken / "part.parquet", row_group_size=4)
    (broken / "_common_metadata").write_bytes((tmp_path / "right" / "_common_metadata").read_bytes())
    asked = NGram({0: ["time"], 2: ["a"]}, 1, "time")
    with petastore.make_reader(broken, asked, shuffle_row_groups=False) as reader, pytest.raises(DecodeError) as caught:
        list(reader)
    error = caught.value
    assert (error.column, error.file, error.row_group, error.row) == ("a", "part.parquet", 1, 1)


def test_dataset_without_windows_yields_nothing(tmp_path: Path) -> None:
    url = write_plain(tmp_path, time=[0, 10, 20])
    asked = NGram({0: ["time"], 1: ["time"]}, 1, "time")
    with petastore.make_reader(url, asked, last_batch="drop") as reader:
        assert (len(reader), list(reader), list(reader.iter_batches(3))) == (0, [], [])
    with pytest.raises(NoDataAvailableError):
        petastore.make_reader(url, NGram({0: ["time"], 2: ["time"]}, 10, "time"), cur_shard=0, shard_count=2)


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "twice": 2 * row["time"], "pose": row["pose"].sum()}


@pytest.mark.parametrize("pool", ["thread", "dummy"])
def test_transform_receives_rows_before_windows_are_formed(tracks: dict[int, str], pool: PoolType) -> None:
    spec = TransformSpec(
        doubled,
        edit_fields=[("twice", np.int64, (), False), ("pose", np.float32, (), False)],
        removed_fields=["speed"],
    )
    asked = NGram({0: ["time", "pose", "speed"], 1: ["twice", "speed"]}, 2, "time")
    with petastore.make_reader(
        tracks[57], asked, shuffle_row_groups=False, transform_spec=spec, reader_pool_type=pool
    ) as reader:
        assert list(reader.schema.fields) == ["time", "twice", "pose"]
        windows = list(reader)
    numbers = expected_windows(length=2)
    assert len(windows) == len(numbers)
    for window, (first, second) in zip(windows, numbers, strict=True):
        assert window[0]._asdict() == {"time": TIMES[first], "pose": np.float32(6 * first)}
        assert window[1]._asdict() == {"twice": 2 * TIMES[second]}


def test_dataframe_transform_receives_window_rows_once(tracks: dict[int, str]) -> None:
    sizes = []

    def halved(frame: Any) -> Any:
        sizes.append(len(frame))
        frame["time"] = frame["time"] / 2
        return frame

    spec = TransformSpec(halved, edit_fields=[("time", np.float64, (), False)])
    asked = NGram({0: ["time"], 1: ["time"]}, 4, "time")
    with petastore.make_batch_reader(tracks[57], asked, shuffle_row_groups=False, transform_spec=spec) as reader:
        times = [row for batch in reader.iter_batches(50) for row in batch["time"].tolist()]
    assert times == [[TIMES[number] / 2, TIMES[number + 1] / 2] for number in range(ROWS - 1)]
    assert sorted(sizes) == [50] + [51] * 7


def test_window_transform_works_in_processes(tracks: dict[int, str]) -> None:
    with petastore.make_reader(
        tracks[2],
        ngram(),
        reader_pool_type="process",
        workers_count=1,
        shuffle_row_groups=False,
        transform_spec=TransformSpec(unchanged),
    ) as reader:
        windows = [tuple(row) for batch in reader.iter_batches(64) for row in batch["time"].tolist()]
    assert windows == [tuple(TIMES[window[place]] for place in (0, 1, 3)) for window in expected_windows()]


def test_transform_that_removes_all_window_fields_raises(tracks: dict[int, str]) -> None:
    spec = TransformSpec(removed_fields=["time"])
    with pytest.raises(
        InvalidArgumentError,
        match=r"the transform must keep at least one field that NGram\(\{0: \['time'\]\}, delta_threshold=1,",
    ):
        petastore.make_reader(tracks[1], NGram({0: ["time"]}, 1, "time"), transform_spec=spec)


def test_windows_become_torch_tensors(tracks: dict[int, str]) -> None:
    asked = NGram({0: ["time", "pose", "name"], 1: ["time", "pose", "points"]}, 2, "time")
    with petastore.make_reader(tracks[57], asked, shuffle_row_groups=False) as reader:
        loader = DataLoader(reader, batch_size=16)
        batches = list(loader)
        assert len(batches) == len(loader)
    numbers = expected_windows(length=2)
    assert tuple(batches[0]["pose"].shape) == (16, 2, 2, 3)
    assert [row for batch in batches for row in batch["time"].tolist()] == stacked(numbers, "time", [0, 1])
    assert batches[0]["name"] == stacked(numbers[:16], "name", [0])


class Spy(Dataset):
    """A dataset that records what is read."""

    @classmethod
    def on(cls, url: str) -> Spy:
        dataset = petastore.open_dataset(url)
        spy = cls(**{name: getattr(dataset, name) for name in Dataset.__dataclass_fields__})
        spy.__dict__["seen"] = []
        return spy

    def reading(self, files: OpenFiles | None = None) -> ReadInParts:
        read = super().reading(files)

        def noted(file: DataFile, ordinal: int, parts: Sequence[Part]) -> Iterator[pa.Table]:
            of_file = self.inventory.file == self.inventory.files.index(file)
            (group,) = np.flatnonzero(of_file & (self.inventory.ordinal == ordinal)).tolist()
            self.__dict__["seen"].append((group, parts[0].first))
            return read(file, ordinal, parts)

        return noted

    def seen_while_reading(self, asked: NGram, order: OrderOptions) -> list[tuple[int, int | None]]:
        run = RunOptions(reader_pool_type="dummy")
        options = ReadOptions(DatasetOptions(self), RowOptions(), PlanOptions(order=order), run)
        with open_window_reader(self, asked, options) as reader:
            assert reader.ngram is not None
            assert sum(batch.num_rows for batch in reader.iter_batches(50)) == len(reader)
        return sorted(self.__dict__["seen"], key=str)


def test_windows_read_only_the_first_rows_of_next_row_groups(tracks: dict[int, str]) -> None:
    asked = NGram({0: ["time"], 3: ["time"]}, 4, "time")
    assert Spy.on(tracks[2]).seen_while_reading(asked, OrderOptions(shuffle_row_groups=False)) == [
        (0, None),
        (1, 3),
        (1, None),
    ]


@pytest.mark.parametrize("shuffle_rows", [pytest.param(False, marks=pytest.mark.slow), True])
def test_windows_read_the_start_of_a_row_group_at_most_twice(tracks: dict[int, str], shuffle_rows: bool) -> None:
    asked = NGram({0: ["time"], 9: ["pose"]}, 4, "time")
    seen = Spy.on(tracks[200]).seen_while_reading(asked, OrderOptions(shuffle_rows=shuffle_rows, seed=1))
    assert len(seen) == len(set(seen)) <= 2 * 200


def test_windows_may_have_only_partition_columns(tmp_path: Path) -> None:
    for day in range(2):
        (tmp_path / f"day={day}").mkdir()
        write_plain(tmp_path / f"day={day}", time=np.arange(2) + 2 * day)
    with petastore.make_batch_reader(
        str(tmp_path), NGram({0: ["day"], 1: ["day"]}, 1, "time"), shuffle_row_groups=False
    ) as reader:
        assert [row for batch in reader for row in batch.day.tolist()] == [[0, 0], [0, 1], [1, 1]]


def test_window_starts_are_cached(tracks: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with petastore.make_reader(tracks[2], ngram(), filter_cache=tmp_path) as reader:
        counted = len(reader)
    assert len(list(tmp_path.glob("*.selection"))) == 1
    monkeypatch.setattr(Dataset, "read", None)  # window starts come from the cache, so no data may be read
    with petastore.make_reader(tracks[2], ngram(), filter_cache=tmp_path) as reader:
        assert len(reader) == counted
    with pytest.raises(TypeError):
        petastore.make_reader(tracks[2], ngram(most=1), filter_cache=tmp_path)


def test_window_memory_budget_holds_or_raises(tracks: dict[int, str]) -> None:
    with petastore.make_reader(tracks[57], ngram(), memory_budget=100_000_000, shuffle_row_groups=False) as reader:
        assert reader.estimate_memory(16).total_bytes <= 100_000_000
        assert sum(batch.num_rows for batch in reader.iter_batches(16)) == len(expected_windows())
    with (
        petastore.make_reader(tracks[57], ngram(), memory_budget=10_000) as reader,
        pytest.raises(InvalidArgumentError, match="memory_budget"),
    ):
        reader.iter_batches(16)


def test_longer_windows_need_more_memory(tracks: dict[int, str]) -> None:
    sizes = []
    for length in (1, 10):
        with petastore.make_reader(
            tracks[57], NGram({offset: ["pose"] for offset in range(length)}, 4, "time")
        ) as reader:
            sizes.append(reader.estimate_memory(16).rows_per_span)
    assert 4 * sizes[1] < sizes[0]


def test_make_mixed_reader_raises_for_windows(tracks: dict[int, str]) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"an NGram cannot be used as a list of fields\. Pass it as schema_fields to make_reader or",
    ):
        petastore.make_mixed_reader([tracks[1], tracks[2]], [1, 1], ngram())


def test_window_text_and_arrays_are_lists_in_torch(tracks: dict[int, str]) -> None:
    asked = NGram({0: ["name", "points"], 1: ["points"]}, 2, "time")
    with petastore.make_reader(tracks[1], asked, shuffle_row_groups=False) as reader:
        batch = next(iter(DataLoader(reader, batch_size=3)))
    numbers = expected_windows(length=2)[:3]
    assert batch["name"] == stacked(numbers, "name", [0])
    assert [[points.tolist() for points in window] for window in batch["points"]] == [
        [list(range(number % 5)) for number in window] for window in numbers
    ]


def test_collate_fn_receives_windows(tracks: dict[int, str]) -> None:
    asked = NGram({0: ["time", "name", "speed"], 1: ["pose", "points", "name"]}, 2, "time")
    with petastore.make_reader(tracks[1], asked, shuffle_row_groups=False) as reader:
        batch = next(iter(DataLoader(reader, batch_size=2, collate_fn=list)))
    number = expected_windows(length=2)[1][0]
    assert [list(window) for window in batch] == [["time", "pose", "name", "points", "speed"]] * 2
    assert batch[1]["time"].tolist() == [TIMES[number]]
    assert batch[1]["pose"].shape == (1, 2, 3)
    assert batch[1]["name"].tolist() == [row_of(number)["name"], row_of(number + 1)["name"]]
    assert batch[1]["points"][0].tolist() == row_of(number + 1)["points"].tolist()


def test_map_dataset_raises_for_windows(tracks: dict[int, str]) -> None:
    from petastore.adapters.torch import MapDataset

    with pytest.raises(
        InvalidArgumentError,
        match=r"an NGram cannot be used as a list of fields\. Pass it as schema_fields to make_reader or",
    ):
        MapDataset(tracks[1], ngram())


def test_ragged_padded_raises_for_windows(tracks: dict[int, str]) -> None:
    with (
        petastore.make_reader(tracks[1], ngram()) as reader,
        pytest.raises(
            InvalidArgumentError,
            match=r"ragged must be 'list' for windows, .* got Padded\(value=0\) for column 'points'",
        ),
    ):
        DataLoader(reader, batch_size=4, ragged="padded")


def test_state_of_other_windows_raises(tracks: dict[int, str]) -> None:
    apart = [{offset: ["time"] for offset in range(length)} for length in (1, 2)]
    states = []
    for fields in apart:
        with petastore.make_reader(tracks[2], NGram(fields, 4, "time"), filters=col("time") < 9) as reader:
            next(reader)
            states.append(reader.state_dict())
    with petastore.make_reader(tracks[2], NGram(apart[0], 4, "time"), filters=col("time") < 9) as reader:
        reader.load_state_dict(states[0])
        with pytest.raises(InvalidArgumentError, match="state"):
            reader.load_state_dict(states[1])


def test_explain_reports_the_rows_without_a_window(tracks: dict[int, str]) -> None:
    with petastore.make_reader(tracks[57], ngram(), filters=col("time") < 100) as reader:
        assert isinstance(reader.plan, petastore.Plan)
        said = reader.plan.explain(16).as_dict()
    windows = len([window for window in expected_windows() if TIMES[window[-1]] < 100])
    below = sum(time < 100 for time in TIMES)
    assert (said["rows"], said["dataset_rows"]) == (windows, ROWS)
    left_out = {step["by"]: step["rows"] for step in said["pruned"]}
    assert left_out["windows"] == below - windows
    assert sum(left_out.values()) == ROWS - windows


def test_windows_combine_row_groups_with_different_dictionaries(tmp_path: Path) -> None:
    kinds = pa.array([f"k{number // 3}" for number in range(12)]).dictionary_encode()
    for name, part in (("a", slice(0, 7)), ("b", slice(7, 12))):
        chunk = pa.array(kinds.to_pylist()[part]).dictionary_encode()
        times = np.arange(12)[part]
        pq.write_table(pa.table({"time": times, "kind": chunk}), tmp_path / f"{name}.parquet", row_group_size=2)
    asked = NGram({0: ["time", "kind"], 4: ["kind"]}, 1, "time")
    with petastore.make_reader(str(tmp_path), asked, shuffle_row_groups=False) as reader:
        found = [(int(window[0].time), window[0].kind, window[4].kind) for window in reader]
    assert found == [(n, f"k{n // 3}", f"k{(n + 4) // 3}") for n in range(8)]


def test_windows_support_nested_columns(tmp_path: Path) -> None:
    lists = [list(range(number % 3)) for number in range(8)]
    url = write_plain(tmp_path, time=np.arange(8), values=lists)
    with petastore.make_reader(
        url, NGram({0: ["values"], 1: ["values"]}, 1, "time"), shuffle_row_groups=False
    ) as reader:
        found = [(window[0].values.tolist(), window[1].values.tolist()) for window in reader]
    assert found == [(lists[number], lists[number + 1]) for number in range(7)]
