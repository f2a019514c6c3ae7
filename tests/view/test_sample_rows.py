"""Tests of the rows and cells of a viewer page: local and remote, in large row groups, within a byte limit."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Dataset, Unischema, UnischemaField, open_dataset, write_dataset
from petastore.codecs import NdarrayCodec, ScalarCodec
from petastore.expressions import col
from petastore.inventory import Inventory
from petastore.view import column_figures as view_statistics
from petastore.view import sample_rows as view_rows
from petastore.view.cells import bars, cell_of, line
from petastore.view.column_figures import column_summaries, row_group_lines, row_group_map
from petastore.view.sample_rows import RowPosition, cells_of, matching_places, places_from
from tests.servers.range_server import RangeServer


def texts(dataset: Dataset, first: int, count: int, name: str) -> list[str]:
    places = places_from(dataset.inventory, first, count)
    return [row[name].text for row in cells_of(dataset, tuple(dataset.schema), places)]


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    folder = tmp_path / "numbers"
    for part in range(3):
        (folder / f"part={part}").mkdir(parents=True)
        table = pa.table({"id": range(20 * part, 20 * part + 20), "pad": ["x" * 1000] * 20})
        pq.write_table(table, folder / f"part={part}" / "x.parquet")
    return folder


def test_rows_of_several_row_groups_and_partitions_are_in_reading_order(numbers: Path) -> None:
    dataset = open_dataset(str(numbers))
    assert texts(dataset, 15, 10, "id") == [str(row) for row in range(15, 25)]
    assert texts(dataset, 15, 10, "part") == ["0"] * 5 + ["1"] * 5


def test_viewer_reads_rows_of_large_columns_in_parts(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(str(numbers))
    expected = cells_of(dataset, tuple(dataset.schema), places_from(dataset.inventory, 12, 20))
    monkeypatch.setattr(view_rows, "_PAGE_BYTES", 100)
    assert cells_of(dataset, tuple(dataset.schema), places_from(dataset.inventory, 12, 20)) == expected
    monkeypatch.setattr(view_rows, "_STREAMED_BYTES", 0)
    assert "not read" in texts(dataset, 12, 1, "pad")[0]


@pytest.mark.server
@pytest.mark.leaves_running("obstore keeps its threads")
def test_rows_of_remote_files_equal_local_ones(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = open_dataset(str(numbers))
    (file, *_) = (file.path for file in local.inventory.files)
    local = open_dataset(str(numbers / file))
    with RangeServer(numbers) as server:
        remote = open_dataset(f"http://127.0.0.1:{server.port}/{file}")
        for first in (0, 3, 15):
            assert texts(remote, first, 4, "id") == texts(local, first, 4, "id")
        assert [summary.nulls for summary in column_summaries(remote, tuple(remote.schema))] == [
            "0.00% null by statistics"
        ] * 2
        monkeypatch.setattr(view_rows, "_PAGE_BYTES", 100)
        assert "not read" in texts(remote, 12, 1, "pad")[0]


def test_search_for_filtered_rows_continues_at_the_last_position(numbers: Path) -> None:
    dataset, filters = open_dataset(str(numbers)), col("id") >= 10
    found: list[RowPosition] = []
    begin: RowPosition | None = RowPosition(0, 0)
    while begin is not None:
        matches = matching_places(dataset, filters, begin, 7)
        found += matches.places
        begin = matches.following
    assert found == places_from(dataset.inventory, 10, 60)


def test_search_for_filtered_rows_stops_at_its_time_limit(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_rows, "_FILTER_SECONDS", 0)
    matches = matching_places(open_dataset(str(numbers)), col("id") < 0, RowPosition(1, 0), 7)
    assert matches == ([], RowPosition(2, 0), 1)


def test_viewer_shows_the_reason_in_cells_of_a_damaged_file(numbers: Path) -> None:
    dataset = open_dataset(str(numbers))
    file = numbers / dataset.inventory.files[0].path
    content = bytearray(file.read_bytes())
    content[8:400] = bytes(392)
    file.write_bytes(content)
    shown = cells_of(dataset, tuple(dataset.schema), places_from(dataset.inventory, 0, 2))
    assert "problem" in {shown[0]["id"].kind, shown[0]["pad"].kind}
    assert shown[0]["part"].text == "0"
    assert all(summary.caption for summary in column_summaries(dataset, tuple(dataset.schema)))


def test_empty_dataset_has_no_rows_and_no_histogram(tmp_path: Path) -> None:
    write_dataset(str(tmp_path / "none"), Unischema("None", [UnischemaField("x", "float32")]), [])
    dataset = open_dataset(str(tmp_path / "none"))
    assert places_from(dataset.inventory, 0, 20) == []
    assert column_summaries(dataset, tuple(dataset.schema))[0].chart == ""
    assert "<rect" not in row_group_map(dataset)[0]


def test_row_group_map_of_many_row_groups_has_a_bounded_number_of_bars() -> None:
    dataset = type("OfMany", (), {"inventory": Inventory.of_rows([3] * 100_000)})()
    rows, _ = row_group_map(dataset)
    assert 100 <= rows.count("<rect") <= 120
    assert "rows</title>" in rows


def test_statistics_of_very_large_footers_are_not_read(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(str(numbers))
    groups, field = np.array([2, 0]), dataset.schema["id"]
    lines = row_group_lines(dataset, groups, field)
    assert [(line.number, line.minimum, line.compression) for line in lines] == [
        (2, "40", "snappy"),
        (0, "0", "snappy"),
    ]
    monkeypatch.setattr(view_statistics, "_MOST_CHUNKS", 2)
    lines = row_group_lines(dataset, groups, field)
    assert [(line.rows, line.minimum, line.compression) for line in lines] == [(20, "", "not read")] * 2
    assert {summary.nulls for summary in column_summaries(dataset, [field])} == {"0.00% null in a sample of 60 rows"}


@pytest.mark.parametrize(
    ("value", "field", "kind"),
    [
        ([1.5, float("nan"), float("inf"), 2.0], UnischemaField("x", "float64", (None,)), "chart"),
        ([[1e308, -1e308], [float("inf"), float("nan")]], UnischemaField("x", "float64", (None, None)), "image"),
        ("text " * 1000, UnischemaField("x", "str"), "text"),
        (True, UnischemaField("x", "bool"), "number"),
        (b"\x00\xff", UnischemaField("x", "bytes"), "text"),
    ],
)
def test_viewer_cell_kind_follows_the_value_and_field(value: object, field: UnischemaField, kind: str) -> None:
    cell = cell_of(pa.array([value]), field)
    assert (cell.kind, len(cell.text) < 400) == (kind, True)


def test_viewer_cell_that_cannot_be_decoded_shows_a_problem() -> None:
    field = UnischemaField("x", "float32", (2,), NdarrayCodec())
    assert cell_of(pa.array([b"no npy"]), field).kind == "problem"
    assert cell_of(pa.array(["no number"]), UnischemaField("x", "int32", (), ScalarCodec(pa.int32()))).kind == "problem"


def test_charts_have_only_finite_numbers() -> None:
    drawn = line(np.array([np.nan, np.inf, -np.inf, 1e308, -1e308])) + bars([0, 0]) + bars([]) + bars([1e300, 5])
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_viewer_does_not_decode_image_bytes_with_a_huge_declared_size(tmp_path: Path) -> None:
    header = struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(1000))), (b"IEND", b""))
    ]
    png = b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
    pq.write_table(pa.table({"photo": [png]}), tmp_path / "x.parquet")
    (row,) = cells_of(open_dataset(str(tmp_path)), [UnischemaField("photo", "bytes")], [RowPosition(0, 0)])
    assert "bytes to be shown, got 243,000,000" in row["photo"].text
