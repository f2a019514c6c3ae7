"""Tests of row group selectors: whole row groups, exact counts, combined with filters and predicates."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, col, make_batch_reader, make_reader, open_dataset, select_rows
from petastore import write_dataset as write
from petastore.dataset import Dataset
from petastore.errors import DatasetChangedError, InvalidArgumentError, MetadataError, TransformError
from petastore.indexing import SingleFieldIndexer, build_rowgroup_index, get_row_group_indexes
from petastore.plan.report.explanation import Explanation
from petastore.predicates import in_lambda, in_set
from petastore.selectors import (
    IntersectIndexSelector,
    RowGroupSelectorBase,
    SingleIndexSelector,
    UnionIndexSelector,
)

SCHEMA = Unischema("s", [UnischemaField("id", "int64"), UnischemaField("word", "str"), UnischemaField("odd", "bool")])
COUNTS = b"dataset-toolkit.num_row_groups_per_file.v1"
EVERY_THIRD = SingleIndexSelector("by_word", ["w0"])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Write 90 rows in 9 row groups of 10; each row group has one of three words in all rows."""
    rows = ({"id": n, "word": f"w{n // 10 % 3}", "odd": n % 2 == 1} for n in range(90))
    write(tmp_path / "s", SCHEMA, rows, rows_per_row_group=10)
    build_rowgroup_index(
        str(tmp_path / "s"), indexers=[SingleFieldIndexer("by_word", "word"), SingleFieldIndexer("by_id", "id")]
    )
    return str(tmp_path / "s")


def ids(url: str, make: Any = make_reader, **asked: Any) -> list[int]:
    with make(url, ["id"], **asked) as reader:
        return sorted(int(number) for batch in reader.iter_batches(7) for number in batch["id"])


def of_groups(groups: Sequence[int]) -> list[int]:
    return [10 * group + place for group in groups for place in range(10)]


@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_selector_reads_all_rows_of_matching_row_groups(url: str, make: Any) -> None:
    assert ids(url, make, rowgroup_selector=EVERY_THIRD) == of_groups([0, 3, 6])
    either = UnionIndexSelector([SingleIndexSelector("by_id", [5, 88]), SingleIndexSelector("by_word", ["w2"])])
    assert ids(url, make, rowgroup_selector=either) == of_groups([0, 2, 5, 8])
    both = IntersectIndexSelector([SingleIndexSelector("by_id", [5, 35, 45]), EVERY_THIRD])
    assert ids(url, make, rowgroup_selector=both, shuffle_rows=True) == of_groups([0, 3])
    assert ids(url, make, rowgroup_selector=SingleIndexSelector("by_id", [1000])) == []


def test_selector_counts_and_shards_are_exact(url: str) -> None:
    found: list[int] = []
    for shard in range(4):
        with make_reader(url, rowgroup_selector=EVERY_THIRD, cur_shard=shard, shard_count=4, seed=3) as reader:
            assert (reader.plan.num_rows, reader.steps_per_epoch(2)) == (30, 4)
            batches = list(reader.iter_batches(2))
            assert len(batches) == 4
            found += [int(number) for batch in batches for number in batch["id"]]
    assert sorted(found) == of_groups([0, 3, 6])


def test_explain_reports_rows_skipped_by_selectors_before_those_of_filters(url: str) -> None:
    with make_reader(url, rowgroup_selector=EVERY_THIRD, filters=col("id") < 35) as reader:
        said = reader.plan.explain(1)
    assert isinstance(said, Explanation)
    assert [(each.by, each.row_groups, each.rows) for each in said.pruned] == [
        ("row-group index", 6, 60),
        ("statistics", 1, 10),
        ("filter", 0, 5),
    ]


