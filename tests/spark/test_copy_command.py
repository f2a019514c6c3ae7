"""Tests of `petastore copy`: it copies the selected columns and rows."""

from __future__ import annotations

import pytest

import petastore
from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def test_copy_command_copies_the_chosen_columns_and_rows(spark_programs: SparkPrograms) -> None:
    left = spark_programs.left("classic", "copy_command")
    assert left.facts["code"] == 0, left.facts["stderr"][-3000:]
    assert left.facts["stdout"].splitlines()[-1] == f"{left.folder / 'copy'}: copied 1 file, 1 row group, 5 rows"
    with petastore.make_reader(left.folder / "copy") as reader:
        assert sorted(int(row.id) for row in reader) == [1, 3, 5, 7, 9]
        assert list(reader.schema.fields) == ["id"]
