"""Tests of Parquet block settings for Spark, and of the code: classic-only calls in one file, no pyspark import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from petastore.codecs import NdarrayCodec
from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema, UnischemaField
from petastore.spark.settings import parquet_settings

SMALL = Unischema("ids", [UnischemaField("id", "int64")])
LARGE = Unischema("frames", [UnischemaField("frame", "uint8", (1024, 1024), NdarrayCodec())])
UNKNOWN = Unischema("texts", [UnischemaField("text", str)])
MIB = 1024 * 1024
CLASSIC_ONLY = frozenset({"_jvm", "_jsc", "_jdf", "_jsparkSession", "sparkContext", "SparkContext", "rdd"})


def names_in(tree: ast.AST) -> set[str]:
    """Return the names that code refers to: variables, attributes, and names imported from modules."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.ImportFrom):
            found.update(name.name for name in node.names)
    return found


@pytest.mark.parametrize(("schema", "mib"), [(SMALL, 128), (LARGE, 2002), (UNKNOWN, 256)])
def test_rows_per_row_group_sets_the_parquet_row_limit_and_a_block_size(schema: Unischema, mib: int) -> None:
    settings = parquet_settings(schema, rows_per_row_group=1000)
    assert settings["parquet.block.row.count.limit"] == "1000"
    assert round(int(settings["parquet.block.size"]) / MIB) == mib


def test_row_group_size_mb_makes_parquet_check_sizes_from_the_first_row() -> None:
    settings = parquet_settings(LARGE, row_group_size_mb=0.5)
    assert settings["parquet.block.size"] == str(MIB // 2)
    assert settings["parquet.page.size.row.check.min"] == "1"
    assert settings["parquet.block.row.count.limit"] == str(2**31 - 1)


def test_no_row_group_size_sets_no_parquet_settings() -> None:
    assert parquet_settings(SMALL) == {}


def test_rows_per_row_group_and_row_group_size_mb_together_raise() -> None:
    with pytest.raises(InvalidArgumentError, match="Pass one of them"):
        parquet_settings(SMALL, rows_per_row_group=1, row_group_size_mb=1)


def test_calls_that_only_classic_spark_sessions_have_are_in_one_file(repository: Path) -> None:
    package = repository / "petastore" / "spark"
    code = {str(file.relative_to(package)): ast.parse(file.read_text()) for file in package.rglob("*.py")}
    assert {"session.py", "decoded.py", "writing/materialize.py"} < code.keys()
    assert sorted(name for name, tree in code.items() if CLASSIC_ONLY & names_in(tree)) == ["session.py"]


@pytest.mark.parametrize(
    "line",
    ["spark.sparkContext", "from pyspark import SparkContext as C", "df.rdd", "spark._jvm.x", "pyspark.SparkContext()"],
)
def test_check_for_classic_spark_calls_finds_them_in_code_and_not_in_text(line: str) -> None:
    assert CLASSIC_ONLY & names_in(ast.parse(f"# a comment before it\ndef run():\n    {line}  # and behind it"))
    assert not CLASSIC_ONLY & names_in(ast.parse(f'"""{line}"""  # {line}\nimport petastore.spark.decoded'))


def test_import_petastore_spark_loads_no_pyspark() -> None:
    program = "import sys, petastore.spark; print(sorted({'pyspark', 'py4j', 'pandas', 'cv2'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
