"""Tests of `NGram(group_by=)`: windows of each series across row groups and files, also if interleaved."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import NGram, Unischema, UnischemaField, WeightedSamplingReader, make_batch_reader, make_reader
from petastore.errors import InvalidArgumentError, NoDataAvailableError
from tests.tier import sized
from tests.windows_by_hand import windows_of_series_by_hand

SENSORS, ROWS = 3, 40


def ngram(length: int = 4, most: Any = 1, *, by: Any = "sensor", overlap: bool = True) -> NGram:
    return NGram({offset: ["sensor", "time", "row"] for offset in range(length)}, most, "time", overlap, group_by=by)


def recorded(order: list[str]) -> pd.DataFrame:
    """Return rows of three sensors with one row per second each, sorted by these columns."""
    seconds = np.tile(np.arange(ROWS), SENSORS)
    frame = pd.DataFrame({"sensor": np.repeat(np.arange(SENSORS), ROWS), "time": seconds, "day": seconds // 16})
    frame = frame.sort_values(order, kind="stable", ignore_index=True)
    return frame.assign(row=np.arange(len(frame)))


def windows_of(url: Any, asked: NGram, **options: Any) -> list[tuple[int, ...]]:
    with make_batch_reader(str(url), asked, reader_pool_type="dummy", **options) as reader:
        windows = [tuple(window) for batch in reader.iter_batches(7) for window in batch["row"].tolist()]
        assert len(windows) == reader.num_rows
    return sorted(windows)


@pytest.mark.parametrize("order", [["sensor", "time"], ["time", "sensor"], ["day", "sensor", "time"]])
@pytest.mark.parametrize("overlap", [True, False])
def test_group_by_gives_all_windows_of_each_series(tmp_path: Path, order: list[str], overlap: bool) -> None:
    frame = recorded(order)
    petastore.write_dataset(str(tmp_path / "x"), frame, rows_per_row_group=11, rows_per_file=33)
    by_hand = windows_of_series_by_hand(
        frame["sensor"].tolist(), frame["time"].tolist(), length=4, most=1, overlap=overlap
    )
    assert windows_of(tmp_path / "x", ngram(overlap=overlap)) == by_hand
    assert len(by_hand) == SENSORS * (ROWS - 3 if overlap else ROWS // 4)


def test_group_by_ends_windows_at_a_new_series_even_without_a_time_gap(tmp_path: Path) -> None:
    frame = recorded(["sensor", "time"]).assign(time=np.arange(SENSORS * ROWS))
    petastore.write_dataset(str(tmp_path / "x"), frame, rows_per_row_group=ROWS)
    with make_reader(str(tmp_path / "x"), ngram(2)) as reader:
        windows = list(reader)
    assert len(windows) == SENSORS * (ROWS - 1)
    assert all(window[0].sensor == window[1].sensor for window in windows)


@pytest.mark.parametrize("seed", range(sized(full=150, quick=25)))
def test_group_by_windows_equal_a_reference_implementation(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows, per_group = int(draw.integers(1, 60)), int(draw.integers(1, 15))
    series, times = draw.integers(0, draw.integers(1, 5), rows), np.zeros(rows, np.int64)
    for first in range(0, rows, per_group):
        group = slice(first, first + per_group)
        if seed % 2:
            series[group] = np.sort(series[group])
        for key in set(series[group].tolist()):
            where = first + np.flatnonzero(series[group] == key)
            times[where] = np.sort(draw.integers(0, 12, len(where))) + first * draw.integers(2)
    length, most, overlap = int(draw.integers(1, 5)), int(draw.integers(0, 6)), bool(draw.integers(2))
    frame = pd.DataFrame({"sensor": [f"s{key}" for key in series], "time": times, "row": np.arange(rows)})
    petastore.write_dataset(
        str(tmp_path / "x"), frame, rows_per_row_group=per_group, rows_per_file=per_group * int(draw.integers(1, 4))
    )
    left_out = set(draw.integers(0, rows, rows // 8).tolist())
    kept = frame[~frame["row"].isin(left_out)]
    by_hand = windows_of_series_by_hand(
        kept["sensor"].tolist(), kept["time"].tolist(), length=length, most=most, overlap=overlap
    )
    expected = sorted(tuple(kept["row"].iloc[list(window)].tolist()) for window in by_hand)
    filters = [("row", "not in", sorted(left_out))] if left_out else None
    asked = ngram(length, most, overlap=overlap)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "none of the")  # a filter may match no rows
        try:
            found = windows_of(tmp_path / "x", asked, filters=filters, shuffle_rows=True, seed=seed)
        except NoDataAvailableError:
            found = []
    assert found == expected


def test_group_by_windows_are_sharded_and_resumed(tmp_path: Path) -> None:
    petastore.write_dataset(str(tmp_path / "x"), recorded(["time"]), rows_per_row_group=11)
    every = windows_of(tmp_path / "x", ngram())
    options: dict[str, Any] = {"seed": 3, "shuffle_rows": True}
    of_ranks = [windows_of(tmp_path / "x", ngram(), cur_shard=rank, shard_count=2, **options) for rank in range(2)]
    assert sorted([*of_ranks[0], *of_ranks[1]]) == every
    with make_batch_reader(str(tmp_path / "x"), ngram(), **options) as reader:
        batches = reader.iter_batches(10)
        first = [tuple(window) for _ in range(4) for window in next(batches)["row"].tolist()]
        state = reader.state_dict()
    with make_batch_reader(str(tmp_path / "x"), ngram(), **options) as reader:
        reader.load_state_dict(state)
        rest = [tuple(window) for batch in reader.iter_batches(10) for window in batch["row"].tolist()]
    assert sorted(first + rest) == every
    with (
        make_batch_reader(str(tmp_path / "x"), ngram(by=["sensor", "day"]), **options) as reader,
        pytest.raises(petastore.errors.PetastoreError),
    ):
        reader.load_state_dict(state)


def test_group_by_accepts_partition_and_category_columns_together(tmp_path: Path) -> None:
    for place in ("a", "b"):
        for part in range(2):
            folder = tmp_path / "x" / f"place={place}"
            folder.mkdir(parents=True, exist_ok=True)
            kinds = pa.array(["hot", "cold"] * 5 if part else ["cold", "hot"] * 5).dictionary_encode()
            table = pa.table({"kind": kinds, "time": np.arange(10) // 2 + 5 * part, "row": np.arange(10) + 10 * part})
            pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=4)
    fields = ["place", "kind", "time", "row"]
    asked = NGram({0: fields, 1: fields, 2: fields}, 1, "time", group_by=["place", "kind"])
    with make_reader(str(tmp_path / "x"), asked) as reader:
        windows = list(reader)
    assert len(windows) == 2 * 2 * (10 - 2)
    for window in windows:
        assert len({(row.place, row.kind) for row in window.values()}) == 1
        assert [int(row.time - window[0].time) for row in window.values()] == [0, 1, 2]


def test_group_by_windows_of_several_readers_can_be_mixed(tmp_path: Path) -> None:
    for name, order in (("x", ["sensor", "time"]), ("y", ["time", "sensor"])):
        petastore.write_dataset(str(tmp_path / name), recorded(order), rows_per_row_group=11)
    readers = [make_batch_reader(str(tmp_path / name), ngram(), seed=1) for name in ("x", "y")]
    with WeightedSamplingReader(readers, [0.5, 0.5], batching="mixed") as reader:
        batches = list(reader.iter_batches(16))
    for batch in batches:
        assert (batch["sensor"] == batch["sensor"][:, :1]).all()
        assert (np.diff(batch["time"], axis=1) == 1).all()
    # One source ends the mixture with its last window; by then the other one has yielded as many, or one less.
    assert sum(len(batch["row"]) for batch in batches) >= 2 * SENSORS * (ROWS - 3) - 1


def test_group_by_raises_for_nan_keys_and_unsorted_timestamps(tmp_path: Path) -> None:
    frame = recorded(["sensor", "time"])
    petastore.write_dataset(str(tmp_path / "missing"), frame.assign(sensor=frame["sensor"].replace(1, np.nan)))
    with pytest.raises(
        InvalidArgumentError,
        match=r"row 40 of row group 0 in .*: the group_by column 'sensor' must not be NaN for windows",
    ):
        make_reader(str(tmp_path / "missing"), ngram())
    frame.loc[[50, 51], "time"] = frame.loc[[51, 50], "time"].to_numpy()
    petastore.write_dataset(str(tmp_path / "unsorted"), frame)
    with pytest.raises(InvalidArgumentError, match=r"row 51 of row group 0 .* in the row before of its series"):
        make_reader(str(tmp_path / "unsorted"), ngram())
    with pytest.raises(InvalidArgumentError, match=r"NGram\(…, group_by=…\)"):
        make_reader(str(tmp_path / "unsorted"), NGram({0: ["row"]}, 1, "time"))


@pytest.mark.parametrize("group_by", [[], 3, ["sensor", None]])
def test_group_by_that_is_not_column_names_raises(group_by: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^group_by must "):
        NGram({0: ["row"]}, 1, "time", group_by=group_by)


def test_form_ngram_with_group_by_never_mixes_series() -> None:
    schema = Unischema("s", [UnischemaField(name, np.int64) for name in ("sensor", "time", "row")])
    data = [{"sensor": row % 2, "time": row // 2, "row": row} for row in range(6)]
    windows = ngram(2).form_ngram(data, schema)
    assert [[row["row"] for row in window.values()] for window in windows] == [[0, 2], [1, 3], [2, 4], [3, 5]]
