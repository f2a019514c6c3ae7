"""Tests of Petastorm functions with other signatures than petastore's: they behave as in Petastorm."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.interop import petastorm_calls as calls

SCHEMA = Unischema(
    "Everything",
    [
        UnischemaField("id", np.int64, (), ScalarCodec("bigint")),
        UnischemaField("name", np.str_),
        UnischemaField("raw", np.bytes_),
        UnischemaField("price", Decimal, (), ScalarCodec("decimal(10,2)")),
        UnischemaField("seen", np.datetime64),
        UnischemaField("is_new", np.bool_, nullable=True),
        UnischemaField("image", np.uint8, (6, 4, 3), CompressedImageCodec("png")),
        UnischemaField("cloud", np.float32, (None, 3), NdarrayCodec()),
        UnischemaField("packed", np.int16, (2, None), CompressedNdarrayCodec()),
        UnischemaField("words", np.str_, (None,)),
    ],
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write twelve generated rows in four row groups, and return the URL."""
    url = str(tmp_path_factory.mktemp("calls") / "everything")
    rng = np.random.default_rng(0)
    rows = [calls.generate_datapoint(SCHEMA, rng) | {"id": np.int64(number)} for number in range(12)]
    petastore.write_dataset(url, SCHEMA, rows, rows_per_row_group=3)
    return url


def test_generated_datapoint_matches_the_schema(url: str) -> None:
    """The fixture wrote generated rows, so each value matches its field."""
    with petastore.make_reader(url) as reader:
        rows = list(reader)
    assert sorted(int(row.id) for row in rows) == list(range(12))
    assert {row.cloud.shape[1] for row in rows} == {3}
    assert len({row.cloud.shape[0] for row in rows}) > 1


def test_generate_datapoint_returns_random_values() -> None:
    first, second = (calls.generate_datapoint(SCHEMA) for _ in range(2))
    assert not np.array_equal(first["image"], second["image"])


def test_get_schema_returns_the_stored_schema(url: str) -> None:
    assert calls.get_schema_from_dataset_url(url) == SCHEMA
    assert calls.get_schema(petastore.open_dataset(url)) == SCHEMA


def test_get_schema_rejects_pyarrow_datasets(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="get_schema_from_dataset_url takes a URL"):
        calls.get_schema(pq.ParquetDataset(url))


def test_decode_row_decodes_stored_cells(url: str) -> None:
    file = petastore.open_dataset(url).paths[0]
    cells = pq.read_table(file).slice(0, 1).to_pylist()[0]
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        row = next(reader)
    decoded = calls.decode_row(cells, SCHEMA)
    assert set(decoded) == set(SCHEMA.fields)
    for name, value in decoded.items():
        np.testing.assert_array_equal(value, row[name])


def test_decode_row_names_the_column_of_a_damaged_cell() -> None:
    with pytest.raises(DecodeError, match="column 'cloud'"):
        calls.decode_row({"cloud": b"none of ours"}, SCHEMA)


@pytest.mark.slow
@pytest.mark.tf
def test_petastorm_dataset_yields_rows_as_named_tuples(url: str) -> None:
    with petastore.make_reader(url, ["id", "image", "name"], shuffle_row_groups=False) as reader:
        dataset = calls.make_petastorm_dataset(reader)
        assert dataset.element_spec._fields == ("id", "name", "image")
        assert dataset.element_spec.image.shape == (6, 4, 3)
        rows = list(dataset.map(lambda row: (row.id, row.image, row.name)))
        assert [int(row[0]) for row in rows] == list(range(12))
        assert [int(row.id) for row in dataset.repeat(2)] == list(range(12)) * 2


@pytest.mark.slow
@pytest.mark.tf
def test_petastorm_dataset_casts_unsigned_integers(tmp_path: Path) -> None:
    largest = {"short": 2**16 - 1, "word": 2**32 - 1, "byte": 255}
    fields = zip(largest, ("uint16", "uint32", "uint8"), strict=True)
    petastore.write_dataset(tmp_path / "d", Unischema("d", [UnischemaField(*field) for field in fields]), [largest])
    for make in (petastore.make_reader, petastore.make_batch_reader):
        with make(str(tmp_path / "d")) as reader:
            (row,) = list(calls.make_petastorm_dataset(reader))
        assert [value.dtype.name for value in row] == ["int32", "int64", "uint8"]
        assert [value.numpy().item() for value in row] == list(largest.values())


