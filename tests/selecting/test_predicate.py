"""Tests of predicates in readers: included rows only, with shuffling, shards, caching, and unchanged dtypes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import petastore
from petastore import Unischema, UnischemaField, make_batch_reader, make_reader, open_dataset, select_rows
from petastore.codecs import NdarrayCodec
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, TransformError
from petastore.plan import ReadUnit
from petastore.predicates import (
    PredicateBase,
    in_intersection,
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)
from tests.tier import examples

SCHEMA = Unischema(
    "frames",
    [
        UnischemaField("id", "int64"),
        UnischemaField("split", "str"),
        UnischemaField("count", "int64", nullable=True),
        UnischemaField("labels", "int64", (None,), NdarrayCodec()),
        UnischemaField("pose", "float32", (2,), NdarrayCodec()),
    ],
)
BIG = 2**53 + 1


def frame(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "split": ("train", "train", "val")[number % 3],
        "count": None if number % 7 == 0 else BIG + number,
        "labels": np.arange(number % 4),
        "pose": np.array([number, -number], np.float32),
    }


ROWS = [frame(number) for number in range(100)]


class Big(PredicateBase):
    """A predicate that accepts a single row, or a DataFrame, as Petastorm's users write it for each reader type."""

    def get_fields(self) -> set[str]:
        return {"id"}

    def do_include(self, values: Any) -> Any:
        return values["id"] > 79


