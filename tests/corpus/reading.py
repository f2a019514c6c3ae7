"""Read a Parquet file as batches, rows and torch tensors, and compare each value with pyarrow's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import petastore
from petastore.adapters.torch import DataLoader
from petastore.schema import UnischemaField
from tests.arrow_values import of_arrow, of_petastore


def check_equal(path: Path, way: str, table: pa.Table, columns: list[str] | None = None) -> None:
    """Raise unless reading as `way` gives the values of a table; `columns` selects columns, None selects all."""
    expected = {column: of_arrow(table.column(column)) for column in table.column_names}
    if way == "tensors":
        fields = petastore.open_dataset(str(path)).schema.fields
        expected = {
            column: values
            if has_dicts(values)
            else [in_nanoseconds(in_tensors(value, fields[column])) for value in values]
            for column, values in expected.items()
        }
    found = WAYS[way](path, columns)
    assert list(found) == table.column_names
    for column in found:
        assert found[column] == expected[column], column


def in_tensors(value: Any, field: UnischemaField) -> Any:
    return with_zeros(value, field) if has_numbers_inside(field) else value


def batches(path: Path, columns: list[str] | None) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    with petastore.make_batch_reader(str(path), columns, shuffle_row_groups=False) as reader:
        found = {name: [] for name in reader.schema.fields}
        for batch in reader:
            for name, values in zip(found, batch, strict=True):
                found[name] += of_petastore(values)
    return found


def rows(path: Path, columns: list[str] | None) -> dict[str, list[Any]]:
    with petastore.make_reader(str(path), columns, shuffle_row_groups=False) as reader:
        found: dict[str, list[Any]] = {name: [] for name in reader.schema.fields}
        for row in reader:
            for name, value in zip(found, row, strict=True):
                found[name].append(of_petastore(value))
    return found


def tensors(path: Path, columns: list[str] | None) -> dict[str, list[Any]]:
    with petastore.make_batch_reader(str(path), columns, shuffle_row_groups=False) as reader:
        fields = {field.name: field for field in reader.schema}
        masked = {
            name for name, field in fields.items() if field.nullable and not field.dtype.hasobject and field.is_scalar
        }
        nulls = dict.fromkeys(masked, "mask") | {name: 0 for name, field in fields.items() if has_numbers_inside(field)}
        found: dict[str, list[Any]] = {name: [] for name in fields}
        for batch in DataLoader(reader, batch_size=1000, nulls=nulls, ragged="list"):
            for name in fields:
                there = batch[f"{name}_valid"].tolist() if name in masked else itertools.repeat(True)
                assert isinstance(batch[name], torch.Tensor) == (
                    fields[name].is_fixed and not fields[name].dtype.hasobject
                )
                values = [of_tensor(value, fields[name].dtype) for value in batch[name]]
                found[name] += [value if is_there else None for value, is_there in zip(values, there, strict=False)]
    return found


def of_tensor(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, torch.Tensor):
        counts = value.numpy()
        if dtype.kind in "mM":
            counts = counts.view(f"{dtype.kind}8[ns]")
        return of_petastore(counts[()] if counts.ndim == 0 else counts)
    if isinstance(value, list):
        return [of_tensor(item, dtype) for item in value]
    return of_petastore(value)


def has_numbers_inside(field: UnischemaField) -> bool:
    return bool(field.shape) and not field.dtype.hasobject


def with_zeros(value: Any, field: UnischemaField, depth: int = 0) -> Any:
    """Replace nulls as `nulls=0` does: zero for null numbers, and empty lists for null lists of variable length."""
    if depth == len(field.shape):
        return of_petastore(np.zeros((), field.dtype)[()]) if value is None else value
    size = field.shape[depth]
    items = value if value is not None else [None] * (size or 0)
    return [with_zeros(item, field, depth + 1) for item in items]


def in_nanoseconds(value: Any) -> Any:
    """Convert times to nanoseconds, as in tensors; other values are unchanged."""
    if isinstance(value, tuple) and len(value) == 3:
        kind, unit, count = value
        return kind, "ns", count * {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    return [in_nanoseconds(one) for one in value] if isinstance(value, list) else value


WAYS: dict[str, Callable[[Path, list[str] | None], dict[str, list[Any]]]] = {
    "batches": batches,
    "rows": rows,
    "tensors": tensors,
}


def has_dicts(values: list[Any]) -> bool:
    return any(isinstance(value, dict) for value in values)
