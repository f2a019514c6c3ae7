"""Tests of struct members as columns with dotted names: in `schema_fields`, filters and all readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.adapters.torch import DataLoader, MapDataset
from petastore.errors import InvalidArgumentError, PetastoreError
from tests.arrow_values import of_arrow, of_petastore

GEO = pa.StructArray.from_arrays(
    [
        pa.array([0.5, 1.5, None, 3.5]),
        pa.array(["a", None, "c", "d"]),
        pa.array([{"x": 1, "z": [1, 2]}, None, {"x": 3, "z": [1, None]}, {"x": 4, "z": []}]),
        pa.array(["u", "v", "u", "v"]).dictionary_encode(),
    ],
    names=["lat", "name", "in", "kind"],
    mask=pa.array([False, False, False, True]),
)
TABLE = pa.table({"id": range(4), "geo": GEO, "geo.name": ["top"] * 4})


def flat(name: str) -> Any:
    """Return the values of a struct member in Arrow; null where a parent struct is null."""
    column = TABLE.column("geo")
    for member in name.split(".")[1:]:
        column = pa.compute.struct_field(column, member)
    return of_arrow(column)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    pq.write_table(TABLE, tmp_path / "x.parquet", row_group_size=2)
    return str(tmp_path)


@pytest.mark.parametrize(
    "names", [["geo.lat"], ["id", "geo.lat", "geo.in.x", "geo.in.z", "geo.in", "geo.kind"], ["geo", "geo.lat"]]
)
def test_struct_members_can_be_selected_as_columns(folder: str, names: list[str]) -> None:
    expected = [of_arrow(TABLE.column(name)) if name in TABLE.schema.names else flat(name) for name in names]
    with petastore.make_reader(folder, names, shuffle_row_groups=False) as reader:
        assert list(reader.schema.fields) == names
        assert [[of_petastore(value) for value in row] for row in reader] == list(
            map(list, zip(*expected, strict=True))
        )
    with petastore.make_batch_reader(folder, names, shuffle_row_groups=False) as reader:
        (batch,) = reader.iter_batches(4)
        assert [of_petastore(batch[name]) for name in names] == expected
    assert [[of_petastore(value) for value in row] for row in petastore.open_dataset(folder).head(4, names)] == list(
        map(list, zip(*expected, strict=True))
    )


def test_top_level_column_takes_precedence_over_struct_member_of_same_name(folder: str) -> None:
    with petastore.make_reader(folder, ["geo.name"]) as reader:
        assert {row[0] for row in reader} == {"top"}


@pytest.mark.parametrize(
    ("filters", "ids"),
    [([("geo.lat", ">", 1)], [1]), ([("geo.in.x", "in", [1, 3, 4])], [0, 2]), ([("geo.name", "=", "a")], [])],
)
@pytest.mark.filterwarnings("ignore:none of the")
def test_filters_accept_struct_members(folder: str, filters: Any, ids: list[int]) -> None:
    for names in (["id"], None):
        with petastore.make_reader(folder, names, filters=filters, shuffle_row_groups=False, filter_cache=False) as r:
            assert [row.id for row in r] == ids


def test_statistics_of_struct_members_prune_row_groups(folder: str) -> None:
    dataset = petastore.open_dataset(folder)
    selection = petastore.select_rows(dataset, filters=petastore.col("geo.in.x") >= 3, filter_cache=False)
    assert selection is not None
    assert [(part.by, part.row_groups) for part in selection.pruned if part.row_groups] == [("statistics", 1)]


def test_torch_loaders_read_struct_members(folder: str) -> None:
    nulls = {"geo.lat": -1}
    with petastore.make_batch_reader(folder, ["geo.lat"], shuffle_row_groups=False) as reader:
        (batch,) = DataLoader(reader, batch_size=4, nulls=nulls)
    assert batch["geo.lat"].tolist() == [0.5, 1.5, -1, -1]
    dataset = MapDataset(folder, schema_fields=["geo.lat"], nulls=nulls)
    assert [float(dataset[row]["geo.lat"]) for row in range(4)] == [0.5, 1.5, -1, -1]


def test_unknown_struct_members_raise(folder: str) -> None:
    for name in ("geo.nope", "geo.lat.x", "nope.lat"):
        with pytest.raises(InvalidArgumentError, match="schema_fields must match"):
            petastore.make_reader(folder, [name])
        with pytest.raises(PetastoreError, match="filters must name columns"):
            petastore.make_reader(folder, filters=[(name, "==", 1)])


def test_struct_members_are_read_from_files_whose_structs_differ(tmp_path: Path) -> None:
    geo = [
        pa.array([{"lat": 1, "name": "a"}, None], pa.struct({"lat": pa.int32(), "name": pa.string()})),
        pa.array([{"lat": 2.5}], pa.struct({"lat": pa.float64()})),
        pa.array([{"name": "d"}], pa.struct({"name": pa.string()})),
    ]
    for number, column in enumerate(geo):
        top = {"geo.name": ["top"]} if number == 2 else {}
        pq.write_table(pa.table({"geo": column, **top}), tmp_path / f"{number}.parquet")
    with petastore.make_reader(str(tmp_path), ["geo.lat", "geo.name"], shuffle_row_groups=False) as reader:
        assert [tuple(row) for row in reader] == [(None, 1.0), (None, None), (None, 2.5), ("top", None)]
    with petastore.make_reader(str(tmp_path), ["geo.lat"], filters=[("geo.lat", ">", 1.5)]) as reader:
        assert [tuple(row) for row in reader] == [(2.5,)]
    with petastore.make_reader(str(tmp_path), ["geo.lat"], filters=petastore.col("geo.lat").is_null()) as reader:
        assert len(list(reader)) == 2


def test_struct_member_missing_in_a_file_is_null(tmp_path: Path) -> None:
    parts = [
        {"id": [0], "geo": pa.array([{"lat": 1}], pa.struct({"lat": pa.int32()}))},
        {"id": [1], "geo": pa.array([{"lat": 2.5, "name": "x"}])},
        {"id": [2]},
    ]
    for number, part in enumerate(parts):
        pq.write_table(pa.table(part), tmp_path / f"{number}.parquet")
    with petastore.make_reader(
        str(tmp_path), ["id", "geo.lat", "geo.name"], schema="union", shuffle_row_groups=False
    ) as reader:
        assert [[float(row[1] or 0), row[2]] for row in reader] == [[1, None], [2.5, "x"], [0, None]]


REQUIRED = pa.struct(
    [pa.field("lat", pa.int32(), nullable=False), pa.field("kind", pa.dictionary(pa.int8(), "string"))]
)


@pytest.mark.parametrize("writes_statistics", [True, False])
@pytest.mark.filterwarnings("ignore:none of the")
def test_filters_treat_members_of_null_structs_as_null(writes_statistics: bool, tmp_path: Path) -> None:
    """A null struct makes a required member null; pyarrow's null count of dictionary columns does not include it."""
    geo = pa.array([{"lat": 7, "kind": "a"}, None], REQUIRED)
    pq.write_table(pa.table({"id": [0, 1], "geo": geo}), tmp_path / "x.parquet", write_statistics=writes_statistics)

    def ids(filters: Any) -> list[int]:
        with petastore.make_reader(str(tmp_path), ["id"], filters=filters, filter_cache=False) as reader:
            return [int(row.id) for row in reader]

    for name, value in (("geo.lat", 7), ("geo.kind", "a")):
        member = petastore.col(name)
        assert ids(member.is_null()) == [1]
        assert ids(member.is_valid()) == ids(member == value) == ids(~(member != value)) == [0]
