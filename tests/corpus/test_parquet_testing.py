"""The files that Apache keeps for testing readers: each value as Arrow has it, or a refusal that is written down here.

As batches, as rows and as torch tensors. A file or column that is not named below has to be read.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import petastore
from petastore.adapters.torch import DataLoader
from petastore.errors import DecodeError, MetadataError, PetastoreError, SchemaError
from tests.arrow_values import of_arrow, of_petastore

Refusal = tuple[type[PetastoreError], str]

FOLDER = Path(os.environ["PETASTORE_PARQUET_TESTING"])
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.suffix in (".parquet", ".encrypted"))

ENCRYPTED: Refusal = (MetadataError, "has an encrypted footer, and petastore reads no encrypted files")
SECRET: Refusal = (SchemaError, "is encrypted, and petastore reads no encrypted columns")
NULL_INSIDE: Refusal = (DecodeError, "a value inside the cell is null, and an array has no place for that")
RAGGED: Refusal = (DecodeError, "the lists inside the cell have different lengths, and an array is a rectangle")
INT96: Refusal = (DecodeError, "INT96 timestamps must be whole microseconds, .* got nanoseconds or a time out of range")

REFUSED: dict[str, Refusal] = {
    # Arrow reads none of these files either.
    "bad_data/ARROW-GH-41317.parquet": (DecodeError, "the data is damaged: Column .* expected length"),
    "bad_data/ARROW-GH-41321.parquet": (DecodeError, "the data is damaged: Invalid or corrupted bit_width 254"),
    "bad_data/ARROW-GH-45185.parquet": (DecodeError, "the data is damaged: The repetition level at the start"),
    "bad_data/ARROW-GH-47662.parquet": (DecodeError, "the data is damaged: Unexpected end of stream"),
    "bad_data/ARROW-RS-GH-6229-DICTHEADER.parquet": (DecodeError, "the data is damaged: Invalid column metadata"),
    "bad_data/ARROW-RS-GH-6229-LEVELS.parquet": (DecodeError, "the data is damaged: Number of decoded rep / def"),
    "bad_data/PARQUET-1481.parquet": (MetadataError, "Invalid physical column type: UNKNOWN"),
    "data/incorrect_map_schema.parquet": (MetadataError, "Arrow does not read: Map keys must be annotated as required"),
    "data/large_string_map.brotli.parquet": (SchemaError, "2,147,483,733 bytes of text inside its values .* 2 GiB"),
    **{name: ENCRYPTED for name in FILES if name.endswith(".encrypted") and "plaintext_footer" not in name},
    "data/aes256/encrypt_columns_plaintext_footer.parquet.encrypted": SECRET,
    "data/int96_from_spark.parquet": INT96,  # one time is of the year 290,000: the day overflowed when Spark wrote it
    # Arrow verifies no checksums unless it is asked to; their bytes are not those that were written.
    "data/datapage_v1-corrupt-checksum.parquet": (DecodeError, "CRC checksum verification failed"),
    "data/rle-dict-uncompressed-corrupt-checksum.parquet": (DecodeError, "CRC checksum verification failed"),
}
"""Files none of whose columns can be read."""

LEFT_OUT: dict[str, dict[str, Refusal]] = {
    "data/encrypt_columns_plaintext_footer.parquet.encrypted": {
        **dict.fromkeys(("float_field", "double_field"), SECRET),
        "int96_field": INT96,
    },
    # Lists become arrays of numbers or text. Those of these rows are none.
    "data/list_columns.parquet": {"int64_list": NULL_INSIDE, "utf8_list": NULL_INSIDE},
    "data/nested_lists.snappy.parquet": {"a": NULL_INSIDE},
    "data/nonnullable.impala.parquet": {"int_array_array": RAGGED},
    "data/nullable.impala.parquet": {"int_array": NULL_INSIDE, "int_array_Array": NULL_INSIDE},
}
"""Columns that cannot be read; the others of these files can."""


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
            name: "mask"
            for name, field in fields.items()
            if field.nullable and not field.dtype.hasobject and field.is_fixed
        }
        found: dict[str, list[Any]] = {name: [] for name in fields}
        for batch in DataLoader(reader, batch_size=1000, nulls=masked, ragged="list"):
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
    return of_petastore(value)


def in_nanoseconds(value: Any) -> Any:
    """Times as tensors have them; others as they are."""
    if isinstance(value, tuple) and len(value) == 3:
        kind, unit, count = value
        return kind, "ns", count * {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]
    return [in_nanoseconds(one) for one in value] if isinstance(value, list) else value


WAYS: dict[str, Callable[[Path, list[str] | None], dict[str, list[Any]]]] = {
    "batches": batches,
    "rows": rows,
    "tensors": tensors,
}


def test_the_files_are_there() -> None:
    assert {name.split("/")[0] for name in FILES} == {"data", "bad_data"}
    assert len(FILES) >= 70
    unknown = (REFUSED.keys() | LEFT_OUT.keys()) - set(FILES)
    assert not unknown


@pytest.mark.parametrize("name", FILES)
def test_each_value_is_arrows_or_the_refusal_is_one_that_we_know(name: str, subtests: pytest.Subtests) -> None:
    for way in WAYS:
        with subtests.test(way):
            check_values(name, way)


def check_values(name: str, way: str) -> None:
    path, read = FOLDER / name, WAYS[way]
    if name in REFUSED:
        refused(lambda: read(path, None), REFUSED[name])
        return
    file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us")  # as INT96 is read here
    left_out = LEFT_OUT.get(name, {})
    if left_out:
        refused(lambda: read(path, None), *left_out.values())
    for column, refusal in left_out.items():
        refused(lambda column=column: read(path, [column]), refusal)  # type: ignore[misc]
    columns = [column for column in file.schema_arrow.names if column not in left_out]
    if not columns:
        return
    table = file.read(columns=columns) if left_out else file.read()
    expected = {column: of_arrow(table.column(column)) for column in columns}
    if way == "tensors":
        expected = {
            column: values if has_dicts(values) else [in_nanoseconds(value) for value in values]
            for column, values in expected.items()
        }
    found = read(path, columns if left_out else None)
    assert list(found) == columns
    for column in columns:
        assert found[column] == expected[column], column


def has_dicts(values: list[Any]) -> bool:
    return any(isinstance(value, dict) for value in values)


def refused(call: Callable[[], Any], *refusals: Refusal) -> None:
    """It is refused in one of these ways."""
    with pytest.raises(tuple({kind for kind, _ in refusals})) as caught:
        call()
    assert any(isinstance(caught.value, kind) and re.search(words, str(caught.value)) for kind, words in refusals)
