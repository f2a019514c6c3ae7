"""The torch loader: types, shared memory, length, passes, collating and pinning.

Arrays of every dtype and layout come from a reader in memory; `test_torch_datasets.py` reads real datasets.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from petastore.adapters.torch import DataLoader, decimal_friendly_collate
from petastore.adapters.torch.tensors import BatchTensors
from petastore.decoding.decode import Decoded
from petastore.errors import DecodeError, RequestError
from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest, Shard
from petastore.readers.batch import Batch, Columns
from petastore.schema import Unischema, UnischemaField


class InMemory:
    """The part of a reader that adapters use, over columns at hand."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], *, num_epochs: int | None = 1) -> None:
        self.columns = columns
        self.num_rows = len(next(iter(columns.values())))
        self.num_epochs = num_epochs
        self.schema = Unischema("columns", [UnischemaField(name, column.dtype) for name, column in columns.items()])
        order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
        self.plan = Plan(Inventory.of_rows([self.num_rows]), ReadRequest(tuple(columns), order, Shard()))
        self.last_row_consumed = False
        self.resets = 0
        self.calls: list[int] = []

    def steps_per_epoch(self, batch_size: int) -> int:
        return self.plan.steps_per_epoch(batch_size)

    def batches(self, n: int) -> Iterator[Batch]:
        self.calls.append(n)
        for epoch in range(1_000_000 if self.num_epochs is None else self.num_epochs):
            for first in range(0, self.num_rows, n):
                part = {name: column[first : first + n] for name, column in self.columns.items()}
                columns = Columns({name: decoded(column) for name, column in part.items()})
                yield Batch(columns, 0, len(next(iter(part.values()))), Cursor(epoch, first))

    def reset(self) -> None:
        self.resets += 1


ReaderInMemory: Any = InMemory  # it does what loaders ask of a reader, and is none


def decoded(column: NDArray[Any]) -> Decoded:
    """A column as readers have it."""
    if isinstance(column, np.ma.MaskedArray):
        return Decoded(column.data, np.ma.getmaskarray(column))
    return Decoded(column, None)


def only_batch(**columns: NDArray[Any]) -> dict[str, Any]:
    """The one batch of a reader over these columns."""
    reader = ReaderInMemory(columns)
    (batch,) = DataLoader(reader, batch_size=reader.num_rows)
    assert isinstance(batch, dict)
    return batch


