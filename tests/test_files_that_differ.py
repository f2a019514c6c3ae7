"""Tests of files with different schemas: readers return the values of `pyarrow.concat_tables`, or raise an error."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import (
    NGram,
    Unischema,
    UnischemaField,
    col,
    make_batch_reader,
    make_mixed_reader,
    make_reader,
    open_dataset,
    write_dataset,
)
from petastore.adapters.torch import DataLoader
from petastore.codecs import NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError, SchemaError
from petastore.readers.random_access import RandomAccess
from petastore.writers.generate import generate_metadata

ROWS = 4
INTS, TEXT, WORDS = [1, 2, None, 4], ["a", None, "c", "dd"], ["x", "y", "z", "zz"]
VECTORS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
STAMPS = [0, 1, None, 10**6]
CATEGORIES = pa.dictionary(pa.int32(), pa.string())


def decimals(precision: int, scale: int) -> pa.Array:
    return pa.array([Decimal("1.5"), Decimal(2), None, Decimal("0.25")], pa.decimal128(precision, scale))


def structs(*names: str) -> pa.Array:
    return pa.array([dict.fromkeys(names, 1), None, dict.fromkeys(names, 2), dict.fromkeys(names)])


PAIRS: Mapping[str, tuple[Any, Any]] = {
    "int8, int64": (pa.array(INTS, pa.int8()), pa.array(INTS, pa.int64())),
    "int32, int64": (pa.array(INTS, pa.int32()), pa.array([2**60, 2, 3, 4], pa.int64())),
    "uint8, int16": (pa.array([255, 1, None, 3], pa.uint8()), pa.array([-1, 1, 2, 3], pa.int16())),
    "uint32, int32": (pa.array([2**32 - 1] * 4, pa.uint32()), pa.array([-1, None, 2, 3], pa.int32())),
    "uint32, uint64": (pa.array([1] * 4, pa.uint32()), pa.array([2**64 - 1, None, 1, 2], pa.uint64())),
    "float, double": (pa.array([0.1, None, 1, 2], pa.float32()), pa.array([0.1, 1, 2, 3], pa.float64())),
    "int32, double": (pa.array([2**31 - 1, 1, 2, 3], pa.int32()), pa.array([0.1, None, 2, 3], pa.float64())),
    "int16, float": (pa.array([32767, 1, 2, 3], pa.int16()), pa.array([0.5, None, 2, 3], pa.float32())),
    "string, large_string": (pa.array(TEXT), pa.array(TEXT, pa.large_string())),
    "string, string_view": (pa.array(TEXT), pa.array(TEXT, pa.string_view())),
    "string, category": (pa.array(TEXT), pa.array(TEXT, CATEGORIES)),
    "category, large_string": (pa.array(TEXT, CATEGORIES), pa.array(TEXT, pa.large_string())),
    "category int8, int32": (pa.array(TEXT, pa.dictionary(pa.int8(), pa.string())), pa.array(WORDS, CATEGORIES)),
    "binary, large_binary": (pa.array([b"a", None, b"", b"b"]), pa.array([b"c"] * 4, pa.large_binary())),
    "binary, fixed binary": (pa.array([b"a", None, b"", b"b"]), pa.array([b"cc"] * 4, pa.binary(2))),
    "list, large_list": (pa.array([[1], [2, 3], [], [4]]), pa.array([[5], [], [6], [7]], pa.large_list(pa.int64()))),
    "list items": (pa.array([[1], [2, 3], [], [4]], pa.list_(pa.int32())), pa.array([[5], [], [6], [7]])),
    "fixed list, list": (pa.array(VECTORS, pa.list_(pa.float32(), 2)), pa.array(VECTORS, pa.list_(pa.float32()))),
    "fixed list items": (pa.array(VECTORS, pa.list_(pa.float32(), 2)), pa.array(VECTORS, pa.list_(pa.float64(), 2))),
    "timestamp s, us": (pa.array(STAMPS, pa.timestamp("ms")), pa.array(STAMPS, pa.timestamp("us"))),
    "timestamp us, ns": (pa.array(STAMPS, pa.timestamp("us", "UTC")), pa.array(STAMPS, pa.timestamp("ns", "UTC"))),
    "time32, time64": (pa.array([1, 2, None, 3], pa.time32("ms")), pa.array([1, 2, 3, 4], pa.time64("us"))),
    "duration ms, us": (pa.array(STAMPS, pa.duration("ms")), pa.array(STAMPS, pa.duration("us"))),
    "decimal precision": (decimals(7, 5), decimals(8, 5)),
    "decimal scale": (decimals(7, 5), decimals(7, 2)),
    "all null, string": (pa.nulls(ROWS), pa.array(TEXT)),
    "all null, int": (pa.nulls(ROWS), pa.array(INTS)),
    "missing, int": (None, pa.array(INTS)),
    "string, missing": (pa.array(TEXT), None),
    "list, missing": (pa.array([[1], [2, 3], [], [4]]), None),
    "struct, missing": (structs("a"), None),
    "struct member added": (structs("a"), structs("a", "b")),
    "struct member order": (structs("b", "a"), structs("a", "b")),
    "struct member type": (pa.array([{"a": 1}] * 4, pa.struct({"a": pa.int32()})), structs("a")),
    "list of structs": (pa.array([[{"a": 1}], [], None, []]), pa.array([[{"a": 1, "b": 2}], [], None, []])),
    "int64, double": (pa.array(INTS), pa.array([1.0, None, 2, 3])),
    "string, json": (
        pa.array(TEXT),
        pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", None, "[]", "{}"])),
    ),
    "list, list view": (pa.array([[1], None, [], [4]]), pa.array([[5], None, [6, None], []], pa.list_view(pa.int64()))),
    "map items": (
        pa.array([[("k", 1)], [], None, []], pa.map_(pa.string(), pa.int32())),
        pa.array([[("k", 2)], [], None, []], pa.map_(pa.string(), pa.int64())),
    ),
}

CONFLICTS: Mapping[str, tuple[Any, Any]] = {
    "uint64, int64": (pa.array([1] * 4, pa.uint64()), pa.array(INTS)),
    "int, string": (pa.array(INTS), pa.array(TEXT)),
    "string, binary": (pa.array(TEXT), pa.array([b"a"] * 4)),
    "time zones": (pa.array(STAMPS, pa.timestamp("us")), pa.array(STAMPS, pa.timestamp("us", "UTC"))),
    "bool, int": (pa.array([True] * 4), pa.array(INTS)),
    "list, int": (pa.array([[1]] * 4), pa.array(INTS)),
    "date, timestamp": (pa.array([1] * 4, pa.date32()), pa.array(STAMPS, pa.timestamp("us"))),
}


def write_files(folder: Path, pair: tuple[Any, Any], rows: int = ROWS) -> list[pa.Table]:
    """Write two files of one dataset, each with several row groups and a different column order."""
    tables = []
    for number, cells in enumerate(pair):
        ids = pa.array(range(number * rows, (number + 1) * rows))
        columns = {"id": ids} if cells is None else {"id": ids, "x": cells}
        tables.append(pa.table(columns if number else dict(reversed(columns.items()))))
        pq.write_table(tables[-1], folder / f"{number}.parquet", row_group_size=3)
    return tables


def expected_cells(tables: list[pa.Table]) -> list[Any]:
    """Return the cells that pyarrow reads; for pairs without a common type in pyarrow, the cells of each file."""
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
        return [_plain(cell) for cell in joined.column("x").to_pylist()]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        cells = [cell for table in tables for cell in table.column("x").to_pylist()]
        members = dict.fromkeys(name for cell in cells if isinstance(cell, dict) for name in cell)
        return [
            _plain({name: cell.get(name) for name in members} if isinstance(cell, dict) else cell) for cell in cells
        ]


def _plain(cell: Any) -> Any:
    """Return a cell as comparable Python values: times as integers of nanoseconds, arrays and pairs as lists."""
    if cell is None or cell is np.ma.masked or (isinstance(cell, (np.datetime64, np.timedelta64)) and np.isnat(cell)):
        return None
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        return int(cell.astype(f"{cell.dtype.str[1]}8[ns]").astype(np.int64))
    if hasattr(cell, "hour") or hasattr(cell, "total_seconds") or hasattr(cell, "nanosecond"):
        return _nanoseconds(cell)
    if isinstance(cell, dict):
        return {name: _plain(member) for name, member in sorted(cell.items())}
    if isinstance(cell, (list, tuple, np.ndarray)):
        return [_plain(item) for item in cell]
    return cell.item() if isinstance(cell, np.generic) else cell


def _nanoseconds(cell: Any) -> int:
    if hasattr(cell, "value"):  # pandas
        return int(cell.value)
    kind = pa.time64("us") if not hasattr(cell, "year") and hasattr(cell, "hour") else None
    scalar = pa.scalar(cell, kind) if kind else pa.scalar(cell)
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[scalar.type.unit]
    return int(scalar.cast(pa.int64()).as_py()) * scale


def read(batches: Any) -> list[tuple[int, Any]]:
    return [
        (int(number), _plain(cell)) for batch in batches for number, cell in zip(batch["id"], batch["x"], strict=True)
    ]


@pytest.fixture(params=PAIRS, ids=str)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return PAIRS[request.param]


@pytest.fixture(params=[False, True], ids=["footers", "manifest"])
def has_manifest(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_files_of_different_column_types_read_like_pyarrow_concat_tables(
    pair: tuple[Any, Any], has_manifest: bool, tmp_path: Path
) -> None:
    tables = write_files(tmp_path, pair)
    cells = dict(enumerate(expected_cells(tables)))
    if has_manifest:
        generate_metadata(tmp_path)
    ordered = list(cells.items())
    with make_batch_reader(tmp_path, shuffle_row_groups=False) as reader:
        assert read(reader.iter_batches(3)) == ordered
    dataset = open_dataset(tmp_path)
    assert [(int(row.id), _plain(row.x)) for row in dataset.head(8)] == ordered
    with make_reader(dataset, shuffle_row_groups=False) as rows:
        assert [(int(row.id), _plain(row.x)) for row in rows] == ordered

    with make_batch_reader(dataset, seed=3, shuffle_rows=True, num_epochs=2) as reader:
        shuffled = read(reader.iter_batches(3))
    assert [sorted(shuffled[epoch : epoch + 8]) == ordered for epoch in (0, 8)] == [True, True]
    with make_batch_reader(dataset, seed=3, shuffle_rows=True, num_epochs=2) as reader:
        batches = reader.iter_batches(3)
        first, state = read([next(batches), next(batches)]), reader.state_dict()
    with make_batch_reader(dataset, seed=3, shuffle_rows=True, num_epochs=2) as reader:
        reader.load_state_dict(state)
        assert first + read(reader.iter_batches(3)) == shuffled


@pytest.mark.parametrize(
    "name", [name for name in PAIRS if not {"list", "struct", "map"} & set(re.split(r"\W+", name))]
)
def test_filters_select_rows_of_files_with_different_column_types(
    name: str, has_manifest: bool, tmp_path: Path
) -> None:
    cells = dict(enumerate(expected_cells(write_files(tmp_path, PAIRS[name]))))
    if has_manifest:
        generate_metadata(tmp_path)
    dataset = open_dataset(tmp_path)
    with make_batch_reader(dataset, filters=col("x").is_null(), filter_cache=False, shuffle_row_groups=False) as nulls:
        assert read(nulls.iter_batches(8)) == [item for item in cells.items() if item[1] is None]
    for row in dataset.head(8)[::3]:
        if row.x is None:
            continue
        question = [("x", ">=", row.x)]
        with make_batch_reader(dataset, filters=question, filter_cache=False, shuffle_row_groups=False) as reader:
            least = _plain(row.x)
            expected = [item for item in cells.items() if item[1] is not None and item[1] >= least]
            assert read(reader.iter_batches(8)) == expected


@pytest.mark.parametrize("name", CONFLICTS)
def test_column_with_conflicting_types_raises_only_if_selected(name: str, has_manifest: bool, tmp_path: Path) -> None:
    write_files(tmp_path, CONFLICTS[name])
    if has_manifest:
        generate_metadata(tmp_path)
    with pytest.raises(
        SchemaError, match=r"column 'x' must have types that unify exactly, got .* in 1 file such as 0\.parquet and .*"
    ):
        make_batch_reader(tmp_path)
    with make_batch_reader(tmp_path, ["id"], shuffle_row_groups=False) as reader:
        assert [int(number) for batch in reader.iter_batches(3) for number in batch["id"]] == list(range(8))


def test_type_conflict_error_advises_other_columns_only_if_there_are_some(has_manifest: bool, tmp_path: Path) -> None:
    for number, values in enumerate((pa.array([1]), pa.array(["1"]))):
        pq.write_table(pa.table({"x": values}), tmp_path / f"{number}.parquet")
    if has_manifest:
        generate_metadata(tmp_path)
    with pytest.raises(SchemaError, match=r"Leave it out with schema_fields, or write these files again$"):
        make_batch_reader(tmp_path)


def test_type_conflict_error_advises_a_declared_type_if_one_works(tmp_path: Path) -> None:
    zones = [pa.timestamp("us", tz=zone) for zone in (None, "UTC")]
    write_files(tmp_path, (pa.array([1] * 4, zones[0]), pa.array([2] * 4, zones[1])))
    with pytest.raises(SchemaError, match=r"declare its type with schema=Unischema.*names among 'id'$"):
        make_batch_reader(tmp_path)
    schema = Unischema("s", [UnischemaField("x", "datetime64[us]", nullable=True)])
    with make_batch_reader(tmp_path, schema=schema) as reader:
        assert sum(len(batch.x) for batch in reader) == 8


def test_int64_and_double_are_read_as_a_declared_type(has_manifest: bool, tmp_path: Path) -> None:
    write_files(tmp_path, PAIRS["int64, double"])
    if has_manifest:
        generate_metadata(tmp_path)
    schema = Unischema("s", [UnischemaField("id", "int64"), UnischemaField("x", "float64", nullable=True)])
    with make_batch_reader(tmp_path, schema=schema, shuffle_row_groups=False) as reader:
        assert [cell for _, cell in read(reader.iter_batches(3))] == [1, 2, None, 4, 1, None, 2, 3]
    whole = Unischema("s", [UnischemaField("x", "int64", nullable=True)])
    assert [_plain(row.x) for row in open_dataset(tmp_path, schema=whole).head(8)] == [1, 2, None, 4, 1, None, 2, 3]


@pytest.mark.parametrize("filters", [None, [("x", "<", 2.0**60)], [("x", ">", 2.0**60)]])
def test_int64_value_that_does_not_fit_in_double_raises(filters: Any, tmp_path: Path) -> None:
    write_files(tmp_path, (pa.array([2**60 + 1] * 4), pa.array([0.5] * 4)))
    schema = Unischema("s", [UnischemaField("x", "float64", nullable=True)])
    for option in ("union", schema):
        with (
            pytest.raises(
                DecodeError,
                match=r"values must fit in double, the type of the column in the dataset, got a value of int64",
            ),
            make_batch_reader(tmp_path, schema=option, filters=filters, shuffle_row_groups=False) as reader,
        ):
            next(iter(reader))


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2)])
@pytest.mark.parametrize("value", [[1.5], ["a"], [[1]]])
@pytest.mark.parametrize("outer", ["column", "struct", "list"])
def test_fixed_size_list_of_another_length_than_in_the_first_file_raises(
    outer: str, value: list[Any], sizes: tuple[int, int], tmp_path: Path
) -> None:
    for number, size in enumerate(sizes):
        inner = pa.array([value * size] * 6, pa.list_(pa.array(value).type, size))
        wrapped = {
            "column": lambda cells: cells,
            "struct": lambda cells: pa.StructArray.from_arrays([cells], ["a"]),
            "list": lambda cells: pa.ListArray.from_arrays([0, 4, 6], cells),
        }[outer](inner)
        pq.write_table(pa.table({"x": wrapped}), tmp_path / f"{number}.parquet")
    with pytest.raises(DecodeError, match=f"each list must have {sizes[0]} items, got {sizes[1]}") as failure:
        open_dataset(tmp_path, schema="first").to_arrow()
    assert (failure.value.column, failure.value.file, failure.value.row_group) == ("x", "1.parquet", 0)
    for make in (make_reader, make_batch_reader):
        with pytest.raises(DecodeError, match="each list must have"), make(tmp_path, schema="first") as reader:
            list(reader)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2)])
def test_fixed_size_bytes_of_another_length_than_in_the_first_file_raise(
    sizes: tuple[int, int], tmp_path: Path
) -> None:
    for number, size in enumerate(sizes):
        cells = pa.array([{"a": [b"a" * size]}], pa.struct({"a": pa.list_(pa.binary(size))}))
        pq.write_table(pa.table({"x": cells}), tmp_path / f"{number}.parquet")
    with pytest.raises(DecodeError, match="values must fit in"):
        open_dataset(tmp_path, schema="first").to_arrow()


def test_schema_of_an_open_dataset_is_accepted_as_schema_option(pair: tuple[Any, Any], tmp_path: Path) -> None:
    cells = expected_cells(write_files(tmp_path, pair))
    with make_batch_reader(tmp_path, schema=open_dataset(tmp_path).schema, shuffle_row_groups=False) as reader:
        assert read(reader.iter_batches(3)) == list(enumerate(cells))


@pytest.mark.parametrize(("option", "names"), [("union", ["id", "x", "y"]), ("common", ["id"]), ("first", ["x", "id"])])
def test_schema_option_selects_columns(option: Any, names: list[str], has_manifest: bool, tmp_path: Path) -> None:
    write_files(tmp_path, (pa.array(INTS), None))
    table = pq.read_table(tmp_path / "1.parquet")
    pq.write_table(table.append_column("y", pa.array(TEXT)), tmp_path / "1.parquet")
    if has_manifest:
        generate_metadata(tmp_path)
    assert sorted(open_dataset(tmp_path, schema=option).schema.fields) == sorted(names)
    with make_batch_reader(tmp_path, schema=option, shuffle_row_groups=False) as reader:
        assert sorted(next(iter(reader))._fields) == sorted(names)


def test_schema_option_is_rejected_with_an_open_dataset(tmp_path: Path) -> None:
    write_files(tmp_path, (pa.array(INTS), None))
    with pytest.raises(InvalidArgumentError, match="schema must be left out with an open Dataset"):
        make_batch_reader(open_dataset(tmp_path), schema="common")


def test_random_access_reads_files_with_different_column_types(pair: tuple[Any, Any], tmp_path: Path) -> None:
    cells = expected_cells(write_files(tmp_path, pair))
    rows = RandomAccess(open_dataset(tmp_path))
    wanted = [7, 0, 3, 4]
    assert [_plain(cell) for cell in rows.take(wanted)["x"]] == [cells[number] for number in wanted]


def test_windows_span_files_with_different_column_types(tmp_path: Path) -> None:
    cells = expected_cells(write_files(tmp_path, (pa.array(INTS, pa.int32()), pa.array(INTS, pa.int64()))))
    window = NGram({0: ["id", "x"], 1: ["x"]}, delta_threshold=1, timestamp_field="id")
    with make_reader(tmp_path, window, shuffle_row_groups=False) as reader:
        assert [(_plain(each[0].x), _plain(each[1].x)) for each in reader] == list(itertools.pairwise(cells))


def test_mixture_reads_datasets_with_different_column_types_between_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        cells = expected_cells(write_files(tmp_path / name, (pa.array(INTS, pa.int32()), pa.array(INTS, pa.int64()))))
    urls = [str(tmp_path / "one"), str(tmp_path / "two")]
    with make_mixed_reader(urls, [1, 1], seed=1) as reader:
        batches = list(reader.iter_batches(4))
    assert all(batch["x"].dtype == batches[0]["x"].dtype for batch in batches)
    assert {_plain(cell) for batch in batches for cell in batch["x"]} <= set(cells)


@pytest.mark.parametrize(
    ("one", "other", "dtype"),
    [
        (pa.array(INTS, pa.int32()), pa.array(INTS, pa.int64()), "int64"),
        (pa.array(INTS, pa.int8()), pa.array([0.5, None, 1, 2], pa.float64()), "float64"),
        (pa.array(VECTORS, pa.list_(pa.float32(), 2)), pa.array(VECTORS, pa.list_(pa.float64())), "float64"),
    ],
)
def test_mixture_sources_with_different_column_types_get_the_unified_type(
    one: pa.Array, other: pa.Array, dtype: str, tmp_path: Path
) -> None:
    urls = []
    for number, cells in enumerate([one, other]):
        urls.append(str(tmp_path / str(number)))
        Path(urls[-1]).mkdir()
        pq.write_table(pa.table({"id": range(ROWS), "x": cells}), f"{urls[-1]}/a.parquet")
    generate_metadata(urls[1])

    def opened() -> Any:
        return make_mixed_reader(urls, [1, 1], seed=1, shuffle_row_groups=False, num_epochs=3)

    with opened() as reader:
        batches = list(reader.iter_batches(4))
    everything = read(batches)
    expected = [(row, _plain(cell)) for cells in (one, other) for row, cell in enumerate(cells.to_pylist())]
    assert all(row in expected for row in everything)
    assert all(row in everything for row in expected)
    assert all(cell.dtype == dtype for batch in batches for cell in batch["x"] if cell is not np.ma.masked)
    with opened() as reader:
        first, state = read([next(reader.iter_batches(4))]), reader.state_dict()
    with opened() as reader:
        reader.load_state_dict(state)
        assert first + read(reader.iter_batches(4)) == everything


def test_mixture_of_sources_with_conflicting_column_types_raises(tmp_path: Path) -> None:
    urls = []
    for number, cells in enumerate(CONFLICTS["int, string"]):
        urls.append(str(tmp_path / str(number)))
        Path(urls[-1]).mkdir()
        pq.write_table(pa.table({"x": cells}), f"{urls[-1]}/a.parquet")
    with pytest.raises(
        SchemaError, match=r"sources must agree in field 'x', got int64 in .* and (str|large_string|string) in "
    ):
        make_mixed_reader(urls, [1, 1])


ONE = Unischema("s", [UnischemaField("id", "int64"), UnischemaField("v", "float32", (2,), NdarrayCodec(), True)])


def test_codec_field_missing_in_a_file_is_null(has_manifest: bool, tmp_path: Path) -> None:
    write_dataset(tmp_path, ONE, [{"id": 0, "v": np.ones(2, np.float32)}])
    pq.write_table(
        pa.table({"id": pa.array([1])}, pa.schema([pa.field("id", pa.int64(), nullable=False)])), tmp_path / "z.parquet"
    )
    if has_manifest:
        generate_metadata(tmp_path)
    else:
        (tmp_path / "_petastore" / "inventory.arrow").unlink()
    with make_reader(tmp_path, shuffle_row_groups=False) as reader:
        assert [None if row.v is None else row.v.tolist() for row in reader] == [[1.0, 1.0], None]
    write_dataset(tmp_path, ONE, [{"id": 2, "v": None}], mode="append")
    with make_reader(tmp_path, shuffle_row_groups=False) as reader:
        assert sorted((int(row.id), row.v is None) for row in reader) == [(0, False), (1, True), (2, True)]


def test_required_field_missing_in_a_file_is_rejected(tmp_path: Path) -> None:
    write_dataset(tmp_path, ONE, [{"id": 0, "v": None}])
    pq.write_table(pa.table({"v": pa.array([None], pa.binary())}), tmp_path / "z.parquet")
    (tmp_path / "_petastore" / "inventory.arrow").unlink()
    with pytest.raises(SchemaError, match=r"field 'id' must be nullable or stored in every file, got int64 in 1 file"):
        open_dataset(tmp_path)


def test_partition_directories_may_differ_in_depth_with_keys_in_files(tmp_path: Path) -> None:
    for number, (path, more) in enumerate([("k=1/l=2", {}), ("k=2", {"k": ["2"]}), ("k=3/l=x", {})]):
        (tmp_path / path).mkdir(parents=True)
        pq.write_table(pa.table({"id": [number], **more}), tmp_path / path / "a.parquet")
    for _ in range(2):
        rows = open_dataset(tmp_path).head()
        assert [(int(row.id), int(row.k), row.l) for row in rows] == [(0, 1, "2"), (1, 2, None), (2, 3, "x")]
        generate_metadata(tmp_path)


def test_column_missing_in_a_file_counts_as_null_in_the_torch_dataloader(tmp_path: Path) -> None:
    write_files(tmp_path, (pa.array([1, 2, 3, 4]), None))
    with (
        make_batch_reader(tmp_path, shuffle_row_groups=False) as reader,
        pytest.raises(DecodeError, match=r"got 'error' and 3 of 3 values missing"),
    ):
        next(iter(DataLoader(reader, batch_size=2)))


def test_append_may_add_or_omit_nullable_fields(tmp_path: Path) -> None:
    fields = {name: UnischemaField(name, "int64", nullable=name != "id") for name in ("id", "a", "b", "c")}

    def append(*names: str) -> None:
        schema = Unischema("s", [fields[name] for name in names])
        number = open_dataset(tmp_path).inventory.num_rows if any(tmp_path.iterdir()) else 0
        write_dataset(tmp_path, schema, [dict.fromkeys(names, number)], mode="append")

    append("id", "a")
    append("id", "a", "b")
    append("id", "c")
    append("id", "a")
    assert list(open_dataset(tmp_path).schema) == list(fields.values())
    with make_reader(tmp_path, shuffle_row_groups=False) as reader:
        rows = [tuple(map(_plain, row)) for row in reader]
    assert rows == [(0, 0, None, None), (1, 1, 1, None), (2, None, None, 2), (3, 3, None, None)]
    with make_reader(tmp_path, filters=[("c", ">=", 0)], filter_cache=False) as reader:
        assert [int(row.id) for row in reader] == [2]
    write_dataset(
        tmp_path, Unischema("s", [*fields.values(), UnischemaField("d", "str", nullable=True)]), [], mode="append"
    )
    assert list(open_dataset(tmp_path).schema) == list(fields.values())
