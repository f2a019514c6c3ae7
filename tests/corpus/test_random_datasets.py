"""Tests of random datasets: batches, rows and tensors, shuffled, filtered or resumed, equal pyarrow's or raise."""

from __future__ import annotations

import contextlib
import os
import random
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import petastore
from petastore.errors import PetastoreError
from petastore.expressions import col
from petastore.schema import UnischemaField
from tests.arrow_values import of_arrow, of_petastore
from tests.corpus.random_datasets import write_dataset_of
from tests.corpus.reading import WAYS, in_nanoseconds, in_tensors

SEEDS = range(*map(int, os.environ.get("PETASTORE_SEEDS", "0:100").split(":")))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_parquet_datasets_read_like_pyarrow_or_raise(tmp_path: Path, seed: int) -> None:
    try:
        tables = write_dataset_of(seed, tmp_path)
        table = pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowException, OSError):
        with contextlib.suppress(PetastoreError):  # pyarrow cannot read or concatenate what it wrote
            for way in WAYS.values():
                way(tmp_path, None)
        return
    expected = {name: of_arrow(table.column(name)) for name in table.column_names}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "none of the .* rows")
        check_in_order(tmp_path, expected)
        check_shuffled_and_resumed(tmp_path, expected, seed)
        check_filtered(tmp_path, expected, table, random.Random(seed))  # noqa: S311


def check_in_order(path: Path, expected: dict[str, list[Any]]) -> None:
    fields = petastore.open_dataset(path).schema.fields
    assert set(fields) == set(expected)
    for way, read in WAYS.items():
        found = read(path, None)
        for name, values in expected.items():
            field, wanted, given = fields[name], values, found[name]
            if way == "tensors" and not field.dtype.hasobject:
                wanted = [in_nanoseconds(in_tensors(value, field)) for value in values]
            elif field.shape:
                wanted, given = without_lists_of_nulls(wanted), without_lists_of_nulls(given)
            assert given == wanted, (way, name, field)


def comparable(row: dict[str, Any], fields: Mapping[str, UnischemaField]) -> dict[str, Any]:
    return {name: without_lists_of_nulls(value) if fields[name].shape else value for name, value in row.items()}


def without_lists_of_nulls(value: Any) -> Any:
    """Replace lists that contain only nulls with None, because arrays do not distinguish the two."""
    if not isinstance(value, list):
        return value
    items = [without_lists_of_nulls(item) for item in value]
    return None if items and all(item is None for item in items) else items


def rows_of(batches: Any) -> list[dict[str, Any]]:
    found = []
    for batch in batches:
        columns = {name: of_petastore(batch[name]) for name in batch}
        found += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return found


def check_shuffled_and_resumed(path: Path, expected: dict[str, list[Any]], seed: int) -> None:
    rows = {row[0]: dict(zip(expected, row, strict=True)) for row in zip(*expected.values(), strict=True)}
    rows = {row["id"]: row for row in rows.values()}
    with petastore.make_batch_reader(path, shuffle_rows=True, seed=seed) as reader:
        batches = reader.iter_batches(5)
        found, state = rows_of([next(batches)]), reader.state_dict()
        found += rows_of(batches)
    assert sorted(row["id"] for row in found) == sorted(rows)
    fields = petastore.open_dataset(path).schema.fields
    for row in found:
        assert comparable(row, fields) == comparable(rows[row["id"]], fields)
    with petastore.make_batch_reader(path, shuffle_rows=True, seed=seed) as reader:
        reader.load_state_dict(state)
        assert rows_of(reader.iter_batches(5)) == found[5:]


def check_filtered(path: Path, expected: dict[str, list[Any]], table: pa.Table, draw: random.Random) -> None:
    for field in petastore.open_dataset(path).schema:
        column = table.column(field.name)
        for expression, mask in filters_of(field.name, column, draw):
            wanted = [number for number, there in zip(expected["id"], mask.to_pylist(), strict=True) if there]
            try:
                with petastore.make_batch_reader(
                    path, ["id"], filters=expression, filter_cache=False, shuffle_row_groups=False
                ) as reader:
                    found = [row["id"] for row in rows_of(reader.iter_batches(7))]
            except petastore.errors.InvalidArgumentError as problem:
                assert "filters must" in str(problem)  # noqa: PT017
                continue
            assert found == wanted, expression


def filters_of(name: str, column: pa.ChunkedArray, draw: random.Random) -> list[tuple[Any, Any]]:
    found = [(col(name).is_null(), pc.is_null(column))]
    kind, types = column.type, pa.types
    simple = types.is_primitive(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_decimal(kind)
    if not simple or types.is_duration(kind) or types.is_time(kind) or types.is_float16(kind) or types.is_decimal(kind):
        return found
    there = [value for value in column.drop_null() if value.is_valid]
    if not there:
        return found
    scalar = draw.choice(there)
    value = scalar.as_py()
    if types.is_timestamp(kind):
        value = np.datetime64(scalar.value, kind.unit)
    for operator, compute in (("__eq__", pc.equal), ("__lt__", pc.less), ("__ge__", pc.greater_equal)):
        found.append((getattr(col(name), operator)(value), pc.fill_null(compute(column, scalar), False)))
    return found
