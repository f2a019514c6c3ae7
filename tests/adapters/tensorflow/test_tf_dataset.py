"""Tests of `make_tf_dataset` on real datasets: element specs, nulls, ragged columns, prefetch, resuming and Keras."""

from __future__ import annotations

import collections
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.plan.request import LastBatchWord
from petastore.readers.execution.execution import Execution
from tests.adapters.tensorflow.two_workers import run_two_workers
from tests.pace import LONG
from tests.tier import IS_FULL
from tests.warm_interpreters import WarmInterpreter

pytestmark = pytest.mark.tf

ROW_GROUPS = [7, 1, 30, 12, 5, 40, 6]
ROWS = sum(ROW_GROUPS)

NUMBERS = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]

FIELDS = [
    petastore.UnischemaField("id", "int32"),
    *(petastore.UnischemaField(f"a_{name}", name, (2,), NdarrayCodec()) for name in NUMBERS),
    petastore.UnischemaField("at", "datetime64[ms]"),
    petastore.UnischemaField("text", str),
    petastore.UnischemaField("raw", bytes),
    petastore.UnischemaField("price", Decimal),
    petastore.UnischemaField("age", "int64", nullable=True),
    petastore.UnischemaField("nickname", str, nullable=True),
    petastore.UnischemaField("image", "uint8", (4, 6, 3), CompressedImageCodec("png")),
    petastore.UnischemaField("list", "int64", (None,)),
    petastore.UnischemaField("points", "float32", (None, 2), NdarrayCodec()),
    petastore.UnischemaField("deep", "uint8", (None, 3, 2, None), NdarrayCodec()),
    petastore.UnischemaField("inner", "int16", (2, None, 3), NdarrayCodec()),
]
FREE = ["list", "points", "deep", "inner"]
PRESENT = [field.name for field in FIELDS if not field.nullable]


