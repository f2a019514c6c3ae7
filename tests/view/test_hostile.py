"""Tests of the viewer with hostile datasets: scripts in every text, huge cells, many columns, broken images."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, open_dataset, write_dataset
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.view import serve
from petastore.view.cells import MOST_CELL_BYTES, Cell
from petastore.view.column_figures import column_summaries
from petastore.view.sample_rows import cells_of, places_from
from tests.memory import grown_in_child
from tests.view.browsing import Client, chromium, dom_of

pytestmark = pytest.mark.leaves_running("the server of the module starts and ends threads between tests")

OWNED = "document.documentElement.setAttribute('data-owned', '1')"
PAYLOADS = (
    f"<script>{OWNED}</script>",
    f'"><img src="data:," onerror="{OWNED}">',
    f'\'><svg onload="{OWNED}">',
    f"</title></style></textarea><script>{OWNED}</script>",
    f"javascript:{OWNED}",
    "{{ 7 * 7 }}{% raw %}",
    f'<iframe srcdoc="<script>{OWNED}</script>">',
    "\x1b[31m\u202e\x00 &lt;b&gt;",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write scripts into column names, values, statistics, partition keys and values, file names and metadata."""
    root = tmp_path_factory.mktemp("hostile") / "<b onmouseover=alert(1)>"
    folder = root / f"<i>=<img src=x onerror={OWNED.replace('/', '')}>"
    folder.mkdir(parents=True)
    columns = {name: pa.array(PAYLOADS) for name in PAYLOADS}
    columns["nested"] = pa.array([{name: text} for name in ["<script>"] for text in PAYLOADS])
    columns["bytes"] = pa.array([text.encode() for text in PAYLOADS])
    columns["svg"] = pa.array([f'<svg xmlns="http://www.w3.org/2000/svg"><script>{OWNED}</script></svg>'] * 8)
    table = pa.table(columns).replace_schema_metadata({text: text for text in PAYLOADS if "\x00" not in text})
    pq.write_table(table, folder / "<script>alert(1)<script>.parquet", row_group_size=4)
    return root


@pytest.fixture(scope="module")
def client(hostile: Path) -> Iterator[Client]:
    with serve(str(hostile)) as viewer:
        yield Client(viewer)


PAGES = ("", "schema", "row-groups", "columns", "order")


def test_pages_escape_whatever_a_dataset_contains(client: Client) -> None:
    for page in PAGES:
        answer = client.get(page, column=PAYLOADS[0], find="" if page != "columns" else "<")
        assert answer.status == 200, page
        assert "&lt;script&gt;" in answer.text or page == "order", page
        for tag in ("<script", "<img src=x", "<iframe", "<svg onload", "<b onmouseover", "<i>"):
            assert tag not in answer.text, (page, tag)
        assert "{{ 7 * 7 }}" in answer.text or page not in ("", "schema", "columns")


PARAMETERS = (
    *(("", name) for name in ("filter", "find", "row")),
    ("row-groups", "column"),
    *(("order", name) for name in ("filter", "columns", "seed", "last_batch")),
    ("cell", "column"),
)


@pytest.mark.parametrize(("page", "name"), PARAMETERS)
def test_pages_escape_whatever_a_link_contains(client: Client, page: str, name: str) -> None:
    for text in PAYLOADS:
        answer = client.get(page, **{name: text})
        if page == "cell" and answer.status != 200:
            assert answer.headers["content-type"].startswith("text/plain")
        else:
            assert not any(tag in answer.text for tag in ("<script", "<img src=x", "<iframe", "<svg onload")), text


@pytest.mark.skipif(chromium() is None, reason="there is no Chromium on PATH: apt install chromium")
def test_chromium_executes_nothing_of_a_hostile_dataset(client: Client, tmp_path: Path) -> None:
    control = tmp_path / "control.html"
    control.write_text(f"<!doctype html><html>{PAYLOADS[0]}</html>", encoding="utf-8")
    assert "data-owned" in dom_of(control.as_uri(), tmp_path / "profile").partition(">")[2].partition(">")[0]
    for page in PAGES:
        dom = dom_of(f"http://127.0.0.1:{client.port}/{page}?token={client.token}", tmp_path / "profile")
        assert "<main>" in dom, page
        assert "data-owned" not in dom.partition("<head>")[0], page


def broken_png(size: int) -> bytes:
    """Return a PNG that declares this many pixels per side, and contains none."""
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + b"IHDR"
        + header
        + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )


