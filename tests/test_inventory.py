"""Tests of `Inventory`: validation of its arguments, immutability, equality, fingerprint and pickling."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.inventory import DataFile, Inventory

ONE = Inventory(
    files=(DataFile("a.parquet", 100, "ab" * 16), DataFile("b.parquet", 50)),
    file=np.array([0, 0, 1], np.int32),
    ordinal=np.array([0, 1, 0], np.int32),
    rows=np.array([3, 0, 7]),
    stored_bytes=np.array([30, 0, 40]),
    decoded_bytes=np.array([60, 0, 80]),
)
ARRAYS = ("file", "ordinal", "rows", "stored_bytes", "decoded_bytes")


def test_inventory_counts_row_groups_and_rows() -> None:
    assert (ONE.num_row_groups, ONE.num_rows) == (3, 10)
    assert repr(ONE) == "Inventory(2 files, 3 row groups, 10 rows)"


def test_inventory_can_be_empty() -> None:
    empty = Inventory.concatenate([])
    assert (empty.num_row_groups, empty.num_rows, empty.files) == (0, 0, ())
    assert repr(empty) == "Inventory(0 files, 0 row groups, 0 rows)"


@given(st.lists(st.integers(0, 2**40), max_size=20), st.integers(0, 1000))
def test_inventory_of_rows_has_row_groups_of_the_given_sizes(rows: list[int], bytes_per_row: int) -> None:
    inventory = Inventory.of_rows(rows, bytes_per_row=bytes_per_row)
    assert inventory.rows.tolist() == rows
    assert inventory.ordinal.tolist() == list(range(len(rows)))
    assert inventory.stored_bytes.tolist() == [count * bytes_per_row for count in rows]
    assert inventory.num_rows == sum(rows)


@pytest.mark.parametrize("name", ARRAYS)
def test_inventory_arrays_are_read_only(name: str) -> None:
    array = getattr(ONE, name)
    assert array.dtype == (np.int32 if name in {"file", "ordinal"} else np.int64)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_inventory_does_not_share_memory_with_its_arguments() -> None:
    rows = np.array([1, 2])
    inventory = dataclasses.replace(Inventory.of_rows([0, 0]), rows=rows)
    rows[0] = 99
    assert inventory.rows.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"rows": np.array([-1, 0, 1])}, r"Inventory\.rows must be at least 0, got -1"),
        ({"file": np.array([-1, 0, 1], np.int32)}, r"Inventory\.file must be at least 0, got -1"),
        (
            {"stored_bytes": np.array([1, 2])},
            r"Inventory\.stored_bytes must have one entry per row group \(3\), got shape \(2,\)",
        ),
        ({"rows": np.array([[1, 2, 3]])}, r"must have one entry per row group \(1\), got shape \(3,\)"),
        ({"file": np.array([0, 0, 2], np.int32)}, "below 2, the number of files"),
        ({"file": np.array([1, 0, 0], np.int32)}, "must ascend"),
    ],
)
def test_inventory_with_contradictory_arguments_raises(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        dataclasses.replace(ONE, **changed)


def test_inventory_sorts_files_by_path() -> None:
    def groups(*rows: int) -> dict[str, Any]:
        return {name: list(rows) for name in ("rows", "stored_bytes", "decoded_bytes")}

    parts = [(DataFile("b", 1), groups(4)), (DataFile("c", 1), groups()), (DataFile("a", 1), groups(1, 2))]
    inventory = Inventory.concatenate(parts)
    assert [file.path for file in inventory.files] == ["a", "b", "c"]
    assert inventory.rows.tolist() == [1, 2, 4]
    assert inventory.file.tolist() == [0, 0, 1]
    assert inventory.ordinal.tolist() == [0, 1, 0]


@pytest.mark.parametrize("name", [*ARRAYS[2:], "files"])
def test_inventory_fingerprint_changes_with_any_change(name: str) -> None:
    changed: Any
    if name == "files":
        changed = (dataclasses.replace(ONE.files[0], digest="cd" * 16), ONE.files[1])
    else:
        changed = getattr(ONE, name) + 1
    other = dataclasses.replace(ONE, **{name: changed})
    assert other != ONE
    assert other.fingerprint != ONE.fingerprint


def test_inventory_fingerprint_excludes_partitions() -> None:
    file = dataclasses.replace(ONE.files[0], partitions=(("k", "1"),))
    assert dataclasses.replace(ONE, files=(file, ONE.files[1])) == ONE


def test_equal_inventories_have_equal_hashes() -> None:
    again = dataclasses.replace(ONE)
    assert again == ONE
    assert hash(again) == hash(ONE)
    assert ONE != "something else"


def test_inventory_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(ONE))  # noqa: S301 - our own bytes
    assert again == ONE
    assert again.files == ONE.files


def test_inventory_fingerprint_is_the_same_on_every_platform() -> None:
    expected = "d3c8d495063e8a6db1b1d086e1533b27"
    assert Inventory.of_rows([3, 5, 0, 7]).fingerprint == expected
    script = "from petastore.inventory import Inventory; print(Inventory.of_rows([3, 5, 0, 7]).fingerprint)"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == expected
