"""Tests of `ArrowCodec`: codec laws, objects of every nested type, and errors that name what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from petastore import Unischema, make_batch_reader, make_reader, open_dataset, write_dataset
from petastore.codecs import ArrowCodec
from petastore.codecs.arrow_cells import with_arrow_type
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import Case, empty_column
from tests.codecs.measured_laws import MeasuredCodecLaws

STRUCT = pa.struct(
    {"id": pa.int64(), "words": pa.list_(pa.string()), "at": pa.timestamp("us"), "took": pa.duration("ms")}
)
BOXES = UnischemaField("boxes", object, (), ArrowCodec(pa.list_(pa.struct({"label": pa.string(), "size": pa.int8()}))))
VISIT = UnischemaField("visit", object, (), ArrowCodec(STRUCT), nullable=True)
COUNTS = UnischemaField("counts", object, (), ArrowCodec(pa.map_(pa.string(), pa.float64())))
HOLES = UnischemaField("holes", object, (), ArrowCodec(pa.list_(pa.int64())))


def visit(number: int | None, words: list[str | None] | None) -> dict[str, Any]:
    at = None if number is None else np.datetime64(number, "us")
    return {"id": number, "words": words, "at": at, "took": np.timedelta64(7, "ms")}


class TestArrowLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        small = st.none() | st.integers(-128, 127)
        text = st.none() | st.text(max_size=3)
        box = st.none() | st.fixed_dictionaries({"label": text, "size": small})
        return {
            "boxes": Case(BOXES, st.lists(box, max_size=3), [[{"label": 1}], [{"size": 300}], [{"other": 1}], [1], {}]),
            "visit": Case(VISIT, st.builds(visit, small, st.none() | st.lists(text, max_size=3)), [[], {"id": 1.5}, 1]),
            "counts": Case(
                COUNTS,
                st.lists(st.tuples(st.text(max_size=2), st.none() | st.floats(allow_nan=False)), max_size=3),
                [[("a",)], [(None, 1.0)], {"a": "b"}, 5],
            ),
            "holes": Case(HOLES, st.lists(small, max_size=4), [["a"], [1.5], 7, [2**63]]),
        }

    def golden_folder(self) -> Path:
        return Path(__file__).parent / "golden" / "arrow"

    def golden_values(self, name: str) -> Sequence[Any]:
        values: dict[str, list[Any]] = {
            "boxes": [[], [{"label": "深い", "size": -1}, None]],
            "visit": [visit(1, ["a", None]), visit(None, None)],
            "counts": [[], [("a", 0.5), ("b", None)]],
            "holes": [[1, None], [], [-(2**63)]],
        }
        return values[name]


def test_arrow_codec_accepts_dicts_for_maps_and_missing_members() -> None:
    assert COUNTS.codec is not None
    assert VISIT.codec is not None
    assert COUNTS.codec.encode_column([{"a": 1}], COUNTS).to_pylist() == [[("a", 1.0)]]
    assert VISIT.codec.decode(VISIT, VISIT.codec.encode(VISIT, {"id": 3})) == {
        "id": 3, "words": None, "at": None, "took": None,
    }  # fmt: skip


def test_arrow_codec_replaces_types_that_parquet_does_not_keep() -> None:
    odd = pa.struct(
        {
            "word": pa.dictionary(pa.int8(), pa.large_string()),
            "pair": pa.list_(pa.float32(), 2),
            "raw": pa.binary_view(),
            "day": pa.date64(),
            "tensor": pa.fixed_shape_tensor(pa.uint8(), [2]),
        }
    )
    plain = pa.struct(
        [
            pa.field("word", pa.string()),
            pa.field("pair", pa.list_(pa.field("element", pa.float32()))),
            pa.field("raw", pa.binary()),
            pa.field("day", pa.date32()),
            pa.field("tensor", pa.list_(pa.field("element", pa.uint8()))),
        ]
    )
    assert ArrowCodec(odd) == ArrowCodec(plain)
    assert ArrowCodec(odd).arrow_type == plain


def test_arrow_codec_encodes_arrow_columns_like_objects() -> None:
    members = pa.struct({"words": pa.large_list(pa.large_string()), "id": pa.int32()})  # other order and widths
    column = pa.array([{"id": 1, "words": ["a", None]}, {"id": 2}], members)
    codec = ArrowCodec(STRUCT)
    cells = codec.encode_arrow(column, VISIT)
    assert cells.equals(codec.encode_column(column.to_pylist(), VISIT))
    out = empty_column(VISIT, 2)
    codec.decode_column(cells, VISIT, out)
    assert [value["id"] for value in out] == [1, 2]
    with pytest.raises(EncodeError, match=r"a struct must have only the members .*, got 'other'") as refused:
        codec.encode_arrow(pa.array([{"other": 1}]), VISIT)
    assert refused.value.row == 0


@pytest.mark.parametrize(
    "arrow_type",
    [pa.struct([]), pa.run_end_encoded(pa.int32(), pa.int8()), "varchar", {"list": 5}, {"struct": [["a"]]}, None],
)
def test_arrow_codec_raises_for_types_that_parquet_cannot_store(arrow_type: Any) -> None:
    with pytest.raises(
        SchemaError, match=r"Parquet|Arrow type|member of a struct|arrow_type must be a pyarrow\.DataType"
    ):
        ArrowCodec(arrow_type)


def test_arrow_codec_raises_for_fields_of_other_dtypes() -> None:
    with pytest.raises(SchemaError, match="must have dtype object and shape"):
        UnischemaField("x", "int64", (), ArrowCodec(pa.int64()))


def test_arrow_codec_is_inferred_only_for_object_fields() -> None:
    number = UnischemaField("x", "int64")
    assert with_arrow_type(number, pa.int64()) is number
    assert with_arrow_type(UnischemaField("x", object), pa.null()).codec == ArrowCodec(pa.null())


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_datetime64_in_structs_is_encoded_with_time_zones(unit: Any, zone: str | None) -> None:
    codec = ArrowCodec(pa.struct({"at": pa.timestamp(unit, zone)}))
    field = UnischemaField("x", object, (), codec, nullable=True)
    values = [{"at": np.datetime64(5, unit)}, {"at": None}, {"at": np.datetime64(-7, unit)}]
    decoded = np.empty(len(values), object)
    codec.decode_column(codec.encode_column(values, field), field, decoded)
    assert decoded.tolist() == values


def test_durations_are_read_next_to_time_zones(tmp_path: Path) -> None:
    """Parquet returns time zones as UTC, and durations in structs as integers."""
    kind = pa.struct({"took": pa.list_(pa.duration("ms")), "at": pa.timestamp("us", "Europe/Berlin")})
    write_dataset(tmp_path / "x", pa.table({"s": pa.array([{"took": [1], "at": 5}], kind)}))
    (row,) = open_dataset(tmp_path / "x").head()
    assert row.s == {"took": [np.timedelta64(1, "ms")], "at": np.datetime64(5, "us")}
    assert row.s["took"][0].dtype == "timedelta64[ms]"


NARROW: dict[str, tuple[pa.DataType, pa.DataType, Any, Any]] = {
    "int8 in struct": (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int8()}), {"a": 127}, {"a": 128}),
    "int8 in list": (pa.list_(pa.int64()), pa.list_(pa.int8()), [1, None], [1, None, 300]),
    "int8 in large list": (pa.large_list(pa.int64()), pa.list_(pa.int8()), [1, None], [1, None, 300]),
    "int8 in fixed-size list": (pa.list_(pa.int64(), 2), pa.list_(pa.int8()), [1, None], [300, None]),
    "int8 in map": (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8()), [("k", 1)], [("k", -129)]),
    "fraction": (pa.struct({"a": pa.float64()}), pa.struct({"a": pa.int8()}), {"a": 2.0}, {"a": 1.5}),
    "float64": (pa.list_(pa.int64()), pa.list_(pa.float64()), [2**54, None], [2**53 + 1]),
    "unsigned": (pa.list_(pa.int64()), pa.list_(pa.uint16()), [2**16 - 1], [-1]),
    "timestamp": (pa.list_(pa.timestamp("us")), pa.list_(pa.timestamp("ms")), [2000], [2001]),
    "bytes": (pa.list_(pa.binary()), pa.list_(pa.binary(2)), [b"ab"], [b"ab", b"abc"]),
    "scalar": (pa.int64(), pa.int8(), 1, 300),
}


@pytest.mark.parametrize(("stored", "declared", "good", "bad"), NARROW.values(), ids=NARROW)
def test_value_outside_the_type_of_arrow_codec_raises_on_reading(
    stored: pa.DataType, declared: pa.DataType, good: Any, bad: Any, tmp_path: Path
) -> None:
    cells = pa.array([good, None, good, good, None, bad, good, bad], stored)
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.table({"x": cells}), path, row_group_size=4)
    schema = Unischema("s", [UnischemaField("x", object, (), ArrowCodec(declared), nullable=True)])

    def by_rows() -> list[Any]:
        with make_reader(path, schema=schema) as reader:
            return list(reader)

    def by_batches() -> list[Any]:
        with make_batch_reader(path, schema=schema) as reader:
            return list(reader)

    for read in (by_rows, by_batches, lambda: open_dataset(path, schema=schema).to_arrow()):
        with pytest.raises(DecodeError, match=r"values must fit in .*, the type that the field declares") as failure:
            read()
        problem = failure.value
        assert (problem.column, problem.file, problem.row_group, problem.row) == ("x", "x.parquet", 1, 1)
    with make_reader(path, schema=schema, on_error="skip", shuffle_row_groups=False) as reader:
        rows = [row.x for row in reader]
    expected = pa.array([good, None, good, good, None, good], stored).to_pylist()
    if pa.types.is_timestamp(getattr(stored, "value_type", stored)):
        expected = [value and [np.datetime64(time, "ms") for time in value] for value in expected]
    assert rows == expected
    first = open_dataset(path, schema=schema).to_arrow(4)["x"]
    assert first.to_pylist() == cells[:4].to_pylist()


def test_arrow_codec_reads_the_declared_members_of_structs(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [{"a": 1, "b": 2}, None]}), tmp_path / "x.parquet")
    codec = ArrowCodec(pa.struct({"a": pa.int8(), "c": pa.string()}))
    schema = Unischema("s", [UnischemaField("x", object, (), codec, nullable=True)])
    dataset = open_dataset(tmp_path / "x.parquet", schema=schema)
    assert [row.x for row in dataset.head()] == dataset.to_arrow()["x"].to_pylist() == [{"a": 1, "c": None}, None]


def test_arrow_codec_decodes_a_slice_whose_other_rows_do_not_fit() -> None:
    cells = pa.array([[300], [1], [2], [300]], pa.list_(pa.int64()))
    field = UnischemaField("x", object, (), ArrowCodec(pa.list_(pa.int8())))
    assert field.codec is not None
    for first, stop in ((1, 3), (1, 1)):
        out = np.empty(stop - first, object)
        field.codec.decode_column(cells.slice(first, stop - first), field, out)
        assert out.tolist() == cells[first:stop].to_pylist()