@pytest.mark.slow
@pytest.mark.tf
def test_make_petastorm_dataset_of_a_batch_reader_yields_row_groups(url: str) -> None:
    with petastore.make_batch_reader(url, ["id"], shuffle_row_groups=False) as reader:
        dataset = calls.make_petastorm_dataset(reader)
        assert [batch.id.numpy().tolist() for batch in dataset] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
        assert len(list(dataset.unbatch())) == 12


@pytest.mark.slow
@pytest.mark.tf
def test_petastorm_dataset_has_tensorflow_1_methods(url: str) -> None:
    """The calls are those of Petastorm's README: eager, and with a graph and a session."""
    import tensorflow as tf

    with petastore.make_reader(url, ["id", "image"], shuffle_row_groups=False) as reader:
        dataset = calls.make_petastorm_dataset(reader)
        assert dataset.output_shapes.image == (6, 4, 3)
        assert dataset.map(lambda row: row.id).output_types == tf.int64
        assert int(dataset.make_one_shot_iterator().get_next().id) == 0
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader, tf.Graph().as_default():
        row = calls.make_petastorm_dataset(reader).batch(5).make_one_shot_iterator().get_next()
        with tf.compat.v1.Session() as session:
            assert [session.run(row).id.tolist() for _ in range(3)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(row)


@pytest.mark.slow
@pytest.mark.tf
@pytest.mark.parametrize("make", [petastore.make_reader, petastore.make_batch_reader])
def test_petastorm_dataset_skips_structs_with_one_warning(tmp_path: Path, make: Any) -> None:
    columns = {
        "id": [1, 2],
        "where": [{"x": 1}, None],
        "counts": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        "track": [[1.0, 2.0], [2.0, 3.0]],
    }
    pq.write_table(pa.table(columns), tmp_path / "plain.parquet")
    with make(str(tmp_path), shuffle_row_groups=False) as reader:
        with pytest.warns(UserWarning, match="'where', 'counts' are left out, as in Petastorm") as warned:
            dataset = calls.make_petastorm_dataset(reader)
        assert len(warned) == 1
        assert warned[0].filename == __file__
        assert dataset.element_spec._fields == ("id", "track")
        rows = list(dataset)
    assert [number for row in rows for number in row.id.numpy().ravel().tolist()] == [1, 2]
    assert [number for row in rows for number in row.track.numpy().ravel().tolist()] == [1.0, 2.0, 2.0, 3.0]
    assert rows[0].track.shape == ((2, 2) if make is petastore.make_batch_reader else (2,))


@pytest.mark.slow
@pytest.mark.tf
def test_tf_tensors_returns_the_next_row_per_session_run(url: str) -> None:
    import tensorflow as tf

    read = {}
    for capacity in (0, 5):
        with (
            petastore.make_reader(url, ["id", "name"], shuffle_row_groups=False, num_epochs=2) as reader,
            tf.Graph().as_default(),
        ):
            tf.compat.v1.set_random_seed(3)
            row = calls.tf_tensors(reader, shuffling_queue_capacity=capacity, min_after_dequeue=2)
            assert row._fields == ("id", "name")
            with tf.compat.v1.Session() as session:
                rows = [session.run(row) for _ in range(24)]
                with pytest.raises(tf.errors.OutOfRangeError):
                    session.run(row)
        assert len({(int(one.id), one.name) for one in rows}) == 12
        read[capacity] = [int(one.id) for one in rows]
    assert read[0] == [*range(12), *range(12)]
    assert sorted(read[5]) == sorted(read[0])
    assert read[5] != read[0]


@pytest.mark.slow
@pytest.mark.tf
def test_tf_tensors_returns_windows_by_offset(url: str) -> None:
    import tensorflow as tf

    windows = petastore.NGram({0: ["id"], 1: ["id", "name"]}, 10, "id")
    with petastore.make_reader(url, windows, shuffle_row_groups=False) as reader, tf.Graph().as_default():
        window = calls.tf_tensors(reader)
        with tf.compat.v1.Session() as session:
            found = session.run(window)
    assert (int(found[0].id), int(found[1].id)) == (0, 1)


@pytest.mark.slow
@pytest.mark.tf
def test_tf_tensors_raises_in_eager_mode_and_for_queue_with_batch_reader(url: str) -> None:
    import tensorflow as tf

    with (
        petastore.make_reader(url, ["id"]) as reader,
        pytest.raises(InvalidArgumentError, match=r"runs eagerly\. Iterate"),
    ):
        calls.tf_tensors(reader)
    with (
        petastore.make_batch_reader(url, ["id"]) as reader,
        tf.Graph().as_default(),
        pytest.raises(InvalidArgumentError, match="shuffling_queue_capacity must be 0 for a batch reader, got 5"),
    ):
        calls.tf_tensors(reader, 5)
