"""What is asked of a dataset and of its rows is refused where it is asked, and answered once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from petastore.codecs import ImageDecode
from petastore.errors import DatasetNotFoundError, InvalidArgumentError
from petastore.predicates import in_set
from petastore.readers.asked import CacheAsk, DatasetAsk, RowsAsk
from petastore.work.workers import Workers
from tests.readers.small import ROWS, written

DUMMY = Workers("dummy")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cache_type": "local_disk"}, "cache_type='local_disk'.*'null', 'local-disk'"),
        ({"cache_type": "local-disk", "cache_size_limit": -1}, "cache limit -1: it is a number of bytes"),
        ({"cache_type": "local-disk", "cache_location": 7}, "cache location 7: it is a local directory"),
    ],
    ids=str,
)
def test_a_cache_that_cannot_be_is_refused_before_anything_is_opened(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        CacheAsk(**asked)


def test_what_is_asked_of_a_cache_that_is_not_used_does_not_matter() -> None:
    assert not CacheAsk(None, cache_size_limit=-1).keeps


def test_a_dataset_is_opened_where_a_url_was_given_and_else_is_itself(tmp_path: Path) -> None:
    dataset = written(tmp_path / "data")
    opened = DatasetAsk(str(tmp_path / "data")).opened()
    assert opened.inventory.fingerprint == dataset.inventory.fingerprint
    assert DatasetAsk(dataset).opened().kept is dataset.kept
    with pytest.raises(DatasetNotFoundError, match="nowhere"):
        DatasetAsk(str(tmp_path / "nowhere")).opened()


def test_a_part_of_images_that_nobody_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="picture"):
        DatasetAsk(written(tmp_path), decode={"picture": ImageDecode(gray=True)}).opened()


def test_all_rows_need_no_selection(tmp_path: Path) -> None:
    assert RowsAsk().is_for_all
    assert RowsAsk().selected(written(tmp_path), workers=DUMMY) is None


@pytest.mark.parametrize(
    "asked", [{"filters": [("id", "<", 4)]}, {"predicate": in_set([0, 1, 2, 3], "id")}], ids=["filters", "predicate"]
)
def test_rows_that_were_asked_for_are_selected(tmp_path: Path, asked: dict[str, Any]) -> None:
    rows = RowsAsk(**asked, filter_cache=False)
    assert not rows.is_for_all
    selection = rows.selected(written(tmp_path), workers=DUMMY)
    assert selection is not None
    assert selection.counts.tolist() == [4, *[0] * (-(-ROWS // 5) - 1)]


def test_a_place_for_selections_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="filter_cache"):
        RowsAsk(filter_cache=7)  # type: ignore[arg-type]
