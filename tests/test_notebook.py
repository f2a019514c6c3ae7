"""Tests of HTML tables in notebooks: values of a dataset are escaped as text."""

from __future__ import annotations

import html.parser
from pathlib import Path

import numpy as np

from petastore import Unischema, UnischemaField, make_reader, open_dataset, write_dataset
from petastore.codecs import NdarrayCodec
from petastore.inventory import DataFile, Inventory
from petastore.notebook import html_table
from petastore.plan import Order, Plan, ReadRequest, Selection, Shard


class Cells(html.parser.HTMLParser):
    """HTML parser that collects the text of each table cell, and the set of tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - as it is called
        self.tags.add(tag)
        self.cells += [""] if tag in ("td", "th", "caption") else []

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def test_schema_renders_as_a_table_in_notebooks() -> None:
    schema = Unischema("birds", [
        UnischemaField("<script>alert(1)</script>", np.int64),
        UnischemaField("image", np.uint8, (8, None), NdarrayCodec(), nullable=True),
    ])  # fmt: skip
    shown = Cells(schema._repr_html_())
    assert shown.tags == {"table", "caption", "tr", "th", "td"}
    assert shown.cells == [
        "Unischema birds", "field", "dtype", "shape", "codec", "nullable",
        "<script>alert(1)</script>", "int64", "()", "", "False",
        "image", "uint8", "(8, None)", "NdarrayCodec()", "True",
    ]  # fmt: skip


def test_inventory_renders_as_a_table_in_notebooks() -> None:
    files = tuple(DataFile(f"day=<{number}>/x", 1000 * number) for number in range(70))
    counts = np.arange(70)
    inventory = Inventory(files, counts.astype("i4"), np.zeros(70, "i4"), counts * 1000, counts, counts)
    shown = Cells(inventory._repr_html_())
    assert shown.cells[:5] == [
        "Inventory(70 files, 70 row groups, 2,415,000 rows)",
        "file",
        "row groups",
        "rows",
        "bytes",
    ]
    assert shown.cells[9:13] == ["day=<1>/x", "1", "1,000", "1,000"]
    assert (len(shown.cells), shown.cells[-1]) == (5 + 50 * 4 + 1, "… and 20 more")


def test_plan_renders_as_a_table_in_notebooks() -> None:
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=2, block_rows=1)
    request = ReadRequest(("id", "<b>"), order, Shard(1, 2), None)
    kept = Selection(np.array([1000, 0, 1]), {})
    shown = Cells(Plan(Inventory.of_rows([1000, 500, 1]), request, kept)._repr_html_())
    assert shown.tags == {"table", "caption", "tr", "td"}
    assert shown.cells == [
        "Plan", "rows", "1,001 of 1,501", "row groups", "2 of 3", "columns", "id, <b>", "shard", "1 of 2",
        "epochs", "endless", "last_batch", "even", "seed", "7", "shuffle row groups", "True", "shuffle rows", "False",
        "lanes", "2", "block rows", "1", "reshuffle", "epoch",
    ]  # fmt: skip


def test_notebook_table_renders_only_shown_rows() -> None:
    taken = iter(range(10_000))
    html_table("many", [], ([number] for number in taken), count=10_000)
    assert next(taken) == 50


def test_dataset_reader_and_batch_render_as_tables_in_notebooks(tmp_path: Path) -> None:
    url = str(tmp_path / "words")
    schema = Unischema("Words", [
        UnischemaField("<b>", "str", nullable=True),
        UnischemaField("photo", np.uint8, (4, 5), NdarrayCodec()),
        UnischemaField("x", np.float32, nullable=True),
    ])  # fmt: skip
    rows = [{"<b>": "<i>" if row else None, "photo": np.full((4, 5), row, "u1"), "x": row or None} for row in range(60)]
    write_dataset(url, schema, rows)
    dataset = open_dataset(url)
    shown = Cells(dataset._repr_html_())
    assert shown.cells[1:5] == ["rows", "60", "row groups", "1"]
    assert "<b>" in shown.cells
    with make_reader(dataset) as reader:
        (batch,) = reader.iter_batches(60)
        shown = Cells(batch._repr_html_())
        assert shown.tags == {"table", "caption", "tr", "th", "td", "img"}
        assert shown.cells[:10] == ["Batch of 60 rows", "<b>", "photo", "x", "null", "", "null", "<i>", "", "1.0"]
        assert shown.cells[-1] == "… and 10 more"
        shown = Cells(reader._repr_html_())
        assert {"Plan", "last_batch", f"Reader of {dataset.url}", "wait_seconds"} <= set(shown.cells)
