"""Tests of `HostArrays`: batches become dicts of arrays, with nulls filled, times in nanoseconds, and padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.adapters.column_plans import HostArrays
from petastore.adapters.ragged import Padded
from petastore.codecs import NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError

SCHEMA = Unischema(
    "kinds",
    [
        UnischemaField("id", np.int64),
        UnischemaField("day", "datetime64[D]"),
        UnischemaField("word", np.str_),
        UnischemaField("maybe", np.float32, nullable=True),
        UnischemaField("free", np.int16, (None,), NdarrayCodec()),
    ],
)


def a_row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "day": np.datetime64(number, "D"),
        "word": f"w{number}",
        "maybe": None if number == 2 else np.float32(number),
        "free": np.arange(number, dtype=np.int16),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = Path(tmp_path_factory.mktemp("host")) / "data"
    petastore.write_dataset(str(folder), SCHEMA, map(a_row, range(4)))
    return str(folder)


def made(url: str, *fields: str, **options: Any) -> dict[str, Any]:
    """Return all rows as one dict of arrays."""
    with petastore.make_reader(url, schema_fields=list(fields), shuffle_row_groups=False) as reader:
        arrays = HostArrays(reader, **options)
        (batch,) = reader.iter_batches(4)
        return arrays(batch)


def test_numeric_columns_become_host_arrays_zero_copy(url: str) -> None:
    with petastore.make_reader(url, schema_fields=["id"], shuffle_row_groups=False) as reader:
        arrays = HostArrays(reader)
        (batch,) = reader.iter_batches(4)
        column = arrays(batch)["id"]
        assert column.dtype == np.int64
        assert np.shares_memory(column, batch["id"])


def test_times_become_nanoseconds_and_text_is_unchanged(url: str) -> None:
    found = made(url, "day", "word")
    assert found["day"].tolist() == [day * 86_400 * 10**9 for day in range(4)]
    assert found["word"].tolist() == ["w0", "w1", "w2", "w3"]


def test_missing_values_raise_without_a_fill_value(url: str) -> None:
    with pytest.raises(DecodeError, match="maybe"):
        made(url, "maybe")
    assert made(url, "maybe", nulls={"maybe": -1})["maybe"].tolist() == [0, 1, -1, 3]


def test_ragged_columns_are_lists_of_arrays_or_padded(url: str) -> None:
    assert [cell.tolist() for cell in made(url, "free")["free"]] == [[], [0], [0, 1], [0, 1, 2]]
    padded = made(url, "free", ragged={"free": Padded(-1)})
    assert padded["free"].tolist() == [[-1, -1, -1], [0, -1, -1], [0, 1, -1], [0, 1, 2]]
    assert padded["free_lengths"].tolist() == [0, 1, 2, 3]


def test_columns_to_be_padded_are_known_before_the_first_batch(url: str) -> None:
    with petastore.make_reader(url) as reader:
        assert HostArrays(reader, nulls="mask").padded == frozenset()
        assert HostArrays(reader, ragged="padded", nulls="mask").padded == {"free"}


@pytest.mark.parametrize(
    "options", [{"ragged": "dense"}, {"ragged": {"nowhere": "list"}}, {"nulls": {"nowhere": 0}}], ids=str
)
def test_invalid_ragged_or_nulls_options_raise_before_the_first_batch(url: str, options: Any) -> None:
    with petastore.make_reader(url) as reader, pytest.raises(InvalidArgumentError):
        HostArrays(reader, **options)


def test_valid_column_of_padded_batches_is_unchanged(url: str) -> None:
    with petastore.make_reader(url, schema_fields=["id"], last_batch="pad", shuffle_row_groups=False) as reader:
        arrays = HostArrays(reader)
        (batch,) = reader.iter_batches(6)
        assert arrays(batch)["valid"].tolist() == [True] * 4 + [False] * 2
