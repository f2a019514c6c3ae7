"""Tests of the data source's options: checked at the call, round trip through Spark's text options."""

from __future__ import annotations

from typing import Any

import pytest

from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec
from petastore.errors import InvalidArgumentError, MetadataError
from petastore.spark import write_options
from petastore.spark.source_options import WriteAsk, read_options

SCHEMA = Unischema(
    "frames",
    [UnischemaField("id", "int64"), UnischemaField("image", "uint8", (4, 4, 3), CompressedImageCodec("jpeg", 90))],
)


def test_write_options_round_trip() -> None:
    options = write_options(
        SCHEMA,
        rows_per_row_group=10,
        rows_per_file=100,
        compression=None,
        storage_options={"anon": True},
        index_fields=["id", "image"],
    )
    ask = WriteAsk.parse({name.upper(): value for name, value in options.items()} | {"path": "s3://bucket/frames"})
    assert ask.schema == SCHEMA
    assert (ask.layout.rows_per_row_group, ask.layout.rows_per_file, ask.compression) == (10, 100, "none")
    assert (ask.url, ask.storage_options) == ("s3://bucket/frames", {"anon": True})
    assert ask.index_fields == ("id", "image")
    assert write_options(SCHEMA, index_fields="id")["index_fields"] == "id"


def test_write_options_have_defaults() -> None:
    ask = WriteAsk.parse({"path": "/frames"})
    assert (ask.schema, ask.layout.rows_per_row_group, ask.compression, ask.storage_options) == (
        None, None, "auto", None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows_per_row_group": 0}, "rows_per_row_group must be an int of at least 1, got 0"),
        (
            {"rows_per_row_group": 5, "row_group_size_mb": 1.5},
            r"rows_per_row_group and row_group_size_mb must not both be given, got 5 and 1\.5\. Pass one of",
        ),
        ({"compression": "rar"}, "compression must be one of snappy, lz4, zstd, gzip, brotli, none, auto, got 'rar'"),
        (
            {"storage_options": {"client": object()}},
            "storage_options must be JSON values for a data source: Object of type object is not JSON",
        ),
        ({"index_fields": ["id", "id"]}, "indexers must have distinct names, got 'id' twice"),
        ({"index_fields": ["images"]}, r"indexers must use fields of the schema \('id', 'image'\), got 'images' in"),
        ({"index_fields": [SCHEMA]}, r"index_name must be a non-empty str, got Unischema\('frames', \["),
    ],
)
def test_source_options_invalid_values_raise_at_the_call(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        write_options(SCHEMA, **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"path must be given to the data source petastore\. Write save\(url\) or load\(url\)"),
        ({"path": "frames"}, "path must be a URL or an absolute path, because Spark's processes have other working"),
        (
            {"path": "/a", "rows": "7"},
            r"options of the data source petastore must be among 'compression', 'index_fields', .*, got 'rows'",
        ),
        ({"path": "/a", "rows_per_row_group": "many"}, "rows_per_row_group must be a number, got 'many'"),
        (
            {"path": "/a", "storage_options": "[1]"},
            "storage_options must be a JSON object for the data source petastore",
        ),
    ],
)
def test_unknown_write_options_raise(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        WriteAsk.parse(options)


def test_index_field_name_with_a_comma_raises() -> None:
    odd = Unischema("odd", [UnischemaField("a,b", "int64")])
    with pytest.raises(
        InvalidArgumentError, match=r"index_fields must have names without commas, got 'a,b'\. Build its index with"
    ):
        write_options(odd, index_fields=["a,b"])


def test_write_options_without_a_schema_raise() -> None:
    with pytest.raises(MetadataError, match="the option schema"):
        WriteAsk.parse({"path": "/a", "schema": "{}"})


def test_write_options_do_not_show_secrets() -> None:
    ask = WriteAsk.parse({"path": "/a", "storage_options": '{"secret": "hidden-word"}'})
    assert "hidden-word" not in repr(ask)
    with pytest.raises(InvalidArgumentError) as caught:
        read_options({"path": "/a", "storage_options": "hidden-word"})
    assert "hidden-word" not in str(caught.value)
