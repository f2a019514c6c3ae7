"""Tests of null values in torch: an error with the column's name, masks, or fill values."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import petastore
from petastore import NGram, make_reader
from petastore.adapters.torch import DataLoader, Fill, ReaderDataset
from petastore.errors import DecodeError, InvalidArgumentError
from tests.adapters import nullable


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("nullable") / "data")
    petastore.write_dataset(url, nullable.SCHEMA, map(nullable.row, range(nullable.ROWS)), rows_per_row_group=6)
    return url


def plain(value: Any) -> Any:
    """Return a tensor or array as Python values."""
    return value.tolist() if isinstance(value, (torch.Tensor, np.ndarray)) else value


def expected(name: str, number: int) -> Any:
    if nullable.is_missing(name, number):
        return nullable.EMPTY[name]
    value = nullable.value(name, number)
    if name == "at":
        return int(value.astype("M8[ns]").astype(np.int64))
    return value.tolist() if hasattr(value, "tolist") else value


def test_loader_raises_at_construction_if_footers_count_missing_values(tmp_path: Path) -> None:
    values = [None if number == 990 else float(number) for number in range(1000)]
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet", row_group_size=100)
    with petastore.make_batch_reader(tmp_path, shuffle_row_groups=False) as reader:
        with pytest.raises(DecodeError, match=r"column 'x'"):
            DataLoader(reader, batch_size=10)
        assert len(list(DataLoader(reader, batch_size=10, nulls=0))) == 100


@pytest.mark.parametrize("open_reader", [petastore.make_reader, petastore.make_batch_reader])
def test_nulls_mask_marks_present_values(url: str, open_reader: Any) -> None:
    with open_reader(url, shuffle_row_groups=False) as reader:
        batches = list(DataLoader(reader, batch_size=5, nulls="mask"))
    assert list(batches[0])[:5] == ["id", "age", "age_valid", "height", "height_valid"]
    for name in nullable.NULLABLE:
        found = [plain(value) for batch in batches for value in batch[name]]
        assert found == [expected(name, number) for number in range(nullable.ROWS)], name
        valid = torch.cat([batch[f"{name}_valid"] for batch in batches])
        assert valid.dtype == torch.bool
        assert valid.tolist() == [not nullable.is_missing(name, number) for number in range(nullable.ROWS)], name


def test_fill_value_replaces_missing_values(url: str) -> None:
    nulls = {"age": -1, "height": float("nan"), "name": Fill("nobody"), "pose": [1, 2]}
    with petastore.make_reader(url, ["id", *nulls], shuffle_row_groups=False) as reader:
        batches = list(DataLoader(reader, batch_size=5, nulls=nulls))
    assert list(batches[0]) == ["id", *nulls]
    for name, value in (nulls | {"name": "nobody"}).items():
        found = [plain(one) for batch in batches for one in batch[name]]
        for number, one in enumerate(found):
            wanted = value if nullable.is_missing(name, number) else expected(name, number)
            np.testing.assert_array_equal(one, wanted)


def test_nulls_dict_raises_for_nulls_in_other_columns(url: str) -> None:
    with (
        petastore.make_reader(url, ["id", "age", "height"], shuffle_row_groups=False) as reader,
        pytest.raises(DecodeError, match=r"column 'height', .* Pass nulls=.* to DataLoader"),
    ):
        DataLoader(reader, batch_size=5, nulls={"age": 0})


def test_nulls_mask_works_with_padded_and_nested_tensors(url: str) -> None:
    for form in ("padded", "nested"):
        with petastore.make_reader(url, ["track"], shuffle_row_groups=False) as reader:
            batch = next(iter(DataLoader(reader, batch_size=23, nulls="mask", ragged=form)))
        lengths = [0 if nullable.is_missing("track", number) else number % 3 for number in range(nullable.ROWS)]
        if form == "padded":
            assert list(batch) == ["track", "track_lengths", "track_valid"]
            assert batch["track_lengths"].tolist() == lengths
        else:
            assert [len(cell) for cell in batch["track"]] == lengths


def test_nulls_mask_has_one_entry_per_row_of_a_window(url: str) -> None:
    windows = NGram({0: ["age", "name", "id"], 1: ["age", "name", "id"]}, 10, "id")
    with petastore.make_reader(url, windows, shuffle_row_groups=False) as reader:
        batch = next(iter(DataLoader(reader, batch_size=8, nulls="mask")))
    pairs = [(number, number + 1) for number in range(8)]
    for name in ("age", "name"):
        valid = [[not nullable.is_missing(name, number) for number in pair] for pair in pairs]
        assert batch[f"{name}_valid"].tolist() == valid
        assert plain(batch[name]) == [[expected(name, number) for number in pair] for pair in pairs]


def test_nulls_masks_are_copied_to_the_device(url: str) -> None:
    with petastore.make_reader(url, ["age", "name"], shuffle_row_groups=False) as reader:
        loader = DataLoader(reader, batch_size=23, device="cpu", nulls={"age": "mask", "name": Fill("nobody")})
        (batch,) = loader
    assert batch["age_valid"].tolist() == [not nullable.is_missing("age", number) for number in range(nullable.ROWS)]
    assert batch["name"].count("nobody") == sum(nullable.is_missing("name", number) for number in range(nullable.ROWS))


def test_nulls_work_in_reader_dataset_workers(url: str) -> None:
    dataset = ReaderDataset(url, ["age"], batch_size=23, shuffle_row_groups=False, nulls="mask")
    (batch,) = torch.utils.data.DataLoader(dataset, batch_size=None)
    assert batch["age"].tolist() == [expected("age", number) for number in range(nullable.ROWS)]
    assert not batch["age_valid"].all()
    with pytest.raises(
        InvalidArgumentError,
        match=r"nulls must be left out, got 'mask' for column 'age': this argument .*\. Set batch_size",
    ):
        ReaderDataset(url, ["age"], nulls="mask")


def test_collate_fn_rows_have_no_masks(url: str) -> None:
    with (
        petastore.make_reader(url, ["age"]) as reader,
        pytest.raises(
            InvalidArgumentError,
            match=r"nulls must be left out, got 'mask' for column 'age': .* collate_fn receives single rows\.",
        ),
    ):
        DataLoader(reader, batch_size=5, nulls="mask", collate_fn=list)


def test_transform_may_fill_missing_values(url: str) -> None:
    spec = petastore.TransformSpec(
        lambda columns: {"at": np.ma.masked_less(columns["id"], 3).astype("M8[s]").astype("M8[us]")},
        [("at", np.dtype("M8[us]"), (), True)],
        selected_fields=["at"],
        takes="columns",
    )
    with petastore.make_reader(url, ["id"], transform_spec=spec, shuffle_row_groups=False) as reader:
        batch = next(iter(DataLoader(reader, batch_size=5, nulls={"at": dt.datetime(2020, 1, 1, tzinfo=None)})))  # noqa: DTZ001
    assert batch["at"].tolist() == [1577836800 * 10**9] * 3 + [3 * 10**9, 4 * 10**9]


def test_nulls_mask_leaves_none_in_structs_and_maps(tmp_path: Path) -> None:
    table = pa.table(
        {
            "number": [1, None, 3],
            "point": [{"x": 1, "y": 2}, None, {"x": 3, "y": None}],
            "counts": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "structs.parquet")
    with make_reader(str(tmp_path), shuffle_row_groups=False) as reader:
        (batch,) = DataLoader(reader, batch_size=3, nulls="mask")
    assert batch["number"].tolist() == [1, 0, 3]
    assert batch["point"][:2] == [{"x": 1, "y": 2}, None]
    assert batch["counts"][1] is None
    for name in ("number", "point", "counts"):
        assert batch[f"{name}_valid"].tolist() == [True, False, True]
    with make_reader(str(tmp_path), ["point"], shuffle_row_groups=False) as reader:
        (batch,) = DataLoader(reader, batch_size=3, nulls={"point": Fill({"x": 0, "y": 0})})
    assert batch["point"][1] == {"x": 0, "y": 0}


def test_nulls_raises_for_a_misspelled_option_on_a_text_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"word": ["a", None]}), tmp_path / "words.parquet")
    with make_reader(str(tmp_path), shuffle_row_groups=False) as reader:
        with pytest.raises(
            InvalidArgumentError, match=r"^nulls must be 'error', 'mask' or a value for 'word', got 'masked'"
        ):
            DataLoader(reader, batch_size=2, nulls="masked")
        (batch,) = DataLoader(reader, batch_size=2, nulls=Fill("masked"))
    assert batch["word"] == ["a", "masked"]
