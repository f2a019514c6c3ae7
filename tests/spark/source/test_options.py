"""What is asked of the data source is checked at the call, and survives Spark's text."""

from __future__ import annotations

from typing import Any

import pytest

from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec
from petastore.errors import InvalidArgumentError, MetadataError
from petastore.spark import write_options
from petastore.spark.source.options import ReadAsk, WriteAsk

SCHEMA = Unischema(
    "frames",
    [UnischemaField("id", "int64"), UnischemaField("image", "uint8", (4, 4, 3), CompressedImageCodec("jpeg", 90))],
)


def test_what_is_asked_comes_back() -> None:
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


def test_what_is_not_asked_is_left_to_the_defaults() -> None:
    ask = WriteAsk.parse({"path": "/frames"})
    assert (ask.schema, ask.layout.rows_per_row_group, ask.compression, ask.storage_options) == (
        None, None, "auto", None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows_per_row_group": 0}, "rows_per_row_group=0"),
        ({"rows_per_row_group": 5, "row_group_size_mb": 1.5}, "both say"),
        ({"compression": "rar"}, "compression='rar'"),
        ({"storage_options": {"client": object()}}, "storage_options of a data source are JSON"),
        ({"index_fields": ["id", "id"]}, "two of the indexers are named 'id'"),
        ({"index_fields": ["images"]}, "looks at the field 'images', but the schema has 'id', 'image'"),
        ({"index_fields": [SCHEMA]}, "index_name of SingleFieldIndexer is a name"),
    ],
)
def test_what_cannot_be_is_refused_at_the_call(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        write_options(SCHEMA, **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a path"),
        ({"path": "frames"}, "'frames' is no URL and no absolute path"),
        ({"path": "/a", "rows": "7"}, r"has no option 'rows'; it has 'compression', 'index_fields', 'path'"),
        ({"path": "/a", "rows_per_row_group": "many"}, "rows_per_row_group='many' is no number"),
        ({"path": "/a", "storage_options": "[1]"}, "storage_options .* is a JSON object"),
    ],
)
def test_options_that_nobody_knows_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        WriteAsk.parse(options)


def test_a_name_that_commas_would_part_is_no_field_to_index() -> None:
    odd = Unischema("odd", [UnischemaField("a,b", "int64")])
    with pytest.raises(InvalidArgumentError, match="separated by commas, and the name 'a,b' cannot be told so"):
        write_options(odd, index_fields=["a,b"])


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(MetadataError, match="the option schema"):
        WriteAsk.parse({"path": "/a", "schema": "{}"})


def test_secrets_are_not_shown() -> None:
    ask = WriteAsk.parse({"path": "/a", "storage_options": '{"secret": "hidden-word"}'})
    assert "hidden-word" not in repr(ask)
    with pytest.raises(InvalidArgumentError) as caught:
        ReadAsk.parse({"path": "/a", "storage_options": "hidden-word"})
    assert "hidden-word" not in str(caught.value)