PREDICATES: dict[str, tuple[Any, Any]] = {
    "in_set": (in_set({"val", "test"}, "split"), lambda row: row["split"] == "val"),
    "in_set of none": (in_set({None, BIG + 1}, "count"), lambda row: row["count"] in (None, BIG + 1)),
    "in_set of another kind": (in_set({"1"}, "id"), lambda _: False),
    "in_intersection": (in_intersection([2], "labels"), lambda row: 2 in row["labels"]),
    "in_negate": (in_negate(in_set({BIG + 1}, "count")), lambda row: row["count"] != BIG + 1),
    "in_negate of intersection": (in_negate(in_intersection([2], "labels")), lambda row: 2 not in row["labels"]),
    "in_reduce": (
        in_reduce([in_set({"val"}, "split"), in_intersection([0], "labels"), Big()], all),
        lambda row: row["split"] == "val" and 0 in row["labels"] and row["id"] > 79,
    ),
    "in_reduce any": (in_reduce([in_set({3}, "id"), Big()], any), lambda row: row["id"] == 3 or row["id"] > 79),
    "split": (
        in_pseudorandom_split([0.3, 0.7], 0, "id"),
        lambda row: in_pseudorandom_split([0.3, 0.7], 0, "id").do_include(row),
    ),
    "user's": (Big(), lambda row: row["id"] > 79),
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write 100 rows in row groups of 8."""
    folder = tmp_path_factory.mktemp("frames") / "frames"
    petastore.write_dataset(folder, SCHEMA, ROWS, rows_per_row_group=8)
    return str(folder)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[ReadUnit]:
    """Return a list that records each later read by filters and predicates."""
    seen: list[ReadUnit] = []
    read = Dataset.read

    def noted(self: Dataset, unit: ReadUnit) -> Any:
        seen.append(unit)
        return read(self, unit)

    monkeypatch.setattr(Dataset, "read", noted)
    return seen


def wanted(test: Any) -> list[int]:
    return [row["id"] for row in ROWS if test(row)]


def same(found: Any, row: dict[str, Any]) -> bool:
    return all(
        value is None if row[name] is None else np.array_equal(value, row[name])
        for name, value in found._asdict().items()
    )


@pytest.mark.parametrize("name", PREDICATES)
@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
def test_defect_2_predicate_with_shuffle_rows_keeps_each_row_intact(url: str, name: str) -> None:
    predicate, test = PREDICATES[name]
    for seed in (None, 0, 7):
        with make_reader(url, predicate=predicate, shuffle_rows=True, seed=seed) as reader:
            found = list(reader)
        assert sorted(int(row.id) for row in found) == wanted(test)
        assert all(same(row, ROWS[row.id]) for row in found)
        with make_batch_reader(url, predicate=predicate, shuffle_rows=True, seed=seed) as reader:
            batches = list(reader)
        assert sorted(int(number) for batch in batches for number in batch.id) == wanted(test)
        for batch in batches:
            assert batch.pose.tolist() == [[number, -number] for number in batch.id]
            assert [len(labels) for labels in batch.labels] == [number % 4 for number in batch.id]


@pytest.mark.parametrize("name", PREDICATES)
@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
def test_shards_divide_the_rows_that_a_predicate_includes(url: str, name: str) -> None:
    predicate, test = PREDICATES[name]
    for make in (make_reader, make_batch_reader):
        found, steps = [], set()
        for shard in range(3):
            with make(url, ["id"], predicate=predicate, cur_shard=shard, shard_count=3, shuffle_rows=True) as reader:
                steps.add(reader.steps_per_epoch(2))
                found += [int(number) for batch in reader.iter_batches(2) for number in batch["id"]]
        assert sorted(found) == wanted(test)
        assert len(steps) == 1


@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
@settings(max_examples=examples(10), deadline=None)
@given(names=st.lists(st.sampled_from(sorted(PREDICATES)), min_size=1, max_size=3), seed=st.integers(0, 9))
def test_in_reduce_all_selects_rows_that_all_its_predicates_select(
    url: str, tmp_path_factory: pytest.TempPathFactory, names: list[str], seed: int
) -> None:
    predicate = in_reduce([PREDICATES[name][0] for name in names], all)
    expected = wanted(lambda row: all(PREDICATES[name][1](row) for name in names))
    directory = tmp_path_factory.mktemp("cache")
    for cache in (False, directory, directory):
        with make_reader(url, ["id"], predicate=predicate, shuffle_rows=True, seed=seed, filter_cache=cache) as reader:
            assert sorted(int(row.id) for row in reader) == expected


def test_defect_13_predicate_keeps_dtypes_and_time_zones(tmp_path: Path) -> None:
    at = pa.array([dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)], pa.timestamp("us", "Europe/Oslo"))
    pq.write_table(pa.table({"id": [BIG, BIG + 2, 5], "count": [BIG, None, 7], "at": at}), tmp_path / "a.parquet")
    seen: list[Any] = []

    class SeesFrames(PredicateBase):
        def get_fields(self) -> set[str]:
            return {"id", "count", "at"}

        def do_include(self, values: Any) -> Any:
            seen.append(values)
            return (values["count"] != 7) & (values["at"] >= pd.Timestamp("2026-01-01", tz="UTC"))

    with make_batch_reader(str(tmp_path), predicate=SeesFrames()) as reader:
        (batch,) = list(reader)
    with make_batch_reader(str(tmp_path)) as reader:
        (everything,) = list(reader)
    assert batch.id.tolist() == [BIG]  # a comparison with a null is not true
    assert [column.dtype for column in batch] == [column.dtype for column in everything]
    assert batch.at.tolist() == everything.at.tolist()[:1]
    assert {name: str(dtype) for name, dtype in seen[0].dtypes.items()} == {
        "id": "int64",
        "count": "Int64",
        "at": "datetime64[us, Europe/Oslo]",
    }


@pytest.mark.parametrize("name", PREDICATES)
@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
def test_defect_14_each_predicate_works_in_batch_readers(url: str, name: str) -> None:
    predicate, test = PREDICATES[name]
    with make_batch_reader(url, ["id"], predicate=predicate, shuffle_row_groups=False) as reader:
        assert [int(number) for batch in reader for number in batch.id] == wanted(test)


def test_in_lambda_gets_series_in_batch_readers_and_values_in_row_readers(url: str) -> None:
    with make_batch_reader(url, ["id"], predicate=in_lambda(["id"], lambda ids: ids.isin([3, 99]))) as reader:
        assert sorted(int(number) for batch in reader for number in batch.id) == [3, 99]
    is_zero = in_lambda(["count"], lambda count: count is None)
    with make_reader(url, ["id"], predicate=is_zero) as reader:
        assert sorted(int(row.id) for row in reader) == list(range(0, 100, 7))
    with make_batch_reader(url, ["id"], predicate=in_negate(in_lambda(["id"], lambda ids: ids > 2))) as reader:
        assert sorted(int(number) for batch in reader for number in batch.id) == [0, 1, 2]
    with make_batch_reader(url, ["id"], predicate=lambda row: row["id"] == 4) as reader:
        assert [int(number) for batch in reader for number in batch.id] == [4]


def test_row_predicate_in_a_batch_reader_raises_with_advice(url: str) -> None:
    with pytest.raises(
        TransformError,
        match=r"predicate must return 8 booleans for a batch, got bool of shape \(\)\. In a batch reader, do_include "
        "receives a DataFrame; a function of a row",
    ):
        make_batch_reader(url, predicate=in_lambda(["labels"], lambda labels: len(labels) > 2))


def test_predicate_without_matches_reads_no_other_columns(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[tuple[int, tuple[str, ...]]] = []
    decoded: list[tuple[int, set[str]]] = []
    read, reading = Dataset.read, Dataset.reading

    def noted(self: Dataset, unit: ReadUnit) -> Any:
        decided.append((unit.group, unit.columns))
        return read(self, unit)

    def noted_reading(self: Dataset, *arguments: Any) -> Any:
        read_in_parts = reading(self, *arguments)

        def noted_in_parts(file: Any, ordinal: int, parts: Any) -> Any:
            of_file = self.inventory.file == self.inventory.files.index(file)
            group = int(np.flatnonzero(of_file & (self.inventory.ordinal == ordinal))[0])
            decoded.append((group, {name for part in parts for name in part.columns}))
            return read_in_parts(file, ordinal, parts)

        return noted_in_parts

    monkeypatch.setattr(Dataset, "read", noted)
    monkeypatch.setattr(Dataset, "reading", noted_reading)
    with make_reader(url, ["id", "pose"], predicate=in_intersection([2], "labels"), seed=0) as reader:
        assert len(list(reader)) == 25
    assert sorted(decided) == [(group, ("labels",)) for group in range(13)]
    decoded.clear()
    with make_reader(url, ["id", "pose"], predicate=Big(), seed=0) as reader:
        assert len(list(reader)) == 20
    assert sorted(decoded, key=lambda of_group: of_group[0]) == [(group, {"id", "pose"}) for group in (10, 11, 12)]


def test_predicate_that_is_a_filter_prunes_by_statistics(url: str, reads: list[ReadUnit]) -> None:
    selection = select_rows(open_dataset(url), predicate=in_set({3, 99}, "id"))
    assert sorted({unit.group for unit in reads}) == [0, 12]
    assert selection is not None
    assert {step.by for step in selection.pruned} == {"statistics", "filter"}
    reads.clear()
    predicate = in_reduce([in_intersection([2], "labels"), in_set(range(16, 24), "id")], all)
    with make_reader(url, ["id"], predicate=predicate, shuffle_row_groups=False) as reader:
        assert [int(row.id) for row in reader] == [19, 23]
    assert {unit.group for unit in reads} == {2}


def partitioned(folder: Path) -> str:
    """Write two levels of partitions with row groups of 5."""
    for day in ("2026-01-30", "2026-01-31", "2026-02-01"):
        for city in ("oslo", "rome"):
            place = folder / f"day={day}" / f"city={city}"
            place.mkdir(parents=True)
            first = 100 * int(day[-1]) + (50 if city == "rome" else 0)
            pq.write_table(pa.table({"id": range(first, first + 10)}), place / "part.parquet", row_group_size=5)
    return str(folder)


def ids(url: str, **asked: Any) -> list[int]:
    with make_reader(url, ["id"], **asked) as reader:
        return sorted(int(row.id) for row in reader)


def test_defect_15_predicates_on_partition_keys_alone_read_no_data(tmp_path: Path, reads: list[ReadUnit]) -> None:
    url = partitioned(tmp_path)
    both = in_lambda(["day", "city"], lambda day, city: str(day).endswith("-31") and city == "rome")
    assert ids(url, predicate=both) == list(range(150, 160))
    assert ids(url, predicate=in_reduce([in_set({"rome"}, "city"), in_set({"2026-01-31"}, "day")], all)) == list(
        range(150, 160)
    )
    assert ids(url, predicate=in_negate(in_reduce([in_set({"rome"}, "city"), in_set({"2026-01-31"}, "day")], any))) == [
        *range(10),
        *range(100, 110),
    ]
    assert reads == []


def test_partition_predicates_receive_values_in_batch_readers(tmp_path: Path) -> None:
    in_rome = in_lambda(["city", "day"], lambda city, day: city.startswith("ro") and str(day).endswith("-31"))
    with make_batch_reader(partitioned(tmp_path), ["id"], predicate=in_rome) as reader:
        assert sorted(int(number) for batch in reader for number in batch.id) == list(range(150, 160))


def test_defect_15_partition_parts_of_a_predicate_prune_files(tmp_path: Path, reads: list[ReadUnit]) -> None:
    url = partitioned(tmp_path)
    even = in_lambda(["id"], lambda number: number % 2 == 0)
    in_rome = in_lambda(["city"], lambda city: city.startswith("r"))
    assert ids(url, predicate=in_reduce([even, in_rome, in_set({"2026-01-31"}, "day")], all)) == [
        150, 152, 154, 156, 158,
    ]  # fmt: skip
    files = open_dataset(url).inventory.file
    assert {int(files[unit.group]) for unit in reads} == {3}


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (
            in_set({1}, "wrong"),
            r"get_fields of predicate must return names of dataset fields \('id', 'split', .*, 'pose'\), got",
        ),
        (in_reduce([in_set({1}, "id"), in_lambda(["wrong"], bool)], all), "'wrong'"),
        (in_set, r"predicate must be an object, got the class in_set\. Write in_set\(…\)"),
    ],
)
def test_invalid_predicates_raise_at_the_call(url: str, predicate: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        make_reader(url, predicate=predicate)


def test_predicate_with_cache_key_is_evaluated_once(url: str, reads: list[ReadUnit]) -> None:
    def parts() -> Iterable[Any]:
        return in_intersection([2], "labels"), in_pseudorandom_split([0.5, 0.5], 0, "id"), in_set({"val"}, "split")

    first = ids(url, predicate=in_reduce(parts(), all))
    assert reads
    reads.clear()
    assert ids(url, predicate=in_reduce(parts(), all)) == first
    assert reads == []
