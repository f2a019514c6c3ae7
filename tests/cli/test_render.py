"""Tests of the screen of `petastore inspect`: contents, wrapping and escaped control characters."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from petastore.cli.inspect import DatasetFacts, FieldFacts, IndexFacts, PartitionFacts, Spread
from petastore.cli.render import render_facts
from petastore.schema.file_schemas import ColumnDifference, StoredType

FACTS = DatasetFacts(
    url="file:///data/meadow",
    writer="petastore 0.1.0",
    schema="Meadow",
    fields=(
        FieldFacts("id", "int32", (), False, None, None, "int32", False),
        FieldFacts(
            "photo", "uint8", (128, None, 3), False, {"id": "image"}, "CompressedImageCodec('png')", "binary", True
        ),
        FieldFacts("[when]", "datetime64[us]", (), True, None, None, "timestamp[us]", True),
        FieldFacts("day", "str", (), True, None, None, None, True),
    ),
    differences=(
        ColumnDifference("id", (StoredType("int32", 2, "a.parquet"), StoredType(None, 1, "b.parquet"))),
        ColumnDifference("gone", (StoredType("string", 2, "a.parquet"), StoredType("bool", 1, "b.parquet"))),
    ),
    partitions=(PartitionFacts("day", ("2026-01-01", "2026-02-01", None)),),
    indexes=(IndexFacts("by_id", ("id",), 1_200, None), IndexFacts("has_photo", (), None, "It is stale")),
    files=3,
    row_groups=7,
    rows=12_345,
    stored_bytes=987_654_321,
    page_bytes=1_987_654_321,
    decoded_bytes=148_140,
    fields_of_varying_size=("photo", "day"),
    rows_of_row_groups=Spread(100, 1_500, 1_600),
    bytes_of_row_groups=Spread(100_000, 1_500_000, 2_600_000),
    histogram=(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6),
)


def screen(facts: DatasetFacts, *, width: int = 110, height: int = 40, every_field: bool = False) -> str:
    out = io.StringIO()
    render_facts(facts, Console(file=out, width=width, height=height), every_field=every_field)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_inspect_output_counts_differing_columns_beyond_four() -> None:
    facts = dataclasses.replace(FACTS, differences=FACTS.differences * 5)
    assert "… and 6 more columns: --all lists them" in screen(facts)
    assert screen(facts, every_field=True).count("differs ") == 10


def test_inspect_output_equals_the_expected_screen() -> None:
    assert screen(FACTS).splitlines() == [
        "dataset  file:///data/meadow",
        "schema   Meadow, 4 fields",
        "",
        "field   dtype           shape    codec                        null  stored as",
        "────────────────────────────────────────────────────────────────────────────────────",
        "id      int32           –        –                            no    int32",
        "photo   uint8           128×?×3  CompressedImageCodec('png')  no    binary, optional",
        "[when]  datetime64[us]  –        –                            yes   timestamp[us]",
        "day     str             –        –                            yes   the path",
        "",
        "rows       12,345 in 7 row groups of 3 files",
        "stored     987.7 MB; 2.0 GB once decompressed",
        "decoded    148.1 kB as arrays, without photo and day, whose sizes vary",
        "row group  100 / 1,500 / 1,600 rows, 100.0 kB / 1.5 MB / 2.6 MB (least / median / most)",
        "           ▂              █  row groups, smallest to largest",
        "differs    id: int32 in 2 files such as a.parquet and missing in 1 file such as b.parquet",
        "differs    gone: string in 2 files such as a.parquet and bool in 1 file such as b.parquet; not readable",
        "partition  day: 3 values, 2026-01-01 … null",
        "index      by_id: of id, 1,200 values",
        "index      has_photo: not usable. It is stale",
        "writer     petastore 0.1.0",
        "meadow: 12,345 rows, 4 fields, 7 row groups, 987.7 MB",
    ]


def test_inspect_output_fits_one_screen() -> None:
    fields = tuple(dataclasses.replace(FACTS.fields[0], name=f"f{number:03}") for number in range(200))
    facts = dataclasses.replace(FACTS, fields=fields, fields_of_varying_size=(), differences=())
    shown = screen(facts, height=24)
    assert len(shown.splitlines()) <= 24
    assert "… and 195 more fields: --all lists them" in shown
    assert "f199" in screen(facts, height=24, every_field=True)


@pytest.mark.parametrize("width", [60, 80])
def test_inspect_output_wraps_on_narrow_screens(width: int) -> None:
    shown = screen(FACTS, width=width)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert "".join(shown.split()).count("decompressed") == 1


def test_inspect_output_has_no_histogram_for_equal_row_groups() -> None:
    facts = dataclasses.replace(FACTS, rows_of_row_groups=Spread(5, 5, 5), histogram=())
    assert "5 rows each, 1.5 MB at the median" in screen(facts)
    assert "least" not in screen(facts)


def test_inspect_output_shows_the_writer_without_its_build_commit() -> None:
    facts = dataclasses.replace(
        FACTS, writer="parquet-mr version 1.13.1 (build db4183109d5b734ec5930d870cdae161e408ddba)"
    )
    assert "writer     parquet-mr version 1.13.1\n" in screen(facts)


def test_inspect_output_uses_the_singular_for_counts_of_one() -> None:
    facts = dataclasses.replace(FACTS, rows=1, row_groups=1, files=1, fields=FACTS.fields[:1])
    assert "1 in 1 row group of 1 file\n" in screen(facts)
    assert screen(facts).endswith("meadow: 1 row, 1 field, 1 row group, 987.7 MB")


def test_inspect_output_reports_that_the_decoded_size_is_unknown() -> None:
    facts = dataclasses.replace(FACTS, decoded_bytes=0, fields_of_varying_size=("id", "photo", "[when]", "day"))
    assert "not known in advance: rows differ in size" in screen(facts)


def test_inspect_output_escapes_control_characters() -> None:
    nasty = "\x1b]0;owned\x07"
    facts = dataclasses.replace(
        FACTS,
        url=f"file:///data/{nasty}",
        writer=nasty,
        schema=nasty,
        fields=(FieldFacts(nasty, "int32", (), False, {"id": nasty}, nasty, nasty, False),),
        partitions=(PartitionFacts(nasty, (nasty,)),),
        indexes=(IndexFacts(nasty, (nasty,), 1, None), IndexFacts(nasty, (), None, nasty)),
        fields_of_varying_size=(nasty, "id"),
    )
    shown = screen(facts, width=200)
    assert r"\x1b]0;owned\x07" in shown
    assert shown.replace("\n", "").isprintable()
