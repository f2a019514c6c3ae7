"""Tests of custom codecs written for Petastorm, which encode and decode one cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore.codecs import DataframeColumnCodec
from petastore.errors import DecodeError, EncodeError, MetadataError, SchemaError


class ScaledCodec(DataframeColumnCodec):
    """Stores small floats as uint8, multiplied by a factor."""

    def __init__(self, factor: int = 10) -> None:
        self._factor = factor

    def encode(self, unischema_field: Any, value: Any) -> Any:  # noqa: ARG002 - Petastorm's signature
        if np.max(value) * self._factor > 255:
            raise ValueError("too large")
        return bytearray((np.asarray(value) * self._factor).astype("uint8").tobytes())

    def decode(self, unischema_field: Any, value: Any) -> Any:
        return (np.frombuffer(value, "uint8") / self._factor).astype(unischema_field.numpy_dtype)

    def spark_dtype(self) -> Any:
        return "binary"


class HexCodec(DataframeColumnCodec):
    """Stores integers as hexadecimal text."""

    def encode(self, unischema_field: Any, value: Any) -> Any:  # noqa: ARG002 - Petastorm's signature
        return hex(value)

    def decode(self, unischema_field: Any, value: Any) -> Any:  # noqa: ARG002
        return np.int64(int(value, 16))

    def spark_dtype(self) -> Any:
        from pyspark.sql.types import StringType

        return StringType()


def schema(codec: Any = None, shape: tuple[int | None, ...] = (None,)) -> petastore.Unischema:
    fields = [
        petastore.UnischemaField("id", np.int64, (), HexCodec(), False),
        petastore.UnischemaField("xs", np.float32, shape, codec or ScaledCodec(20), True),
    ]
    return petastore.Unischema("own", fields)


def test_dataset_with_a_custom_cell_codec_round_trips(tmp_path: Path) -> None:
    url = str(tmp_path / "own")
    rows = [{"id": n, "xs": None if n == 3 else np.arange(n, dtype="float32") / 20} for n in range(1, 6)]
    petastore.write_dataset(url, schema(), rows, rows_per_row_group=2)
    assert petastore.open_dataset(url).schema == schema()
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        for row, wrote in zip(reader, rows, strict=True):
            assert row.id == wrote["id"]
            assert (row.xs is None) == (wrote["xs"] is None)
            if row.xs is not None:
                np.testing.assert_array_equal(row.xs, wrote["xs"])


def test_cell_codecs_with_equal_configuration_are_equal() -> None:
    assert ScaledCodec(3) == ScaledCodec(3) != ScaledCodec(4)
    assert len({ScaledCodec(3), ScaledCodec(3), HexCodec()}) == 2
    assert repr(ScaledCodec(3)) == "ScaledCodec(factor=3)"


def test_cell_codec_exception_becomes_an_error_with_row_and_column(tmp_path: Path) -> None:
    rows = [{"id": 1, "xs": np.ones(2, "float32")}, {"id": 2, "xs": np.full(2, 99, "float32")}]
    with pytest.raises(EncodeError, match=r"column 'xs', row 1.*ScaledCodec.encode raised ValueError\('too large'\)"):
        petastore.write_dataset(tmp_path / "own", schema(), rows)


def test_cell_codec_result_of_another_shape_raises(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "own", schema(shape=(2,)), [{"id": 1, "xs": np.ones(3, "float32")}])
    with (
        petastore.make_reader(tmp_path / "own") as reader,
        pytest.raises(
            DecodeError,
            match=r"column 'xs', row 0 of row group 0 in.*decode must return shape \(2,\), as the field declares, got",
        ),
    ):
        next(reader)


def test_cell_codec_that_cannot_be_rebuilt_raises() -> None:
    class Forgetful(ScaledCodec):
        def __init__(self, path: str) -> None:
            self.handle = path

    with pytest.raises(SchemaError, match="field 'xs': Forgetful cannot be rebuilt from its configuration:"):
        schema(Forgetful("x"))


def test_unregistered_cell_codec_is_named_in_the_error(tmp_path: Path) -> None:
    from petastore.codecs.registry import codec_from_json

    with pytest.raises(
        MetadataError,
        match=r"codec id must be one of arrow, .*\bndarray, .*\bvector, got 'their\.module\.Codec'\. Import the module",
    ):
        codec_from_json({"id": "their.module.Codec"})
