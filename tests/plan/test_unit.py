"""Tests of `ReadUnit`: it identifies a row group of a file, and pickles in few bytes."""

from __future__ import annotations

import pickle
from typing import Any

from petastore.inventory import DataFile, Inventory
from petastore.plan import ReadUnit


def of_file(name: str, *rows: int) -> tuple[DataFile, dict[str, Any]]:
    return DataFile(name, 100), {"rows": rows, "stored_bytes": rows, "decoded_bytes": rows}


def test_read_unit_has_the_row_group_number_in_its_file() -> None:
    inventory = Inventory.concatenate([of_file("a", 3, 5), of_file("b"), of_file("c", 7)])
    units = [ReadUnit.whole(inventory, group, ["y", "x"]) for group in range(3)]
    assert [(unit.file.path, unit.row_group, unit.rows) for unit in units] == [
        ("a", 0, (0, 3)),
        ("a", 1, (0, 5)),
        ("c", 0, (0, 7)),
    ]
    assert [unit.group for unit in units] == [0, 1, 2]
    assert {unit.columns for unit in units} == {("y", "x")}


def test_read_unit_pickles_in_few_bytes() -> None:
    unit = ReadUnit.whole(Inventory.of_rows([3, 5]), 1, ["id"])
    assert pickle.loads(pickle.dumps(unit)) == unit  # noqa: S301 - our own
    assert len(pickle.dumps(unit)) < 1000
