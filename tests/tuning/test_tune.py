"""Tests of `tune`: arguments and code, time limit, cache, filters, transforms, and cleanup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, col, make_reader, open_dataset, write_dataset
from petastore.errors import DatasetNotFoundError, InvalidArgumentError, NoDataAvailableError
from petastore.selectors import RowGroupSelectorBase
from petastore.testing.faults import Faults, FaultyFileSystem
from petastore.tuning import Tried, Tuned, tune

if TYPE_CHECKING:
    from petastore.readers.options import PassedKwargs


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tuning") / "numbers"
    write_dataset(path, {"id": np.arange(1000)}, rows_per_row_group=25)
    return path


def tuned(dataset: Any, seconds: float = 0.3, **more: Any) -> Tuned:
    return tune(dataset, batch_size=20, seconds=seconds, **more)


def test_tune_returns_arguments_code_and_evidence(dataset: Path) -> None:
    found = tuned(dataset, shuffle_rows=True)
    assert found.tried[0].arguments == {}
    assert found.tried[0].rates
    assert all(one.median == np.median(one.rates) for one in found.tried if one.rates)
    assert found.tried[0].ratio == 1.0
    assert found.winner in found.tried
    assert found.best == {"shuffle_rows": True, **found.winner.arguments}
    shown = str(found)
    assert repr(found) == shown
    assert all(str(one) in shown for one in found.tried)
    assert found.advice in shown
    assert shown.endswith(found.code)
    with eval(found.code, {"make_reader": make_reader}) as reader:  # noqa: S307 - code that is meant to be copied
        assert sorted(int(row.id) for row in reader) == list(range(1000))


def test_tune_reports_progress_up_to_the_end(dataset: Path) -> None:
    shown: list[tuple[int, int]] = []
    tuned(dataset, on_progress=lambda *counts: shown.append(counts))
    assert shown == sorted(shown)
    assert shown[0][0] == 0
    assert shown[-1][0] == shown[-1][1]


def test_tune_measures_rows_when_no_batch_size_is_given(dataset: Path) -> None:
    assert tune(dataset, seconds=0.3).tried[0].median > 0


def test_tune_tries_a_cache_on_slow_storage_and_deletes_it(dataset: Path, tmp_path: Path) -> None:
    files = FaultyFileSystem(Faults(slow=1.0, slow_s=0.1))
    found = tuned(dataset, 6, filesystem=files, cache_location=tmp_path / "cache")
    assert any("cache_type" in one.arguments for one in found.tried)
    assert list((tmp_path / "cache").iterdir()) == []
    assert found.best["filesystem"] is files
    assert "filesystem=filesystem" in found.code


def test_tune_tries_no_cache_when_the_cache_location_is_not_writable(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    files = FaultyFileSystem(Faults(slow=1.0, slow_s=0.02))
    found = tuned(dataset, 1, filesystem=files, cache_location=tmp_path / "file")
    assert not any("cache_type" in one.arguments for one in found.tried)


def test_tune_measures_only_row_groups_that_filters_and_selectors_select(dataset: Path) -> None:
    class Last(RowGroupSelectorBase):
        def get_index_names(self) -> list[str]:
            return []

        def select_row_groups(self, index_dict: Any) -> set[int]:
            return {38} - set(index_dict)

    opened = open_dataset([dataset])
    assert tuned(opened, filters=col("id") == 951, filter_cache=False).tried[0].median > 0
    assert tuned(opened, rowgroup_selector=Last()).tried[0].median > 0
    with (
        pytest.warns(UserWarning, match="none of the 1,000 rows"),
        pytest.raises(NoDataAvailableError, match="must have rows that the filters select, got none"),
    ):
        tuned(opened, filters=col("id") == -1, filter_cache=False)


def test_tune_tries_processes_for_a_transform(dataset: Path) -> None:
    found = tuned(dataset, transform_spec=dict, shuffle_rows=True)
    assert 'reader_pool_type="process", workers_count=1' in [str(one) for one in found.tried]


def test_tune_rejects_invalid_arguments(dataset: Path, tmp_path: Path) -> None:
    for seconds in (0, -1, "7", True, float("nan"), float("inf")):
        with pytest.raises(InvalidArgumentError, match=f"seconds must be a number above 0, got {seconds!r}. 60 is"):
            tune(dataset, seconds=seconds)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match=r"batch_size must be .*, got 0"):
        tune(dataset, batch_size=0)
    with pytest.raises(InvalidArgumentError, match=r"workers_count must be .*, got 0"):
        tune(dataset, workers_count=0)
    with pytest.raises(TypeError, match="wokers_count"):
        tune(dataset, wokers_count=1)  # type: ignore[call-arg]
    with pytest.raises(DatasetNotFoundError):
        tune(tmp_path / "nothing")
    write_dataset(tmp_path / "empty", Unischema("Empty", [UnischemaField("id", np.int64)]), [])
    with pytest.raises(NoDataAvailableError, match="must have rows"):
        tune(tmp_path / "empty")


def advice(**arguments: Unpack[PassedKwargs]) -> str:
    winner = Tried(arguments, (1.5,), 1.5)
    return Tuned("numbers", (Tried({}, (1.0,), 1.0), winner), winner, arguments, 4).advice


def test_tune_advice_explains_why_a_setting_is_faster() -> None:
    assert advice() == "Keep your arguments: no other setting was clearly faster, by more than 3 %."
    assert advice(workers_count=1) == ("Set workers_count=1: 1.50 times your rate; fewer threads are faster here.")
    assert "more workers are faster here" in advice(workers_count=8)
    assert "the transform runs faster in processes." in advice(reader_pool_type="process", workers_count=4)
    assert advice(cache_type="local-disk", workers_count=1).endswith(
        "fewer threads are faster here; the first epoch fills the cache and later ones read from it."
    )


def test_tune_result_lists_settings_not_measured_for_lack_of_time() -> None:
    untried = Tried({"workers_count": 9}, (), 0.0)
    mine = Tried({}, (2.0, 1.0), 1.0)
    found = Tuned("numbers", (mine, untried), mine, {}, 2)
    assert "workers_count=9  not tried: raise seconds" in str(found)
    tried: Any = found.as_json()["tried"]
    assert tried[1] == {
        "arguments": {"workers_count": 9},
        "rows_per_second": (),
        "median_rows_per_second": 0.0,
        "ratio": 0.0,
    }
