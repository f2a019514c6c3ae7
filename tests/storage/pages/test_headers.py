"""Headers that are usual are read quickly, and as those that are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from petastore.storage.pages import headers
from petastore.storage.pages.headers import read_header
from tests.storage.pages.many_pages import a_table, every_kind, page_places


@every_kind
def test_the_quick_way_reads_what_the_slow_one_reads(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(a_table(500), path, write_page_checksum=True, data_page_size=500, row_group_size=200, **options)
    data, quick = path.read_bytes(), {}
    for place in page_places(path):
        quick[place] = read_header(data, place)
    for pattern in ("_USUAL", "_USUAL_DICTIONARY"):
        monkeypatch.setattr(headers, pattern, re.compile(rb"(?!)"))
    for place, (header, after) in quick.items():
        slow, slow_after = read_header(data, place)
        assert after == slow_after
        assert {number: header[number] for number in (1, 3)} == {number: slow[number] for number in (1, 3)}
        assert (4 in header, header.get(8)) == (4 in slow, slow.get(8))
        if header[1] == 0:
            assert [header[5][number] for number in (1, 2, 3, 4)] == [slow[5][number] for number in (1, 2, 3, 4)]
    assert len(quick) > 10
