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


def test_no_usual_header_has_fewer_than_no_bytes_behind_it(tmp_path: Path) -> None:
    """Whoever goes from page to page by their sizes would not come to an end."""
    path = tmp_path / "x.parquet"
    pq.write_table(a_table(500), path, write_page_checksum=True, data_page_size=500, row_group_size=200)
    data = path.read_bytes()
    for pattern in (headers._USUAL, headers._USUAL_DICTIONARY):
        usual = [found for place in page_places(path) if (found := pattern.match(data, place)) is not None]
        assert len(usual) > 10
        for found in usual:
            first = found.start(1)
            below_0 = data[:first] + bytes([data[first] | 1]) + data[first + 1 :]
            with pytest.raises(ValueError, match="nor how long that is"):
                read_header(below_0, found.start())