def row(i: int) -> dict[str, Any]:
    """Return the row with this id."""
    return {
        "id": i,
        **{f"a_{name}": np.array([i % 2, 1]).astype(name) for name in NUMBERS},
        "at": np.datetime64(i, "ms"),
        "text": f"ü{i}",
        "raw": bytes([i, 0]),
        "price": Decimal(i) / 4,
        "age": None if i % 10 == 3 else i,
        "nickname": None if i == 50 else "x",
        "image": np.full((4, 6, 3), i, np.uint8),
        "list": np.arange(i % 4),
        "points": np.full((i % 3, 2), i, np.float32),
        "deep": np.full((i % 2, 3, 2, i % 5), i, np.uint8),
        "inner": np.full((2, i % 4, 3), i, np.int16),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write 101 rows in 7 row groups of different sizes, and return the URL."""
    url = str(tmp_path_factory.mktemp("tf") / "dataset")
    first = 0
    for rows in ROW_GROUPS:
        mode: Any = "append" if first else "error"
        part = [row(i) for i in range(first, first + rows)]
        petastore.write_dataset(url, petastore.Unischema("row", FIELDS), part, mode=mode)
        first += rows
    return url


@pytest.fixture(scope="module")
def tf() -> Any:
    import tensorflow as tf

    return tf


@pytest.fixture(scope="module")
def make_tf_dataset(tf: Any) -> Any:
    from petastore.adapters.tensorflow import make_tf_dataset

    return make_tf_dataset


def ids(dataset: Any) -> list[int]:
    """Return the ids of a dataset of rows or of batches."""
    return [int(i) for element in dataset for i in np.ravel(element["id"].numpy())]


def expected_spec(tf: Any, field: petastore.UnischemaField) -> Any:
    """Return the dtype and shape of a row of this field."""
    if field.numpy_dtype in (np.str_, np.bytes_, Decimal):
        return tf.string, field.shape
    return tf.int64 if field.dtype.kind == "M" else tf.as_dtype(field.dtype), field.shape


@pytest.mark.parametrize("make_reader", [petastore.make_reader, petastore.make_batch_reader])
def test_tf_dataset_batches_have_full_element_spec_and_all_values(
    tf: Any, make_tf_dataset: Any, url: str, make_reader: Any
) -> None:
    with make_reader(url, PRESENT, shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=40)
        for field in reader.schema:
            spec = dataset.element_spec[field.name]
            dtype, shape = expected_spec(tf, field)
            assert (spec.dtype, spec.shape.as_list()) == (dtype, [None, *shape])
            assert isinstance(spec, tf.RaggedTensorSpec) is (field.name in FREE)
        assert int(dataset.cardinality()) == 3
        batches = list(dataset)
    assert [batch["id"].shape[0] for batch in batches] == [40, 40, 21]
    for number, batch in enumerate(batches):
        for place in (0, 1, 3, 4, 20):
            check_row(row(40 * number + place), {name: column[place] for name, column in batch.items()})


def test_tf_dataset_rows_have_full_element_spec_and_all_values(tf: Any, make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, PRESENT, shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader)
        for field in reader.schema:
            dtype, shape = expected_spec(tf, field)
            assert dataset.element_spec[field.name] == tf.TensorSpec(shape, dtype)
        assert int(dataset.cardinality()) == ROWS
        rows = list(dataset)
    assert len(rows) == ROWS
    for i, value in enumerate(rows):
        check_row(row(i), value)
        assert all(tuple(value[name].shape) == row(i)[name].shape for name in FREE)


def check_row(expected: dict[str, Any], found: dict[str, Any]) -> None:
    """Compare all columns of one row with the written ones."""
    for name, tensor in found.items():
        value = expected[name]
        if name in FREE and hasattr(tensor, "to_list"):
            assert tensor.to_list() == value.tolist()
        elif name in ("text", "raw", "price"):
            text = str(value.normalize()) if name == "price" else value
            assert tensor.numpy() == (text.encode() if isinstance(text, str) else text)
        elif name == "at":
            assert tensor.numpy() == value.astype("datetime64[ns]").view(np.int64)
        else:
            assert np.array_equal(tensor.numpy(), value)


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"] if IS_FULL else ["pad"])
@pytest.mark.parametrize("batch_size", [None, 8])
def test_cardinality_equals_the_number_of_batches(
    make_tf_dataset: Any, url: str, last_batch: LastBatchWord, batch_size: int | None
) -> None:
    with petastore.make_reader(url, ["id"], cur_shard=1, shard_count=2, last_batch=last_batch, num_epochs=2) as reader:
        dataset = make_tf_dataset(reader, batch_size=batch_size)
        elements = list(dataset)
        assert len(elements) == int(dataset.cardinality())
        assert len(elements) == (reader.num_rows if batch_size is None else reader.steps_per_epoch(batch_size)) * 2
        assert ("valid" in dataset.element_spec) is (last_batch == "pad")
        assert all(("valid" in element) is (last_batch == "pad") for element in elements)


def test_ragged_padded_returns_padded_tensors_and_lengths(tf: Any, make_tf_dataset: Any, url: str) -> None:
    from petastore.adapters.ragged import Padded

    forms = {"points": "padded", "deep": Padded(255), "list": "ragged"}
    with petastore.make_reader(url, ["id", *FREE], shuffle_rows=True, seed=3) as reader:
        dataset = make_tf_dataset(reader, 16, ragged=forms)
        spec = dataset.element_spec
        assert (spec["points"], spec["points_lengths"]) == (
            tf.TensorSpec((None, None, 2), tf.float32),
            tf.TensorSpec((None,), tf.int64),
        )
        assert spec["deep"] == tf.TensorSpec((None, None, 3, 2, None), tf.uint8)
        assert spec["deep_lengths"] == tf.TensorSpec((None, 2), tf.int64)
        assert isinstance(spec["list"], tf.RaggedTensorSpec)
        assert isinstance(spec["inner"], tf.RaggedTensorSpec)
        seen = 0
        for batch in dataset:
            for place, i in enumerate(batch["id"].numpy().tolist()):
                assert int(batch["points_lengths"][place]) == i % 3
                assert batch["deep_lengths"][place].numpy().tolist() == [i % 2, i % 5]
                points, deep = batch["points"][place].numpy(), batch["deep"][place].numpy()
                assert (points[: i % 3] == i).all()
                assert (points[i % 3 :] == 0).all()
                assert (deep[: i % 2, ..., : i % 5] == i).all()
                assert (deep[i % 2 :] == 255).all()
                assert (deep[..., i % 5 :] == 255).all()
                seen += 1
    assert seen == ROWS


@pytest.mark.slow
def test_ragged_dense_returns_dense_tensors(tf: Any, make_tf_dataset: Any, tmp_path: Path) -> None:
    schema = petastore.Unischema(
        "rows", [petastore.UnischemaField(name, "int64", (None, 2)) for name in ("same", "other")]
    )
    rows = [{"same": np.full((3, 2), n), "other": np.full((1 + n // 4, 2), n)} for n in range(6)]
    petastore.write_dataset(tmp_path / "rows", schema, rows)
    with petastore.make_reader(tmp_path / "rows", shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, 3, ragged="dense")
        assert dataset.element_spec["same"] == tf.TensorSpec((None, None, 2), tf.int64)
        batches = iter(dataset)
        first = next(batches)
        assert first["same"].numpy().tolist() == [np.full((3, 2), n).tolist() for n in range(3)]
        assert first["other"].shape == (3, 1, 2)
        with pytest.raises(
            tf.errors.OpError, match=r"column 'other': the values of a batch must have one shape to be stacked"
        ):
            next(batches)


@pytest.mark.slow
def test_ragged_padded_raises_for_single_rows(make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id", *FREE]) as reader:
        with pytest.raises(InvalidArgumentError, match="ragged must be left out where batch_size is None"):
            make_tf_dataset(reader, ragged="padded")
        with pytest.raises(InvalidArgumentError, match="'id', whose values all have the shape"):
            make_tf_dataset(reader, 8, ragged={"id": "padded"})


def test_rows_keep_the_order_of_the_reader(make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id"], seed=3, shuffle_rows=True) as reader:
        begin = reader.state_dict()
        expected = [int(value.id) for value in reader]
        reader.load_state_dict(begin)
        assert ids(make_tf_dataset(reader)) == expected
    assert sorted(expected) == list(range(ROWS))


@pytest.mark.slow
def test_tf_dataset_of_rows_works_with_a_batch_reader(make_tf_dataset: Any, url: str) -> None:
    with petastore.make_batch_reader(url, ["id", "list"], shuffle_row_groups=False) as reader:
        assert ids(make_tf_dataset(reader)) == list(range(ROWS))


def test_each_iteration_reads_all_epochs_of_the_reader(make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=8)
        assert ids(dataset) == list(range(ROWS))
        assert ids(dataset) == list(range(ROWS))
        assert ids(dataset.repeat(3)) == list(range(ROWS)) * 3
        for batch in dataset:
            assert batch["id"].numpy().tolist() == list(range(8))
            break
        assert ids(dataset.take(2)) == list(range(16))
        assert ids(dataset.prefetch(2).take(1)) == list(range(8))
        assert ids(dataset) == list(range(ROWS))


def test_endless_tf_dataset_can_be_left_early(tf: Any, make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id"], num_epochs=None) as reader:
        dataset = make_tf_dataset(reader, batch_size=8)
        assert int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
        assert len(ids(dataset.prefetch(tf.data.AUTOTUNE).take(30))) > 200


LEAVER = """
import sys
import tensorflow as tf
from petastore import make_reader
from petastore.adapters.tensorflow import make_tf_dataset

reader = make_reader(sys.argv[1], ["id"], num_epochs=None)
for element in make_tf_dataset(reader, batch_size=8).prefetch(16):
    break
if sys.argv[2] == "stop":
    reader.stop()
    reader.join()
print("left")
"""


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["stop", "do not stop"])
def test_process_exits_while_tensorflow_prefetches(url: str, ending: str) -> None:
    command = [sys.executable, "-c", LEAVER, url, ending]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONG)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["left"]


@pytest.mark.slow
def test_newer_tf_dataset_iterator_ends_the_older_with_an_error(tf: Any, make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False, num_epochs=None) as reader:
        dataset = make_tf_dataset(reader, batch_size=8)
        older, newer = iter(dataset), iter(dataset)
        next(older)
        assert next(newer)["id"].numpy().tolist() == list(range(8))
        # TensorFlow prefetches, so the older iterator may still have some batches.
        with pytest.raises(tf.errors.InvalidArgumentError, match="the loader was iterated again"):
            collections.deque(older, maxlen=0)
        assert next(newer)["id"].numpy().tolist() == list(range(8, 16))


@pytest.mark.parametrize("batch_size", [20, None])
def test_nulls_raise_at_the_call_when_statistics_show_them(
    make_tf_dataset: Any, url: str, batch_size: int | None
) -> None:
    with (
        petastore.make_reader(url, ["age"], shuffle_row_groups=False) as reader,
        pytest.raises(DecodeError, match=r"column 'age', row group \d+ .*: nulls= must be set .* values missing\."),
    ):
        make_tf_dataset(reader, batch_size)


@pytest.mark.parametrize(
    ("column", "batch_size", "missing"),
    [("age", 20, "2 of 20"), ("age", None, "1 of 1"), ("nickname", 101, "1 of 101")],
)
def test_nulls_raise_during_iteration_when_statistics_are_missing(
    tf: Any, make_tf_dataset: Any, url: str, tmp_path: Path, column: str, batch_size: int | None, missing: str
) -> None:
    table = petastore.open_dataset(url).to_arrow(1000).select([column])
    pq.write_table(table, tmp_path / "x.parquet", write_statistics=False)
    with (
        petastore.make_reader(str(tmp_path / "x.parquet"), shuffle_row_groups=False) as reader,
        pytest.raises(
            tf.errors.InvalidArgumentError, match=rf"column '{column}': nulls= .* {missing} values missing\."
        ),
    ):
        list(make_tf_dataset(reader, batch_size))


def test_transform_error_keeps_its_message_in_tensorflow(tf: Any, make_tf_dataset: Any, url: str) -> None:
    def fail(values: dict[str, Any]) -> dict[str, Any]:
        raise OSError("the camera was off")

    with (
        petastore.make_reader(url, ["id"], transform_spec=petastore.TransformSpec(fail)) as reader,
        pytest.raises(tf.errors.OpError, match="the camera was off"),
    ):
        list(make_tf_dataset(reader, batch_size=20))


@pytest.mark.slow
def test_auto_sharding_is_off_only_for_sharded_readers(tf: Any, make_tf_dataset: Any, url: str) -> None:
    policy = tf.data.experimental.AutoShardPolicy
    with petastore.make_reader(url, ["id"], cur_shard=0, shard_count=2) as reader:
        options = make_tf_dataset(reader, batch_size=8).options()
        assert options.experimental_distribute.auto_shard_policy == policy.OFF
    with petastore.make_reader(url, ["id"]) as reader:
        options = make_tf_dataset(reader, batch_size=8).options()
        assert options.experimental_distribute.auto_shard_policy == policy.AUTO


@pytest.mark.slow
def test_tf_dataset_adds_no_prefetch(make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id", "list"], shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=8)
        assert dataset.options().experimental_optimization.inject_prefetch is False
        # Batches with a ragged column are passed one by one, so the reader's position shows a prefetch.
        for number, _ in enumerate(dataset, start=1):
            assert reader.cursor.position == (8 * number if number < 13 else 0)


def test_invalid_batch_size_raises(make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id"]) as reader:
        for wrong in (0, -1, 2.5, True, "8"):
            with pytest.raises(
                InvalidArgumentError, match="batch_size must be an int of at least 1, or None for single rows, got"
            ):
                make_tf_dataset(reader, batch_size=wrong)


def test_column_without_a_tensorflow_type_raises_at_the_call(make_tf_dataset: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1], "person": [{"name": "Ada"}]}), tmp_path / "people.parquet")
    with (
        petastore.make_reader(tmp_path / "people.parquet") as reader,
        pytest.raises(
            InvalidArgumentError, match="column 'person' must have a dtype that TensorFlow supports, got object"
        ),
    ):
        make_tf_dataset(reader)
    with petastore.make_reader(tmp_path / "people.parquet", ["id"]) as reader:
        assert ids(make_tf_dataset(reader)) == [1]


@pytest.mark.slow
def test_lists_of_text_are_ragged(make_tf_dataset: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = [["a", "b"], [], ["c"]]
    pq.write_table(pa.table({"words": words}), tmp_path / "words.parquet")
    with petastore.make_reader(tmp_path / "words.parquet") as reader:
        (batch,) = make_tf_dataset(reader, batch_size=3)
        assert batch["words"].to_list() == [[word.encode() for word in row] for row in words]
        assert [row["words"].numpy().tolist() for row in make_tf_dataset(reader)] == batch["words"].to_list()


@pytest.mark.slow
def test_tf_dataset_resumes_from_reader_state_and_then_restarts(tf: Any, make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
        next(reader.iter_batches(30))
        state = reader.state_dict()
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
        reader.load_state_dict(state)
        dataset = make_tf_dataset(reader, batch_size=8)
        assert ids(dataset) == list(range(30, ROWS))
        for _ in range(2):
            assert ids(dataset) == list(range(ROWS))
        assert int(dataset.cardinality()) == 13  # that of a whole epoch


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"] if IS_FULL else ["pad"])
@pytest.mark.parametrize("fields", [["id", "text", "a_float32"], ["id", "points"]])
def test_tf_dataset_batches_equal_the_readers_batches(
    make_tf_dataset: Any, url: str, last_batch: LastBatchWord, fields: list[str]
) -> None:
    asked: Any = {
        "cur_shard": 1,
        "shard_count": 3,
        "last_batch": last_batch,
        "num_epochs": 3,
        "shuffle_rows": True,
        "seed": 5,
    }
    with petastore.make_reader(url, fields, **asked) as reader:
        expected = [batch["id"].tolist() for batch in reader.iter_batches(4)]
    with petastore.make_reader(url, fields, **asked) as reader:
        assert [batch["id"].numpy().tolist() for batch in make_tf_dataset(reader, batch_size=4)] == expected


@pytest.mark.parametrize("names", [["x"], ["x", "y", "z"]])
def test_numeric_tensors_are_zero_copy(
    make_tf_dataset: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    from petastore.adapters.tensorflow import crossing

    fields = [petastore.UnischemaField(name, "float64", (16,), NdarrayCodec()) for name in names]
    rows = [{name: np.full(16, i, np.float64) for name in names} for i in range(4096)]
    petastore.write_dataset(tmp_path / "x", petastore.Unischema("numbers", fields), rows)
    handed: list[Any] = []
    converted = crossing.converted

    def seen(*arguments: Any) -> Any:
        for sizes, values in converted(*arguments):
            handed.extend(array for arrays in values for array in arrays)
            yield sizes, values

    monkeypatch.setattr(crossing, "converted", seen)
    with petastore.make_reader(tmp_path / "x") as reader:
        for batch in make_tf_dataset(reader, batch_size=512):
            for name in names:
                memory = np.asarray(memoryview(batch[name]))
                assert any(np.shares_memory(memory, array) for array in handed)
    assert max(array.size for array in handed) > 512 * 16 * len(names)


@pytest.mark.slow
def test_columns_stacked_in_one_array_equal_single_columns(
    make_tf_dataset: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = [
        petastore.UnischemaField(f"{kind}{n}", kind, nullable=n == 1) for n in range(3) for kind in ("float32", "int64")
    ]
    names = [field.name for field in fields]
    schema = petastore.Unischema("numbers", fields)
    # From row 60 on the float columns are not stacked, because one of them has missing values, which are filled.
    table = [
        {name: None if name == "float321" and i >= 60 else 10 * i + n for n, name in enumerate(names)}
        for i in range(101)
    ]
    petastore.write_dataset(tmp_path / "x", schema, table, rows_per_row_group=20)

    def batches(**options: Any) -> list[dict[str, list[float]]]:
        with petastore.make_reader(tmp_path / "x", seed=2, shuffle_rows=True, num_epochs=2) as reader:
            dataset = make_tf_dataset(reader, batch_size=7, **options)
            return [{name: column.numpy().tolist() for name, column in batch.items()} for batch in dataset]

    together = batches(nulls={"float321": -1})
    monkeypatch.setattr(Execution, "stacked_columns", [])
    assert batches(nulls={"float321": -1}) == together
    assert [len(batch["int640"]) for batch in together] == [*[7] * 14, 3] * 2
    assert sorted(batch["int642"][0] for batch in together) != [batch["int642"][0] for batch in together]
    for batch in together:
        first = [int(value) // 10 for value in batch["float320"]]
        assert batch["int642"] == [10 * i + 5 for i in first]
        assert batch["float321"] == [-1 if i >= 60 else 10 * i + 2 for i in first]


@pytest.mark.slow
@pytest.mark.parametrize(("batch_size", "whole"), [(None, 3), (3, 3), (2, 2)])
def test_nulls_raise_at_the_batch_that_has_them(
    tf: Any, make_tf_dataset: Any, url: str, tmp_path: Path, batch_size: int | None, whole: int
) -> None:
    # The age of row 3 is missing; with statistics, the error would be raised before the first batch.
    table = petastore.open_dataset(url).to_arrow(1000).select(["id", "age"])
    pq.write_table(table, tmp_path / "x.parquet", write_statistics=False)
    with petastore.make_reader(str(tmp_path / "x.parquet"), shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size)
        for _ in range(2):
            received: list[int] = []
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"column 'age': nulls= .* 1 of [123] values missing\."
            ):
                received.extend(int(i) for element in dataset for i in np.ravel(element["id"].numpy()))
            assert received == list(range(whole))


@pytest.mark.parametrize("received", [1, 2, 5, 12, 13, 14, 20, 26] if IS_FULL else [5, 13])
@pytest.mark.parametrize("fields", [["id"], ["id", "list"]])
def test_state_after_ignores_batches_that_tensorflow_prefetched(
    make_tf_dataset: Any, url: str, received: int, fields: list[str]
) -> None:
    from petastore.adapters.tensorflow import state_after

    asked: Any = {"shuffle_rows": True, "seed": 4, "num_epochs": 2}
    with petastore.make_reader(url, fields, **asked) as reader:
        batches = iter(make_tf_dataset(reader, batch_size=8).prefetch(4))
        seen = [i for _ in range(received) for i in next(batches)["id"].numpy().tolist()]
        state = state_after(reader, received)
    with petastore.make_reader(url, fields, **asked) as reader:
        reader.load_state_dict(state)
        seen += ids(make_tf_dataset(reader, batch_size=8))
    assert collections.Counter(seen) == dict.fromkeys(range(ROWS), 2)


@pytest.mark.slow
def test_state_after_counts_rows_without_batch_size(make_tf_dataset: Any, url: str) -> None:
    from petastore.adapters.tensorflow import state_after

    with petastore.make_reader(url, ["id"], seed=4, shuffle_rows=True) as reader:
        seen = ids(make_tf_dataset(reader).take(17))
        state = state_after(reader, 17)
    with petastore.make_reader(url, ["id"], seed=4, shuffle_rows=True) as reader:
        reader.load_state_dict(state)
        seen += ids(make_tf_dataset(reader))
    assert sorted(seen) == list(range(ROWS))


def test_state_after_raises_for_a_batch_not_yielded_yet(make_tf_dataset: Any, url: str) -> None:
    from petastore.adapters.tensorflow import state_after

    with petastore.make_batch_reader(url, ["id"]) as reader:
        with pytest.raises(
            InvalidArgumentError,
            match=r"must be a number of delivered batches, but this iteration has delivered none, got 1",
        ):
            state_after(reader, 1)
        assert len(ids(make_tf_dataset(reader, batch_size=8))) == ROWS
        with pytest.raises(InvalidArgumentError, match="must be from 1 to 13, the batches of this iteration, got 14"):
            state_after(reader, 14)
        with pytest.raises(InvalidArgumentError, match="batches"):
            state_after(reader, 0)
        # A batch reader does not count rows.
        assert len(ids(make_tf_dataset(reader))) == ROWS
        with pytest.raises(
            InvalidArgumentError,
            match=r"must be a number of delivered batches, but this iteration has delivered none, got 1",
        ):
            state_after(reader, 1)


@pytest.mark.slow
def test_run_of_batches_is_cut_into_batches_including_an_empty_one(tf: Any) -> None:
    from petastore.adapters.tensorflow.tf_dataset import cut_run

    for sizes in ([0], [2], [2, 3]):
        rows = {"id": np.arange(sum(sizes)), "text": np.array(["a"] * sum(sizes), object)}
        found = cut_run(tf.constant(sizes, tf.int64), {name: tf.constant(column) for name, column in rows.items()})
        assert [batch["id"].shape[0] for batch in found] == sizes


@pytest.mark.slow
@pytest.mark.parametrize("rows", [False, True])
def test_empty_batch_matches_the_element_spec(tf: Any, make_tf_dataset: Any, rows: bool) -> None:
    # A rank gets an empty batch if, after a change of the number of ranks, fewer rows than ranks remain.
    from petastore.adapters.column_plans import ColumnPlan
    from petastore.adapters.tensorflow.columns import columns_of_field

    for field in FIELDS:
        shape = tuple(size for size in field.shape if size is not None) if field.is_fixed else ()
        (column,) = columns_of_field(ColumnPlan(field), rows=rows)
        arrays = column.convert(np.empty((0, *shape), field.dtype))
        tensors = [tf.constant(array, part.dtype) for array, part in zip(arrays, column.parts, strict=True)]
        assert all(part.is_compatible_with(tensor) for tensor, part in zip(tensors, column.parts, strict=True))
        whole = tensors[0] if column.join is None else column.join(tensors)
        parts = whole if isinstance(whole, tuple) else (whole,)
        assert [int(part.shape[0]) for part in parts] == [0] * len(parts)
        assert len(parts) == (2 if rows and field.name in FREE else 1)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("value", [np.zeros((2, 3), np.float32), np.zeros(2, np.float32)])
def test_transform_that_breaks_a_declared_dimension_raises(
    tf: Any, make_tf_dataset: Any, url: str, batch_size: int | None, value: Any
) -> None:
    spec = petastore.TransformSpec(lambda row: {**row, "points": value}, edit_fields=[])
    with (
        petastore.make_reader(url, ["id", "points"], transform_spec=spec) as reader,
        pytest.raises(tf.errors.OpError, match="points"),
    ):
        list(make_tf_dataset(reader, batch_size=batch_size))


@pytest.mark.slow
def test_keras_fits_several_epochs(tf: Any, make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["id", "a_float32"], seed=1, shuffle_rows=True) as reader:
        dataset = make_tf_dataset(reader, batch_size=8).map(lambda batch: (batch["a_float32"], batch["id"] % 2))
        model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
        model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        history = model.fit(dataset, epochs=3, shuffle=False, verbose=0)
    assert len(history.history["loss"]) == 3
    assert history.history["loss"][-1] < history.history["loss"][0]


@pytest.mark.slow
def test_keras_callback_can_save_state_after_each_batch(tf: Any, make_tf_dataset: Any, url: str) -> None:
    from petastore.adapters.tensorflow import state_after

    positions = []
    with petastore.make_reader(url, ["id", "a_float32"], seed=1, shuffle_rows=True) as reader:

        class Saves(tf.keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras gives it by name)
                positions.append(state_after(reader, batch + 1)["position"])

        dataset = make_tf_dataset(reader, batch_size=20).map(lambda batch: (batch["a_float32"], batch["id"] % 2))
        model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
        model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(dataset.prefetch(3), epochs=2, shuffle=False, verbose=0, callbacks=[Saves()])
    assert positions == [20, 40, 60, 80, 100, 0] * 2


WORKER = """
import json, sys
import tensorflow as tf
from petastore import make_reader
from petastore.adapters.tensorflow import make_tf_dataset

strategy = tf.distribute.MultiWorkerMirroredStrategy()
index = strategy.cluster_resolver.task_id
with make_reader(sys.argv[1], ["id"], cur_shard=index, shard_count=2, seed=3, shuffle_rows=True) as reader:
    distributed = strategy.experimental_distribute_dataset(make_tf_dataset(reader, batch_size=8))
    ids = []
    for batch in distributed:
        ids += strategy.experimental_local_results(batch["id"])[0].numpy().tolist()
print(json.dumps(ids))
"""


@pytest.mark.slow
def test_two_workers_of_a_distribution_strategy_read_each_row_once(url: str, warm_tensorflow: WarmInterpreter) -> None:
    first, second = map(json.loads, run_two_workers(warm_tensorflow, WORKER, url))
    assert sorted(first + second) == list(range(ROWS))
    assert abs(len(first) - len(second)) <= 1


def test_import_without_tensorflow_names_the_package_to_install() -> None:
    script = "import sys; sys.modules['tensorflow'] = None\nimport petastore.adapters.tensorflow"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "MissingExtraError: petastore.adapters.tensorflow needs the package 'tensorflow'" in done.stderr
    assert "pip install 'petastore[tf]'" in done.stderr
