"""Tests of ragged columns in torch: lists, padded and nested tensors, and the automatic choice."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import petastore
from petastore import Unischema, UnischemaField
from petastore.adapters.column_plans import ColumnPlan
from petastore.adapters.ragged import Form
from petastore.adapters.torch import BatchedDataLoader, DataLoader, Padded, ReaderDataset
from petastore.adapters.torch.tensors import TorchForm, tensors_of
from petastore.codecs import NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError
from tests.tier import examples

# torch warns once per process about nested tensors that are not jagged.
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")

FIELDS = [
    UnischemaField("id", "int32"),
    UnischemaField("tokens", "uint16", (None,)),
    UnischemaField("track", "float32", (None, 2), NdarrayCodec()),
    UnischemaField("wave", "float32", (3, None), NdarrayCodec()),
    UnischemaField("page", "uint8", (None, None), NdarrayCodec()),
    UnischemaField("maybe", "float32", (None,), NdarrayCodec(), nullable=True),
    UnischemaField("words", str, (None,)),
]
NAMES = ["id", "tokens", "track", "wave", "page", "words"]
ROWS = 23


def ragged_row(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "tokens": np.arange(i % 4, dtype=np.uint16) + i,
        "track": np.full((i % 3, 2), i, np.float32),
        "wave": np.full((3, i % 5), i, np.float32),
        "page": np.full((i % 3, i % 4), i, np.uint8),
        "maybe": None if i == 5 else np.zeros(i % 2, np.float32),
        "words": ["x"] * (i % 2),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("ragged") / "rows")
    petastore.write_dataset(url, Unischema("rows", FIELDS), map(ragged_row, range(ROWS)), rows_per_row_group=6)
    return url


def batches(url: str, ragged: Any, **options: Any) -> list[dict[str, Any]]:
    with petastore.make_reader(url, NAMES, shuffle_rows=True, seed=2) as reader:
        return list(DataLoader(reader, batch_size=8, ragged=ragged, **options))


def assert_rows(batch: dict[str, Any], name: str, cells: Any) -> None:
    """Compare each cell with the written one."""
    assert len(cells) == len(batch["id"])
    for i, cell in zip(batch["id"].tolist(), cells, strict=True):
        wanted = ragged_row(i)[name]
        np.testing.assert_array_equal(cell.numpy(), wanted)


def test_ragged_default_is_a_list(url: str) -> None:
    for asked in ({}, {"ragged": "list"}, {"ragged": {"tokens": "list"}}):
        with petastore.make_reader(url, ["id", "tokens"]) as reader:
            (batch,) = DataLoader(reader, batch_size=ROWS, **asked)
        assert isinstance(batch["tokens"], list)
        assert_rows(batch, "tokens", batch["tokens"])


def test_ragged_padded_adds_a_lengths_column(url: str) -> None:
    for batch in batches(url, "padded"):
        assert list(batch) == [
            "id", "tokens", "tokens_lengths", "track", "track_lengths", "wave", "wave_lengths", "page", "page_lengths",
            "words",
        ]  # fmt: skip
        rows = len(batch["id"])
        assert batch["tokens"].dtype is torch.int32
        assert batch["tokens_lengths"].dtype is torch.int64
        assert batch["tokens_lengths"].shape == (rows,)
        assert batch["page_lengths"].shape == (rows, 2)
        assert batch["track"].shape[2:] == (2,)
        assert batch["wave"].shape[:2] == (rows, 3)
        assert isinstance(batch["words"], list)
        lengths = batch["tokens_lengths"].tolist()
        assert batch["tokens"].shape[1] == max(lengths)
        assert_rows(batch, "tokens", [row[:length] for row, length in zip(batch["tokens"], lengths, strict=True)])
        assert all((row[length:] == 0).all() for row, length in zip(batch["tokens"], lengths, strict=True))
        waves = zip(batch["wave"], batch["wave_lengths"], strict=True)
        assert_rows(batch, "wave", [row[:, :length] for row, length in waves])
        pages = zip(batch["page"], batch["page_lengths"].tolist(), strict=True)
        assert_rows(batch, "page", [row[:high, :wide] for row, (high, wide) in pages])


def test_ragged_padded_accepts_a_fill_value(url: str) -> None:
    for batch in batches(url, {"track": Padded(float("nan")), "page": Padded(255)}):
        assert isinstance(batch["tokens"], list)
        for row, length in zip(batch["track"], batch["track_lengths"], strict=True):
            assert row[length:].isnan().all()
            assert not row[:length].isnan().any()
        assert (batch["page"][batch["page_lengths"][:, 0] == 0] == 255).all()


def test_ragged_nested_is_jagged_for_one_variable_dimension(url: str) -> None:
    for batch in batches(url, "nested"):
        for name in ("tokens", "track", "wave"):
            assert batch[name].layout is torch.jagged
            assert_rows(batch, name, batch[name].unbind())
        assert batch["page"].layout is torch.strided
        assert_rows(batch, "page", batch["page"].unbind())
        assert batch["track"].size(0) == len(batch["id"])


def test_ragged_dict_sets_forms_by_column(url: str) -> None:
    for batch in batches(url, {"track": "nested", "tokens": "padded", "wave": "list"}):
        assert batch["track"].is_nested
        assert not batch["tokens"].is_nested
        assert isinstance(batch["wave"], list)
        assert isinstance(batch["page"], list)


FORMS: list[Form] = [Padded(0), "nested"]


@settings(deadline=None, max_examples=examples(40))
@given(
    shape=st.sampled_from([(None,), (None, 2), (2, None), (None, None), (2, None, 3), (None, 0)]),
    lengths=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=5),
    form=st.sampled_from(FORMS),
)
def test_ragged_forms_contain_the_same_cells(
    shape: tuple[int | None, ...], lengths: list[tuple[int, int]], form: Form
) -> None:
    field = UnischemaField("x", "int64", shape)
    free = [axis for axis, size in enumerate(shape) if size is None]
    column: NDArray[Any] = np.empty(len(lengths), dtype=object)
    for row, drawn in enumerate(lengths):
        sizes = [size or 0 for size in shape]
        for axis, length in zip(free, drawn, strict=False):
            sizes[axis] = length
        column[row] = np.arange(row, row + np.prod(sizes)).reshape(sizes)
    tensors = tensors_of(ColumnPlan(field, form), column)
    if form == "nested":
        (cells,) = (tensor.unbind() for tensor in tensors.values()) if len(column) else ([],)
    else:
        ends = tensors["x_lengths"].reshape(len(column), len(free)).tolist()
        cells = []
        for row, end in zip(tensors["x"], ends, strict=True):
            corner = [slice(None)] * len(shape)
            for axis, length in zip(free, end, strict=True):
                corner[axis] = slice(length)
            cells.append(row[tuple(corner)])
    for cell, wanted in zip(cells, column, strict=True):
        np.testing.assert_array_equal(cell.numpy(), wanted)


@pytest.mark.parametrize("form", ["padded", "nested"])
def test_ragged_raises_for_nulls_except_in_lists(url: str, form: TorchForm) -> None:
    with petastore.make_reader(url, ["maybe"]) as reader:
        (batch,) = DataLoader(reader, batch_size=ROWS)
        assert sum(cell is None for cell in batch["maybe"]) == 1
        with pytest.raises(DecodeError, match=r"column 'maybe': nulls= must be set .* 1 of 23 values missing\."):
            list(DataLoader(reader, batch_size=ROWS, ragged=form))


def test_invalid_ragged_options_raise_at_the_call(url: str) -> None:
    with petastore.make_reader(url, NAMES) as reader:
        with pytest.raises(
            InvalidArgumentError,
            match=r"ragged must be 'auto', 'list', 'dense', 'padded', 'nested' or Padded\(value\), for all columns",
        ):
            DataLoader(reader, batch_size=4, ragged="ragged")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="'words', whose values are str"):
            DataLoader(reader, batch_size=4, ragged={"words": "nested"})
        with pytest.raises(
            InvalidArgumentError,
            match=r"ragged must be left out, got Padded\(value=0\) for column '\w+': .* receives single rows\.",
        ):
            DataLoader(reader, batch_size=4, ragged="padded", collate_fn=list)
        with pytest.raises(
            InvalidArgumentError, match="ragged must pad column 'tokens' with a value that uint16 can hold, got -1"
        ):
            DataLoader(reader, batch_size=4, ragged={"tokens": Padded(-1)})
    with pytest.raises(
        InvalidArgumentError,
        match=r"ragged must be left out, got Padded\(value=0\) for column '\w+': this argument .*\. Set batch_size",
    ):
        ReaderDataset(url, NAMES, ragged="padded")


@pytest.mark.parametrize("form", ["padded", {"tokens": "nested", "track": "nested"}])
@pytest.mark.parametrize("workers", [0, 1])
def test_ragged_works_in_worker_processes(url: str, form: Any, workers: int) -> None:
    dataset = ReaderDataset(url, ["id", "tokens", "track"], batch_size=8, ragged=form)
    seen = 0
    for batch in torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=workers):
        nested = batch["tokens"].is_nested
        rows = batch["tokens"].unbind() if nested else zip(batch["tokens"], batch["tokens_lengths"], strict=True)
        assert_rows(batch, "tokens", [row if nested else row[0][: row[1]] for row in rows])
        seen += len(batch["id"])
    assert seen == ROWS


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write plain Parquet with lists of equal length, lists of different lengths, and a null list; return the URL."""
    folder = tmp_path_factory.mktemp("lists")
    columns = {
        "id": list(range(6)),
        "embedding": [[float(n), -float(n)] for n in range(6)],
        "track": [[n] * (1 + n // 4) for n in range(6)],
        "gone": [[1, 2], [3, 4], None, [5, 6], [7, 8], [9, 10]],
        "words": [["a", "b"]] * 6,
        "pages": [[[n], [n]] for n in range(6)],
    }
    pq.write_table(pa.table(columns), folder / "plain.parquet")
    return str(folder)


@pytest.mark.parametrize("make", [petastore.make_reader, petastore.make_batch_reader])
def test_ragged_auto_gives_list_columns_the_same_type_in_all_batches(lists: str, make: Any) -> None:
    with make(lists, shuffle_row_groups=False) as reader:
        first, second = DataLoader(reader, batch_size=3)
    assert first["embedding"].tolist() == [[0.0, 0.0], [1.0, -1.0], [2.0, -2.0]]
    assert [cell.tolist() for cell in first["track"]] == [[0], [1], [2]]
    assert [cell.tolist() for cell in second["track"]] == [[3], [4, 4], [5, 5]]
    assert first["gone"][2] is None
    assert [cell.tolist() for cell in second["gone"]] == [[5, 6], [7, 8], [9, 10]]
    for name in first:
        assert type(first[name]) is type(second[name])
    assert isinstance(first["words"], list)
    assert isinstance(first["pages"], list)


def test_ragged_auto_depends_on_the_dataset_and_not_on_batches(tmp_path: Path) -> None:
    rows = [[n] * (2 if n < 2000 else 3) for n in range(2100)]
    pq.write_table(pa.table({"x": rows}), tmp_path / "late.parquet", row_group_size=100)
    with petastore.make_reader(str(tmp_path), shuffle_rows=True, seed=0, num_epochs=2) as reader:
        with pytest.raises(
            DecodeError,
            match=r"column 'x': the values of a batch must have one shape to be stacked, got .* Set ragged=",
        ):
            list(DataLoader(reader, batch_size=64))
        assert {type(batch["x"]) for batch in DataLoader(reader, batch_size=1, ragged="list")} == {list}
    with petastore.make_reader(str(tmp_path), transform_spec=lambda row: row) as reader:
        assert {type(batch["x"]) for batch in DataLoader(reader, batch_size=1)} == {list}


def test_ragged_works_in_batched_dataloader_and_reader_dataset(lists: str) -> None:
    with petastore.make_reader(lists, ["embedding"], shuffle_row_groups=False) as reader:
        (batched,) = BatchedDataLoader(reader, batch_size=6)
    assert batched["embedding"].shape == (6, 2)
    rows = ReaderDataset(lists, ["embedding"], batch_size=6)
    (batch,) = torch.utils.data.DataLoader(rows, batch_size=None)
    assert batch["embedding"].shape == (6, 2)


def test_ragged_explicit_form_overrides_auto(lists: str, url: str) -> None:
    with petastore.make_reader(lists, ["embedding", "track", "pages"], shuffle_row_groups=False) as reader:
        (batch,) = DataLoader(reader, batch_size=6, ragged={"embedding": "list", "pages": "dense"})
        assert isinstance(batch["embedding"], list)
        assert batch["pages"].shape == (6, 2, 1)
        with pytest.raises(
            DecodeError, match=r"column 'track': the values of a batch must have one shape .*, got \(1,\) and \(2,\)"
        ):
            list(DataLoader(reader, batch_size=6, ragged="dense"))
    with petastore.make_reader(url, ["maybe"]) as reader, pytest.raises(DecodeError, match=r"1 of 23 values missing\."):
        list(DataLoader(reader, batch_size=ROWS, ragged="dense"))


def test_ragged_auto_samples_the_first_file_on_this_host(tmp_path: Path) -> None:
    for name, rows in (("a", [[1.0, 2.0], [3.0]]), ("b", [[1.0, 2.0], [3.0, 4.0]])):
        pq.write_table(pa.table({"x": pa.array(rows, pa.list_(pa.float64()))}), tmp_path / f"{name}.parquet")
    dataset = petastore.open_dataset(str(tmp_path))
    (tmp_path / "a.parquet").unlink()  # as if that file were on the host of rank 0
    with petastore.make_batch_reader(dataset, cur_shard=1, shard_count=2, shuffle_row_groups=False) as reader:
        (batch,) = DataLoader(reader, batch_size=2)
    assert batch["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("sizes", [(1, 8), (2, 2, 5)])
def test_ragged_auto_samples_several_small_row_groups(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    rows = [[0, 0]] * sum(sizes[:-1]) + [[n] * (n % 3 + 1) for n in range(sizes[-1])]
    borders = np.cumsum((0, *sizes))
    for number, (first, stop) in enumerate(itertools.pairwise(borders)):
        pq.write_table(pa.table({"x": rows[first:stop]}), tmp_path / f"{number}.parquet")
    with petastore.make_batch_reader(str(tmp_path), shuffle_row_groups=False) as reader:
        batches = list(DataLoader(reader, batch_size=4))
    assert [cell.tolist() for batch in batches for cell in batch["x"]] == rows