def test_broken_images_are_cells_with_the_reason(tmp_path: Path) -> None:
    good = np.zeros((4, 4, 3), np.uint8)
    field = UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("png"))
    stored = field.codec.encode_column([good], field)[0].as_py() if field.codec is not None else b""
    cells = [
        stored,
        stored[:40],
        broken_png(60_000),
        broken_png(100_000_000),
        b"no image",
        b"\xff\xd8\xff\xe0" + bytes(9),
    ]
    write_dataset(str(tmp_path / "photos"), Unischema("Photos", [field]), [{"photo": good}] * len(cells))
    (file,) = (tmp_path / "photos").rglob("part*.parquet")
    plain = tmp_path / "plain"
    plain.mkdir()
    pq.write_table(pa.table({"photo": cells}), plain / "x.parquet")
    pq.write_table(pa.table({"photo": cells}, schema=pq.read_schema(file)), tmp_path / "declared.parquet")
    for url in (plain, tmp_path / "declared.parquet"):
        dataset = open_dataset(str(url))
        shown = [row["photo"] for row in cells_of(dataset, tuple(dataset.schema), places_from(dataset.inventory, 0, 9))]
        assert [cell.kind for cell in shown][:4] == ["image", "problem", "problem", "problem"]
        assert all(cell.text for cell in shown)
        with serve(dataset) as viewer:
            assert [Client(viewer).get("cell", column="photo", row=row).status for row in range(6)] == [200, *[404] * 5]


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write cells of 50 MB: one among small ones, and half of a column through its dictionary."""
    folder = tmp_path_factory.mktemp("huge")
    large = "x" * 50_000_000
    table = pa.table({
        "id": range(30),
        "one": [large if row == 3 else "small" for row in range(30)],
        "repeated": pa.DictionaryArray.from_arrays(pa.array([0, 1] * 15, pa.int32()), pa.array(["small", large])),
    })  # fmt: skip
    pq.write_table(table, folder / "x.parquet", compression="zstd")
    return str(folder)


def test_cells_of_50_mb_are_not_decoded_and_cost_bounded_memory(huge: str) -> None:
    dataset = open_dataset(huge)
    places = places_from(dataset.inventory, 0, 20)

    def work(_: object) -> object:
        rows = cells_of(dataset, tuple(dataset.schema), places)
        charts = [summary.chart for summary in column_summaries(dataset, tuple(dataset.schema))]
        return [{name: (cell.kind, cell.text) for name, cell in row.items()} for row in rows], charts

    (shown, charts), grown = grown_in_child(work)
    rows = [{name: Cell(*cell) for name, cell in row.items()} for row in shown]
    assert [row["id"].text for row in rows] == [str(row) for row in range(20)]
    assert [row["one"].kind for row in rows] == ["problem" if row == 3 else "text" for row in range(20)]
    assert "50,000,000 bytes" in rows[3]["one"].text or "50,000,0" in rows[3]["one"].text
    assert "more than" in rows[3]["one"].text
    assert {row["repeated"].kind for row in rows} <= {"text", "problem"}
    assert rows[1]["repeated"].kind == "problem"
    assert charts[0]
    assert grown < 4 * 50_000_000


def test_columns_of_large_cells_are_not_read(tmp_path: Path) -> None:
    values = [np.zeros(MOST_CELL_BYTES // 4 + 100, np.float32) + row for row in range(3)]
    field = UnischemaField("volume", "float32", (None,), NdarrayCodec())
    fields = [UnischemaField("id", "int64"), field]
    rows = [{"id": row, "volume": value} for row, value in enumerate(values)]
    write_dataset(str(tmp_path / "volumes"), Unischema("Volumes", fields), rows)
    dataset = open_dataset(str(tmp_path / "volumes"))
    shown = cells_of(dataset, fields, places_from(dataset.inventory, 0, 3))
    assert [row["id"].text for row in shown] == ["0", "1", "2"]
    assert all("bytes a cell" in row["volume"].text for row in shown)


@pytest.fixture(
    scope="module", params=[10_000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def wide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("wide")
    pq.write_table(pa.table({f"c{number}": [number] for number in range(request.param)}), folder / "x.parquet")
    return str(folder)


def test_many_columns_are_paged_and_found(wide: str) -> None:
    with serve(wide) as viewer:
        client = Client(viewer)
        for page, cells in (("", 17), ("schema", 1200), ("columns", 0), ("row-groups", 7)):
            answer = client.get(page)
            assert (answer.status, answer.text.count("<td")) == (200, cells), page
            assert len(answer.body) < 200_000
        assert "columns 17–32 of" in client.get("", column_first=16).text
        assert "c9876" in client.get("schema", find="c9876").text
        assert len(client.get("", filter='col("none") == 1').body) < 50_000