@pytest.mark.parametrize("cached", [True, False])
def test_defect_16_selectors_combine_with_filters_and_predicates(url: str, cached: bool) -> None:
    asked = {"rowgroup_selector": EVERY_THIRD, "filter_cache": cached}
    for _ in range(2):
        assert ids(url, filters=col("id") >= 35, **asked) == [*range(35, 40), *range(60, 70)]
        assert ids(url, filters=col("odd") == True, **asked) == of_groups([0, 3, 6])[1::2]  # noqa: E712
        assert ids(url, predicate=in_set(range(25, 35), "id"), **asked) == list(range(30, 35))
        assert ids(url, predicate=in_lambda(["id"], lambda number: number % 10 == 0), **asked) == [0, 30, 60]
        assert ids(url, filters=col("id") < 60, predicate=in_lambda(["odd"], bool), **asked) == of_groups([0, 3])[1::2]
        assert ids(url, filters=col("id") >= 35, filter_cache=cached) == list(range(35, 90))


def test_defect_16_selectors_combine_with_partition_and_column_filters(tmp_path: Path) -> None:
    for day in ("mon", "tue", "wed"):
        (tmp_path / "d" / f"day={day}").mkdir(parents=True)
        first = 100 * ["mon", "tue", "wed"].index(day)
        table = pa.table({"id": range(first, first + 20)})
        pq.write_table(table, tmp_path / "d" / f"day={day}" / "a.parquet", row_group_size=5)
    url = str(tmp_path / "d")
    build_rowgroup_index(url, indexers=[SingleFieldIndexer("by_id", "id")])
    picked = SingleIndexSelector("by_id", [0, 101, 117, 210])
    assert ids(url, rowgroup_selector=picked, filters=col("day") != "mon") == [
        *range(100, 105), *range(115, 120), *range(210, 215),
    ]  # fmt: skip
    assert ids(url, rowgroup_selector=picked, filters=[("id", "<", 117)]) == [*range(5), *range(100, 105), 115, 116]


def test_selector_limits_the_scanned_row_groups(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    read = Dataset.read

    def noted(self: Dataset, unit: Any) -> Any:
        seen.append(unit.group)
        return read(self, unit)

    monkeypatch.setattr(Dataset, "read", noted)
    selection = select_rows(
        open_dataset(url), rowgroup_selector=EVERY_THIRD, predicate=in_lambda(["odd"], bool), filter_cache=False
    )
    assert sorted(seen) == [0, 3, 6]
    assert selection is not None
    assert selection.counts.tolist() == [5, 0, 0, 5, 0, 0, 5, 0, 0]


def test_missing_index_raises_and_lists_existing_indexes(url: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"rowgroup_selector must name an index of .*, which has 'by_id', 'by_word', got 'by_day'\."
    ) as caught:
        make_reader(url, rowgroup_selector=SingleIndexSelector("by_day", [1]))
    assert isinstance(caught.value, InvalidArgumentError)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "plain.parquet")
    (tmp_path / "plain").mkdir()
    shutil.move(tmp_path / "plain.parquet", tmp_path / "plain" / "a.parquet")
    with pytest.raises(InvalidArgumentError, match="has none"):
        make_reader(tmp_path / "plain", rowgroup_selector=EVERY_THIRD)
    with pytest.raises(
        InvalidArgumentError,
        match=r"rowgroup_selector must be used with a whole dataset, got single files of.*Read the directory, or",
    ):
        make_reader(tmp_path / "plain" / "a.parquet", rowgroup_selector=EVERY_THIRD)


def test_stale_index_raises(url: str) -> None:
    write(url, SCHEMA, [{"id": 1, "word": "w0", "odd": True}], mode="append")
    with pytest.raises(DatasetChangedError, match="stale"):
        make_reader(url, rowgroup_selector=EVERY_THIRD)


def test_custom_row_group_selector_is_called_and_its_result_is_checked(url: str) -> None:
    class Picks(RowGroupSelectorBase):
        def __init__(self, picked: Any, names: Any = ("by_word",)) -> None:
            self.picked, self.names = picked, names

        def get_index_names(self) -> Any:
            return self.names

        def select_row_groups(self, index_dict: Any) -> Any:
            assert list(index_dict) == ["by_word"]
            return self.picked(index_dict)

    first = Picks(lambda indexes: {np.int64(0), max(indexes["by_word"].get_row_group_indexes("w1"))})
    assert ids(url, rowgroup_selector=first) == of_groups([0, 7])
    for picked in ({9}, {-1}, {"0"}, [0.5]):
        with pytest.raises(InvalidArgumentError, match="rowgroup_selector must pick row groups below 9, the number in"):
            make_reader(url, rowgroup_selector=Picks(lambda _, picked=picked: picked))
    with pytest.raises(TransformError, match="selector raised ZeroDivisionError"):
        make_reader(url, rowgroup_selector=Picks(lambda _: 1 / 0))
    for selector in (Picks(None, "by_word"), Picks(None, [7]), Picks, 7):
        with pytest.raises(
            InvalidArgumentError,
            match=r"selector must return a list of names|must be one of petastore\.selectors",
        ):
            make_reader(url, rowgroup_selector=selector)  # type: ignore[arg-type]