def objects(*values: Any) -> NDArray[Any]:
    """An object array of these values."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


SAME_DTYPE = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
]


@pytest.mark.parametrize("name", SAME_DTYPE)
def test_a_tensor_has_the_dtype_of_its_column_and_its_memory(name: str) -> None:
    column = np.arange(6).astype(name).reshape(3, 2)
    tensor = only_batch(x=column)["x"]
    assert tensor.dtype is getattr(torch, name)
    assert np.array_equal(tensor.numpy(), column)
    assert tensor.data_ptr() == column.ctypes.data


@pytest.mark.parametrize(("stored", "promoted"), [("uint16", torch.int32), ("uint32", torch.int64)])
def test_small_unsigned_integers_are_promoted_and_keep_their_values(stored: str, promoted: torch.dtype) -> None:
    column = np.array([0, np.iinfo(stored).max], dtype=stored)
    tensor = only_batch(x=column)["x"]
    assert tensor.dtype is promoted
    assert tensor.tolist() == column.tolist()


def test_times_become_nanoseconds() -> None:
    batch = only_batch(
        at=np.array(["1970-01-01T00:00:01"], dtype="datetime64[us]"), took=np.array([3], dtype="timedelta64[ms]")
    )
    assert batch["at"].tolist() == [10**9]
    assert batch["took"].tolist() == [3 * 10**6]
    assert batch["at"].dtype is batch["took"].dtype is torch.int64


def test_a_time_beyond_64_bits_of_nanoseconds_is_refused() -> None:
    with pytest.raises(DecodeError, match="column 'at': 3000-01-01 is no whole number of nanoseconds"):
        only_batch(at=np.array(["3000-01-01"], dtype="datetime64[D]"))


def test_text_bytes_and_decimals_stay_python_values() -> None:
    batch = only_batch(t=objects("ü", None), b=objects(b"\0", b""), d=objects(Decimal("1.50"), Decimal(2)))
    assert batch == {"t": ["ü", None], "b": [b"\0", b""], "d": [Decimal("1.50"), Decimal(2)]}


def test_free_shapes_are_a_list_of_tensors_sharing_memory_and_none_where_missing() -> None:
    first, second = np.zeros((2, 3), np.uint8), np.ones((0, 3), np.uint16)
    tensors = only_batch(x=objects(first, second, None))["x"]
    assert tensors[0].data_ptr() == first.ctypes.data
    assert (tensors[1].shape, tensors[1].dtype) == ((0, 3), torch.int32)
    assert tensors[2] is None


def test_free_shapes_of_text_are_lists() -> None:
    assert only_batch(x=objects(objects("a", "b"), np.array(["c"])))["x"] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    "column",
    [
        np.arange(6)[::-1],
        np.arange(6, dtype=">i4"),
        np.frombuffer(np.arange(6, dtype="<i2").tobytes(), "<i2"),
        np.frombuffer(b"\0" + np.arange(6, dtype="<i8").tobytes(), "<i8", offset=1),
        np.zeros(6, dtype=[("a", "<i4"), ("b", "i1")])["a"],
    ],
    ids=["backwards", "big-endian", "read-only", "unaligned", "field of records"],
)
def test_an_array_that_torch_cannot_share_is_copied(column: NDArray[Any]) -> None:
    with warnings.catch_warnings(action="error"):
        tensor = only_batch(x=column)["x"]
    assert tensor.tolist() == column.tolist()
    tensor[0] = 99
    assert 99 not in column.tolist()


def test_missing_numbers_are_refused_with_their_column_and_number() -> None:
    ages = np.ma.MaskedArray([1, 2, 3], mask=[True, False, True])
    with pytest.raises(
        DecodeError, match=r"column 'age': 2 of 3 values are missing.*nulls=.*transform_spec.*schema_fields"
    ):
        only_batch(age=ages)


def test_a_masked_array_without_missing_values_is_shared() -> None:
    column = np.arange(3.0)
    assert only_batch(x=np.ma.MaskedArray(column, mask=[False] * 3))["x"].data_ptr() == column.ctypes.data


def test_valid_of_a_padded_batch_is_a_boolean_tensor() -> None:
    assert only_batch(id=np.arange(2), valid=np.array([True, False]))["valid"].dtype is torch.bool


def test_extended_precision_is_refused_when_the_loader_is_made() -> None:
    with pytest.raises(RequestError, match="column 'x' is float128, and torch has no extended precision"):
        DataLoader(ReaderInMemory({"x": np.zeros(2, np.longdouble)}))


def test_it_is_a_torch_loader_with_the_attributes_of_one() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}, num_epochs=2), 4)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert isinstance(loader.dataset, torch.utils.data.IterableDataset)
    assert (loader.batch_size, loader.num_workers, loader.drop_last, loader.pin_memory) == (4, 0, False, False)
    assert loader.collate_fn is decimal_friendly_collate
    assert len(loader) == 6 == len(list(loader))
    assert len(loader.dataset) == 20 == len(list(loader.dataset))  # type: ignore[arg-type]


def test_an_endless_loader_has_no_length_and_says_why() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}, num_epochs=None), 4)
    with pytest.raises(TypeError, match="num_epochs=None is endless"):
        len(loader)
    batches = iter(loader)
    assert [next(batches)["id"].tolist() for _ in range(4)][-1] == [0, 1, 2, 3]


def test_a_loader_without_rows_has_no_batches() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(0)}), 4)
    assert len(loader) == 0 == len(list(loader))


def test_each_for_is_a_whole_pass_also_after_a_break() -> None:
    reader = ReaderInMemory({"id": np.arange(10)})
    loader = DataLoader(reader, 4)
    whole = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [batch["id"].tolist() for batch in loader] == whole
    assert reader.resets == 0
    for batch in loader:
        assert batch["id"].tolist() == whole[0]
        break
    assert next(iter(loader))["id"].tolist() == whole[0]
    assert [batch["id"].tolist() for batch in loader] == whole
    assert reader.resets == 3
    assert reader.calls == [4] * 4


def test_of_two_iterators_at_once_the_older_one_says_so() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}), 4)
    older, newer = iter(loader), iter(loader)
    assert next(older)["id"].tolist() == next(newer)["id"].tolist() == [0, 1, 2, 3]
    with pytest.raises(RequestError, match="the loader was iterated again"):
        next(older)
    assert [batch["id"].tolist() for batch in newer] == [[4, 5, 6, 7], [8, 9]]


def test_rows_of_the_dataset_and_batches_of_the_loader_are_one_reader() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}), 4)
    rows = iter(loader.dataset)
    assert next(rows) == {"id": 0}
    assert len(list(loader)) == 3
    with pytest.raises(RequestError, match="the loader was iterated again"):
        list(rows)


def test_an_error_of_the_reader_arrives_as_it_is_and_the_next_pass_is_whole() -> None:
    class Failing(InMemory):
        def batches(self, n: int) -> Iterator[Batch]:
            for number, batch in enumerate(super().batches(n)):
                if number == 1 and self.resets == 0:
                    raise DecodeError("the png is damaged", column="image")
                yield batch

    failing: Any = Failing
    loader = DataLoader(failing({"id": np.arange(10)}), 4)
    with pytest.raises(DecodeError, match="column 'image': the png is damaged"):
        list(loader)
    assert len(list(loader)) == 3


def test_a_collate_function_gets_rows_as_dicts_with_the_types_of_tensors() -> None:
    seen: list[list[dict[str, Any]]] = []
    columns = {
        "id": np.arange(3, dtype=np.uint16),
        "xy": np.arange(6.0).reshape(3, 2),
        "at": np.array([1, 2, 3], dtype="datetime64[us]"),
        "age": np.ma.MaskedArray([7, 8, 9], mask=[False, True, False]),
        "name": objects("a", None, "c"),
        "free": objects(np.zeros(1), np.zeros((2,), "uint32"), None),
    }

    def collate(rows: list[dict[str, Any]]) -> int:
        seen.append(rows)
        return len(rows)

    loader = DataLoader(ReaderInMemory(columns), 2, collate)
    assert loader.collate_fn is collate
    assert list(loader) == [2, 1]
    rows = [row for batch in seen for row in batch]
    assert [row["id"] for row in rows] == [0, 1, 2]
    assert rows[0]["id"].dtype == np.int32
    assert [row["xy"].tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]
    assert [row["at"] for row in rows] == [1000, 2000, 3000]
    assert [row["age"] for row in rows] == [7, None, 9]
    assert [row["name"] for row in rows] == ["a", None, "c"]
    assert rows[1]["free"].dtype == np.int64
    assert rows[2]["free"] is None


def test_whole_columns_equal_rows_that_were_collated() -> None:
    columns: dict[str, NDArray[Any]] = {name: np.arange(6).astype(name).reshape(3, 2) for name in SAME_DTYPE}
    columns |= {"u2": np.arange(3, dtype="u2"), "at": np.arange(3).astype("datetime64[s]"), "t": objects("a", "b", "c")}
    columns |= {
        "scalar": np.arange(3, dtype="f4"),
        "flag": np.array([True, False, True]),
        "d": objects(*map(Decimal, "123")),
    }
    columns |= {"free": objects(np.zeros(1), np.ones(2), np.zeros(0))}
    (by_columns,) = DataLoader(ReaderInMemory(columns), 3)
    (by_rows,) = DataLoader(ReaderInMemory(columns), 3, lambda rows: decimal_friendly_collate(rows))
    assert list(by_columns) == list(by_rows)
    for name, whole in by_columns.items():
        if isinstance(whole, torch.Tensor):
            assert whole.dtype is by_rows[name].dtype
            assert torch.equal(whole, by_rows[name])
        elif name == "free":
            assert all(map(torch.equal, whole, by_rows[name]))
        else:
            assert whole == by_rows[name]


def test_petastorms_collate_function_names_the_column_of_a_missing_value() -> None:
    loader = DataLoader(
        ReaderInMemory({"age": np.ma.MaskedArray([1, 2], mask=[False, True])}),
        2,
        lambda rows: decimal_friendly_collate(rows),
    )
    with pytest.raises(DecodeError, match="column 'age': 1 of 2 values is missing"):
        list(loader)


def test_petastorms_collate_function_takes_nested_rows() -> None:
    rows = [{0: {"id": np.int32(i)}, 1: {"t": "x"}} for i in range(2)]
    collated = decimal_friendly_collate(rows)
    assert collated[0]["id"].tolist() == [0, 1]
    assert collated[1] == {"t": ["x", "x"]}


def test_petastorms_collate_function_given_by_name_needs_no_rows() -> None:
    column = np.arange(3)
    (batch,) = DataLoader(ReaderInMemory({"id": column}), 3, decimal_friendly_collate)
    assert batch["id"].data_ptr() == column.ctypes.data


def test_the_shuffling_queue_is_accepted_and_says_once_that_it_does_nothing() -> None:
    reader = ReaderInMemory({"id": np.arange(3)})
    with pytest.warns(UserWarning, match=r"shuffling_queue_capacity=1000 does nothing.*shuffle_rows=True") as caught:
        loader = DataLoader(reader, 2, None, 1000)
    assert [len(batch["id"]) for batch in loader] == [2, 1]
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_workers": 2}, r"num_workers=2 cannot be: the reader has its own workers.*workers_count"),
        ({"shuffle": True}, "shuffle_rows=True"),
        ({"drop_last": True}, "tail='drop'"),
        ({"sampler": [1]}, "cur_shard"),
        ({"batch_size": 0}, "batch_size is a number of rows from 1, but 0 was given"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused_with_what_to_do(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        DataLoader(ReaderInMemory({"id": np.arange(3)}), **options)


def test_torchs_options_are_taken_at_their_neutral_value_and_unknown_ones_refused() -> None:
    reader = ReaderInMemory({"id": np.arange(3)})
    loader = DataLoader(
        reader, 2, num_workers=0, shuffle=False, drop_last=False, sampler=None, timeout=0, in_order=True
    )
    assert len(loader) == 2
    with pytest.raises(TypeError, match="no option 'bach_size'"):
        DataLoader(reader, bach_size=2)  # type: ignore[call-arg]


def test_rows_are_not_read_by_worker_processes_of_a_loader_that_was_made_again() -> None:
    # Some frameworks take a loader apart and build another one from its attributes.
    loader = DataLoader(ReaderInMemory({"id": np.arange(10)}), 4)
    again = torch.utils.data.DataLoader(loader.dataset, loader.batch_size, collate_fn=loader.collate_fn)
    assert [batch["id"].tolist() for batch in again] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    apart = torch.utils.data.DataLoader(loader.dataset, 4, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(RequestError, match="num_workers is not 0"):
        list(apart)


def test_pinning_is_left_to_torch_which_pins_where_there_is_an_accelerator_and_warns_where_not() -> None:
    loader = DataLoader(ReaderInMemory({"id": np.arange(3)}), 2, pin_memory=True)
    assert loader.pin_memory
    if torch.accelerator.is_available():
        assert all(batch["id"].is_pinned() for batch in loader)
    else:
        with pytest.warns(UserWarning, match="no accelerator is found"):
            assert [batch["id"].tolist() for batch in loader] == [[0, 1], [2]]


def test_without_torch_the_import_says_what_to_install() -> None:
    script = "import sys; sys.modules['torch'] = None\nimport petastore.adapters.torch"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MissingExtraError: petastore.adapters.torch needs the package 'torch'" in done.stderr
    assert "pip install 'petastore[torch]'" in done.stderr


def test_batches_cut_ahead_are_those_that_are_asked_for_whatever_their_sizes() -> None:
    values = np.arange(40, dtype=np.float32)
    columns = Columns(
        {"x": Decoded(values, None), "y": Decoded(values + 1, None), "word": Decoded(values.astype(object), None)},
        ((("x", "y"), np.stack([values, values + 1])),),
    )
    make = BatchTensors()
    for first, stop in [(0, 10), (10, 20), (10, 20), (20, 27), (27, 27), (27, 34), (3, 5), (34, 40)]:
        batch = make(Batch(columns, first, stop, Cursor()))
        assert list(batch) == ["x", "y", "word"]
        assert batch["x"].tolist() == batch["word"] == values[first:stop].tolist()
        assert batch["y"].tolist() == (values[first:stop] + 1).tolist()
