"""Checks of values: nulls, dtypes, ragged lists, column names and validation."""

from __future__ import annotations

import datetime as dt
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from .data import petastorm, written


def _columns(url: str, **asked: Any) -> dict[str, Any]:
    """Return the columns of a dataset with one row group, from the batch reader."""
    with petastorm().make_batch_reader(url, reader_pool_type="dummy", **asked) as reader:
        return dict(next(iter(reader))._asdict())


def _rows(url: str, **asked: Any) -> list[Any]:
    with petastorm().make_reader(url, reader_pool_type="dummy", shuffle_row_groups=False, **asked) as reader:
        return list(reader)


def _missing(column: Any) -> list[bool]:
    gone = np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else [value is None for value in column]
    return [bool(value) for value in gone]


def missing_text_stays_missing(folder: Path) -> None:
    """Petastorm's batches contain the text 'None' instead."""
    column = _columns(written(folder, {"word": ["one", None, "two"]}))["word"]
    assert _missing(column) == [False, True, False], f"the column is {column!r}"


def integers_with_missing_ones_stay_integers(folder: Path) -> None:
    """Petastorm's batches contain floats, with NaN for null."""
    large = 2**53 + 1
    column = _columns(written(folder, {"count": [large, None, 7]}))["count"]
    assert column.dtype.kind == "i", f"the column is {column!r}"
    assert _missing(column) == [False, True, False]
    assert int(column[0]) == large


def missing_times_are_none(folder: Path) -> None:
    """Petastorm's row reader fails for null times."""
    times = pa.array([dt.datetime(2026, 1, 1), None], pa.timestamp("us"))  # noqa: DTZ001 - without a zone on purpose
    rows = _rows(written(folder, {"at": times}))
    assert rows[0].at == np.datetime64("2026-01-01")
    assert rows[1].at is None


UNUSUAL = {
    "uint16": pa.array([1, 2], pa.uint16()),
    "uint32": pa.array([1, 2], pa.uint32()),
    "uint64": pa.array([1, 2], pa.uint64()),
    "large_string": pa.array(["a", "b"], pa.large_string()),
    "large_binary": pa.array([b"a", b"b"], pa.large_binary()),
    "fixed_size_list": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "list of lists": pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
    "struct": pa.array([{"x": 1}, {"x": 2}]),
    "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    "time": pa.array([dt.time(1), dt.time(2)], pa.time64("us")),
}


def columns_of_all_these_types_are_there(folder: Path) -> None:
    """Petastorm omits columns of these types, with a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        columns = _columns(written(folder, {"id": [1, 2], **UNUSUAL}))
    lacking = sorted(UNUSUAL.keys() - columns.keys())
    assert lacking == [], f"there is no {', '.join(lacking)}"
    assert columns["uint64"].tolist() == [1, 2]
    assert np.asarray(columns["fixed_size_list"]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert list(columns["struct"]) == [{"x": 1}, {"x": 2}]


def lists_of_different_lengths_are_arrays_of_different_lengths(folder: Path) -> None:
    """Petastorm's batch reader fails for ragged lists."""
    columns = _columns(written(folder, {"tags": [[1, 2, 3], [4], [5, 6]]}))
    assert [np.asarray(tags).tolist() for tags in columns["tags"]] == [[1, 2, 3], [4], [5, 6]]


def columns_may_have_any_name(folder: Path) -> None:
    """Petastorm fails for names that are not identifiers."""
    (row,) = _rows(written(folder, {"a-b": [1], "class": [2], "id": [3]}))
    assert row.id == 3
    assert [int(value) for value in row] == [1, 2, 3]


def _refuses_to_encode(field: Any, value: Any) -> bool:
    try:
        field.codec.encode(field, value)
    except ValueError:
        return True
    return False


def an_empty_array_is_not_one_of_any_shape(folder: Path) -> None:
    """In Petastorm, a dimension of 0 matches every declared size."""
    field_type = petastorm("petastorm.unischema").UnischemaField
    field = field_type("xy", np.float32, (2, 3), petastorm("petastorm.codecs").NdarrayCodec(), False)
    assert _refuses_to_encode(field, np.zeros((2, 4), np.float32))
    assert _refuses_to_encode(field, np.zeros((0, 3), np.float32)), "(0, 3) was written as (2, 3)"


def scalars_are_not_cut_off(folder: Path) -> None:
    """Petastorm stores 3.7 as 3 in an integer field."""
    from pyspark.sql.types import IntegerType

    codec = petastorm("petastorm.codecs").ScalarCodec(IntegerType())
    field = petastorm("petastorm.unischema").UnischemaField("count", np.int32, (), codec, False)
    assert int(codec.encode(field, np.int32(3))) == 3
    assert _refuses_to_encode(field, 3.7), f"3.7 was written as {codec.encode(field, 3.7)}"