def test_indexes_written_by_petastorm_select_the_right_row_groups(fixtures_root: Path) -> None:
    folder = fixtures_root / "petastorm-0.13.1" / "Meadow"
    dataset = open_dataset(folder)
    assert sorted(get_row_group_indexes(dataset)) == ["by_id", "has_title"]
    files = [pq.ParquetFile(path) for path in sorted(folder.rglob("*.parquet"))]
    tables: list[pa.Table] = [file.read_row_group(number) for file in files for number in range(file.num_row_groups)]
    groups = [table["id"].to_pylist() for table in tables]
    wanted = [groups[3][0], groups[-1][-1]]
    with make_reader(folder, ["id"], rowgroup_selector=SingleIndexSelector("by_id", wanted)) as reader:
        assert sorted(int(row.id) for row in reader) == sorted([*groups[3], *groups[-1]])
    titled = [table["id"].to_pylist() for table in tables if table["title"].null_count < len(table)]
    with make_reader(folder, ["id"], rowgroup_selector=SingleIndexSelector("has_title", ["any"])) as reader:
        assert sorted(int(row.id) for row in reader) == sorted(number for group in titled for number in group)


@pytest.mark.parametrize("release", ["0.5.1", "0.7.6"])
def test_indexes_of_old_petastorm_releases_select_row_groups(fixtures_root: Path, tmp_path: Path, release: str) -> None:
    """The fixtures have one of ten files; the test copies it as the others, since only row group numbers matter."""
    folder = tmp_path / release
    shutil.copytree(fixtures_root / "petastorm-legacy" / release, folder)
    with pytest.raises(DatasetChangedError, match=r"indexes of Petastorm are stale.* has 0 now"):
        get_row_group_indexes(open_dataset(folder))
    kept = min(folder.rglob("*.parquet"))
    counts = json.loads(pq.read_metadata(folder / "_common_metadata").metadata[COUNTS])
    for path in counts.keys() - {str(kept.relative_to(folder))}:
        (folder / path).parent.mkdir()
        shutil.copy(kept, folder / path)
    dataset = open_dataset(folder)
    (group,) = get_row_group_indexes(dataset)["id"].get_row_group_indexes(42)
    selector = IntersectIndexSelector(
        [SingleIndexSelector("id", [42]), SingleIndexSelector("sensor_name", ["test_sensor"])]
    )
    with make_reader(folder, ["partition_key"], rowgroup_selector=selector) as reader:
        assert {str(row.partition_key) for row in reader} == {"p_4"}
    assert dataset.inventory.files[dataset.inventory.file[group]].path == sorted(counts)[4]


def test_stale_petastorm_indexes_raise(fixtures_root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "Meadow"
    shutil.copytree(fixtures_root / "petastorm-0.13.1" / "Meadow", folder)
    path = min(folder.rglob("*.parquet"))
    pq.write_table(pq.ParquetFile(path).read(), path, row_group_size=1)
    with pytest.raises(DatasetChangedError, match="indexes of Petastorm are stale"):
        make_reader(folder, rowgroup_selector=SingleIndexSelector("by_id", [1]))
    build_rowgroup_index(str(folder), indexers=[SingleFieldIndexer("by_id", "id")])
    with make_reader(folder, ["id"], rowgroup_selector=SingleIndexSelector("by_id", [1])) as reader:
        assert 1 in [int(row.id) for row in reader]
    with pytest.raises((DatasetChangedError, MetadataError)):
        make_reader(folder, rowgroup_selector=SingleIndexSelector("has_title", [1]))
