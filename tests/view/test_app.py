"""Tests of the viewer's pages over HTTP: content, token, cookies, and security headers."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, make_reader, write_dataset
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.view import serve
from tests.view.browsing import Client

pytestmark = pytest.mark.leaves_running("the server of the module starts and ends threads between tests")

WAV = b"RIFF$\x00\x00\x00WAVEfmt " + bytes(32)
FIELDS = [
    UnischemaField("id", "int64"),
    UnischemaField("word", "str", nullable=True),
    UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("png")),
    UnischemaField("matrix", "float32", (4, 5), NdarrayCodec()),
    UnischemaField("curve", "float64", (None,), NdarrayCodec()),
    UnischemaField("song", "bytes", nullable=True),
    UnischemaField("day", "datetime64[D]"),
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("view") / "words")
    rows = (
        {
            "id": number,
            "word": None if number % 10 == 3 else f"word {number % 4}",
            "photo": np.full((30, 40, 3), number % 256, np.uint8),
            "matrix": np.arange(20, dtype="f4").reshape(4, 5) - number,
            "curve": np.sin(np.arange(5 + number % 3)),
            "song": WAV if number % 2 else None,
            "day": np.datetime64("2026-01-01") + number,
        }
        for number in range(250)
    )
    write_dataset(path, Unischema("Words", FIELDS), rows, rows_per_row_group=25)
    return path


@pytest.fixture(scope="module")
def client(dataset: str) -> Iterator[Client]:
    with serve(dataset) as viewer:
        yield Client(viewer)


def test_rows_page_shows_text_images_and_arrays(client: Client) -> None:
    page = client.get("").text
    assert "rows 1–20 of 250" in page
    assert page.count('src="data:image/png;base64,') == 2 * 20
    assert page.count("<polyline") == 20
    assert "word 2" in page
    assert page.count('class="missing">null') == 10 + 2
    assert "2026-01-20" in page


def test_rows_page_continues_from_any_row(client: Client) -> None:
    page = client.get("", row=240).text
    assert "rows 241–250 of 250" in page
    assert re.findall(r'class="place">([\d, ]+)<', page)[-1] == "9, 24"
    assert "rows 250–250 of 250" in client.get("", row=10**30).text


def test_rows_page_finds_columns_by_a_part_of_their_name(client: Client) -> None:
    page = client.get("", find="MAT").text
    assert re.findall(r'class="name" title="(\w+)"', page) == ["matrix"]


def test_rows_page_filters_in_the_filter_language(client: Client) -> None:
    page = client.get("", filter='(col("id") >= 100) & (col("word") == "word 1")').text
    places = re.findall(r'class="place">(\d+), (\d+)<', page)
    rows = [25 * int(group) + int(row) for group, row in places]
    assert rows == [row for row in range(100, 250) if row % 4 == 1 and row % 10 != 3][:20]
    (more,) = re.findall(r'href="(\?[^"]+)">continue', page)
    following = client.request("/" + more.replace("&amp;", "&"), Cookie=client.cookie).text
    assert re.findall(r'class="place">(\d+), (\d+)<', following)[0] > places[-1]
    assert "end of the dataset" in following


def test_rows_page_names_the_invalid_part_of_a_filter(client: Client) -> None:
    for text, words in (("__import__('os')", "filter must be made of"), ('col("nothing") > 3', "nothing")):
        answer = client.get("", filter=text)
        assert (answer.status, words in answer.text) == (200, True)
        assert "<tbody>\n\n</tbody>" in answer.text


def test_cell_page_returns_images_reencoded_as_png(client: Client) -> None:
    image = client.get("cell", group=1, row=3, column="photo")
    assert (image.status, image.headers["content-type"], image.body[:4]) == (200, "image/png", b"\x89PNG")
    assert image.headers["x-content-type-options"] == "nosniff"
    for query in ({"column": "word"}, {"column": "none"}, {}, {"column": "song", "row": 99}):
        assert client.get("cell", **query).status == 404


def test_schema_page_lists_fields_with_codec_and_stored_type(client: Client) -> None:
    page = client.get("schema").text
    assert "Schema Words" in page
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    codec = "CompressedImageCodec(image_codec=&#39;png&#39;, quality=80)"
    assert cells[12:18] == ["photo", "uint8", "(None, None, 3)", codec, "no", "binary"]


def test_row_groups_page_shows_sizes_compression_and_statistics(client: Client) -> None:
    page = client.get("row-groups", column="id", sort="rows").text
    assert page.count("<rect") == 2 * 10
    lines = [re.findall(r"<td[^>]*>([^<]*)</td>", line) for line in re.findall(r"<tr>(<td.*?)</tr>", page)]
    assert [(line[0], line[1], line[5:9]) for line in lines] == [
        (str(group), "25", ["snappy", str(25 * group), str(25 * group + 24), "0"]) for group in range(10)
    ]


def test_columns_page_shows_null_shares_bounds_and_histograms(client: Client) -> None:
    page = client.get("columns").text
    assert "10.00% null by statistics; word 0 … word 3" in page
    assert "0.00% null by statistics; 0 … 249" in page
    assert "0.00% null by statistics; 2026-01-01 … 2026-09-07" in page
    assert "4 distinct of 90 sampled values: word 0, word 1, word 2, word 3" in page
    assert page.count('<svg class="bars"') == 7


def test_order_page_shows_the_plan_and_the_code_for_it(client: Client, dataset: str) -> None:
    settings = {"batch_size": 10, "shard_count": 3, "cur_shard": 2, "seed": 7, "shuffle_rows": "on"}
    page = client.get("order", **settings, last_batch="drop", filter='col("id") < 200', requests="on").text
    assert "3 ranks × 6 batches of 10 rows, 60 rows a rank" in page
    assert "200 of 250" in page
    assert "by rank 2; epoch 0: " in page
    assert "epoch 1: " in page
    assert "data:image/png" in page
    (code,) = re.findall(r'<pre class="code">(.*?)</pre>', page, re.DOTALL)
    code = code.replace("&#39;", "'").replace("&lt;", "<")
    assert "filters=col('id') < 200" in code
    ids: list[int] = []
    exec(code.replace("        ...\n", "        ids.extend(batch['id'].tolist())\n"), {"ids": ids})  # noqa: S102 - ours
    assert (len(ids), max(ids) < 200) == (60, True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": "many"}, "batch_size must be an integer"),
        ({"batch_size": "1000000", "shard_count": "1000"}, "at most 1,000,000"),
        ({"batch_size": "8", "shard_count": "2", "cur_shard": "5"}, "cur_shard must be from 0 to 1"),
        ({"batch_size": "8", "last_batch": "<b>"}, "last_batch must be one of"),
        ({"batch_size": "8", "shuffle_buffer_bytes": "2 gigs"}, "shuffle_buffer_bytes must be"),
        ({"batch_size": "8", "requests": "on", "price_per_gb": "much"}, "price_per_gb must be a number"),
    ],
)
def test_order_page_names_an_invalid_setting(client: Client, settings: dict[str, str], words: str) -> None:
    answer = client.get("order", **settings)
    assert (answer.status, words in answer.text, "<b>" in answer.text) == (200, True, False)


def test_reader_page_shows_metrics_and_their_rates(dataset: str) -> None:
    with make_reader(dataset, schema_fields=["id"]) as reader, serve(reader) as viewer:
        client = Client(viewer)
        first = client.get("reader")
        assert (first.status, first.headers["refresh"]) == (200, "2")
        for _ in zip(range(3), reader.iter_batches(10), strict=False):
            pass
        page = client.get("reader").text
        assert "next step 3" in page
        (value, rate) = re.findall(r"<td>items_consumed</td><td[^>]*>([\d.,]+)</td><td[^>]*>([\d.,]*)</td>", page)[0]
        assert int(value) >= 1
        assert float(rate.replace(",", "")) > 0


def test_reader_page_does_not_exist_without_a_reader(client: Client) -> None:
    assert client.get("reader").status == 404


def test_viewer_requires_the_token_and_sets_a_strict_cookie(client: Client) -> None:
    for path in ("/", "/schema", "/cell", "/view.css", "/none", "/?token=guess"):
        assert client.request(path).status == 403
    assert client.request("/", Cookie=f"petastore-view-{client.port}=guess").status == 403
    first = client.request(f"/schema?find=a%0Ab&token={client.token}")
    assert (first.status, first.headers["refresh"]) == (200, "0; url=/schema?find=a%0Ab")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.token not in first.text


def test_viewer_never_redirects_a_browser_to_another_host(client: Client) -> None:
    first = client.request(f"//evil.example/a?token={client.token}")
    assert first.headers["refresh"] == "0; url=/evil.example%2Fa?"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "evil.example:80", "[::1", "a@127.0.0.1"]
)
def test_viewer_rejects_other_host_names(client: Client, host: str) -> None:
    answer = client.request("/", Host=host, Cookie=client.cookie)
    assert (answer.status, "250 rows" in answer.text) == (403, False)


def test_viewer_accepts_a_forwarded_port_of_this_machine(client: Client) -> None:
    assert client.request("/schema", Host="localhost:9999", Cookie=client.cookie).status == 200


def test_viewer_rejects_methods_other_than_get(client: Client) -> None:
    assert client.request("/", method="POST", Cookie=client.cookie).status == 405


def test_every_response_has_the_security_headers(client: Client) -> None:
    answers = [client.get(path) for path in ("", "schema", "cell", "none", "view.css")] + [client.request("/")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "script" not in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert not any(word in client.get(page).text for page in ("", "columns") for word in ("<script", " style=", " on"))


def test_viewer_shows_the_reason_when_a_data_file_is_missing(tmp_path: Path) -> None:
    url = tmp_path / "gone"
    write_dataset(str(url), {"id": [1, 2, 3]})
    with serve(str(url)) as viewer:
        client = Client(viewer)
        assert client.get("").status == 200
        for file in url.rglob("*.parquet"):
            file.unlink()
        page = client.get("")
        assert (page.status, "problem" in page.text, "No such file" in page.text or "missing" in page.text) == (
            200, True, True,
        )  # fmt: skip
        assert client.get("row-groups").status == 400


def test_links_keep_the_filter_and_escape_it(client: Client) -> None:
    text = 'col("id") > 3 & "><b>'
    page = client.get("", filter=text).text
    assert "<b>" not in page
    assert urllib.parse.quote_plus("nothing") not in page


@pytest.mark.parametrize("number", [-(2**63) + 1, 2**60, 2**63 - 1])
def test_columns_page_shows_columns_of_one_value_of_any_size(tmp_path: Path, number: int) -> None:
    numbers = pa.array([number] * 5)
    columns = {unit: numbers.cast(pa.timestamp(unit)) for unit in ("us", "ns")}
    columns["day"] = pa.array([number % 2**32 - 2**31] * 5, pa.int32()).cast(pa.date32())
    columns["number"], columns["close"] = numbers, pa.array([2**60 + row for row in range(5)])
    columns["float"] = pa.array([row * 1e-320 for row in range(5)])
    pq.write_table(pa.table(columns), tmp_path / "numbers.parquet")
    with serve(str(tmp_path)) as viewer:
        page = Client(viewer).get("columns")
    assert page.status == 200
    assert page.text.count("histogram of 5 sampled values") == len(columns)


def test_columns_page_has_no_chart_of_nested_lists(tmp_path: Path) -> None:
    pq.write_table(pa.table({"lists": [[[1], [2, 3]], [[4]], None]}), tmp_path / "lists.parquet")
    with serve(str(tmp_path)) as viewer:
        page = Client(viewer).get("columns")
    assert page.status == 200
    assert "no chart of nested lists" in page.text
