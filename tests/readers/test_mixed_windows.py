"""Tests of mixing windows of several readers by weight: whole windows, in exact proportion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import NGram, TransformSpec, Unischema, UnischemaField, WeightedSamplingReader
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec
from petastore.errors import InvalidArgumentError

FIELDS: dict[int, Any] = {0: ["time", "pose"], 2: ["time", "name"]}
SIZES = (60, 25)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write two datasets with different codecs; their times begin at 0 and 1000."""
    folder = tmp_path_factory.mktemp("tracks")
    codecs: list[Any] = [NdarrayCodec(), CompressedNdarrayCodec()]
    for number, (size, codec) in enumerate(zip(SIZES, codecs, strict=True)):
        fields = [
            UnischemaField("time", np.int64),
            UnischemaField("pose", np.float32, (2,), codec),
            UnischemaField("name", np.str_, (), None, nullable=True),
        ]
        first = 1000 * number
        rows = ({"time": t, "pose": np.full(2, t, np.float32), "name": f"n{t}"} for t in range(first, first + size))
        petastore.write_dataset(folder / f"d{number}", Unischema("track", fields), rows, rows_per_row_group=7)
    return [str(folder / f"d{number}") for number in range(2)]


def readers_of(urls: list[str], make: Any = petastore.make_reader, **options: Any) -> list[Any]:
    return [make(url, NGram(FIELDS, 1, "time"), seed=4, **options) for url in urls]


def firsts(windows: list[Any]) -> list[int]:
    """Return the time at which each window begins; check that all windows are complete."""
    for window in windows:
        time = int(window[0].time)
        assert list(window) == [0, 1, 2]
        assert window[0].pose.tolist() == [time, time]
        assert window[2]._asdict() == {"time": time + 2, "name": f"n{time + 2}"}
    return [int(window[0].time) for window in windows]


@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_mixed_windows_have_exact_proportions(urls: list[str], shuffle_rows: bool) -> None:
    with WeightedSamplingReader(readers_of(urls, shuffle_rows=shuffle_rows), [0.5, 0.5]) as reader:
        assert isinstance(reader, WeightedSamplingReader)
        windows = firsts(list(reader))
        assert len(windows) == reader.num_rows
    second = [time for time in windows if time >= 1000]
    assert sorted(second) == list(range(1000, 1000 + SIZES[1] - 2))
    assert abs(len(windows) - 2 * len(second)) <= 1
    assert len(set(windows)) == len(windows)


def test_mixed_windows_keep_the_filters_of_each_reader(urls: list[str]) -> None:
    options: dict[str, Any] = {"filters": [("time", "not in", [3, 1003])]}
    two = {0: ["time"], 1: ["time"]}
    readers = [petastore.make_reader(url, NGram(two, 2, "time"), shuffle_row_groups=False, **options) for url in urls]
    with WeightedSamplingReader(readers, [1, 1]) as reader:
        pairs = {(int(window[0].time), int(window[1].time)) for window in reader}
    assert {(2, 4), (1002, 1004)} <= pairs
    assert not {time for pair in pairs for time in pair} & {3, 1003}


def test_mixed_windows_are_stacked_in_batches(urls: list[str]) -> None:
    readers = readers_of(urls, petastore.make_batch_reader, shuffle_row_groups=False)
    with WeightedSamplingReader(readers, [1, 1]) as reader:
        for batch in reader.iter_batches(5):
            assert batch["pose"].shape[1:] == (1, 2)
            assert (batch["time"][:, 1] - batch["time"][:, 0] == 2).all()
            assert len(set((batch["time"][:, 0] // 1000).tolist())) == 1


def test_mixed_windows_resume_from_states(urls: list[str]) -> None:
    with WeightedSamplingReader(readers_of(urls, shuffle_rows=True), [1, 2]) as reader:
        whole = firsts(list(reader))
    with WeightedSamplingReader(readers_of(urls, shuffle_rows=True), [1, 2]) as reader:
        begun = firsts([next(reader) for _ in range(13)])
        state = json.loads(json.dumps(reader.state_dict()))
    with WeightedSamplingReader(readers_of(urls, shuffle_rows=True), [1, 2]) as reader:
        reader.load_state_dict(state)
        assert begun + firsts(list(reader)) == whole


def negative(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "pose": -row["pose"]}


def test_mixed_windows_keep_the_transform_of_each_reader(urls: list[str]) -> None:
    readers = [
        petastore.make_reader(url, NGram(FIELDS, 1, "time"), transform_spec=spec)
        for url, spec in zip(urls, (None, TransformSpec(negative)), strict=True)
    ]
    with WeightedSamplingReader(readers, [1, 1]) as reader:
        for window in reader:
            time = int(window[0].time)
            assert window[0].pose[0] == (time if time < 1000 else -time)


def test_mixing_windows_with_rows_raises(urls: list[str]) -> None:
    rows = petastore.make_reader(urls[1], ["time", "pose", "name"])
    with pytest.raises(InvalidArgumentError, match=r"got rows from reader 1 and NGram\(.*\) from reader 0"):
        WeightedSamplingReader([readers_of(urls)[0], rows], [1, 1])
    with pytest.raises(InvalidArgumentError, match="source_column"):
        WeightedSamplingReader(readers_of(urls), [1, 1], source_column="source")


def test_memory_of_mixed_windows_can_be_estimated(urls: list[str]) -> None:
    with WeightedSamplingReader(readers_of(urls), [1, 1]) as reader:
        assert reader.estimate_memory(4).total_bytes > 0


def test_mixed_windows_have_the_partitions_of_their_dataset(tmp_path: Path) -> None:
    schema = Unischema("s", [UnischemaField("time", np.int64)])
    for name in "ab":
        petastore.write_dataset(tmp_path / name / "kind=x", schema, [{"time": n} for n in range(5)])
    for name in "ab":
        for file in (tmp_path / name / "kind=x").glob("_*"):
            if file.is_file():
                file.unlink()
    asked = NGram({0: ["time"], 1: ["kind"]}, 1, "time")
    readers = [petastore.make_reader(tmp_path / name, asked) for name in "ab"]
    with WeightedSamplingReader(readers, [1, 1]) as reader:
        assert {str(window[1].kind) for window in reader} == {"x"}
