"""Tests of windows (NGram) in TensorFlow: shapes of tensors, ragged fields, masks and Petastorm's formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore import NGram, Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.errors import InvalidArgumentError

pytestmark = [pytest.mark.tf, pytest.mark.slow]

SCHEMA = Unischema(
    "track",
    [
        UnischemaField("time", np.int64),
        UnischemaField("pose", np.float32, (2,)),
        UnischemaField("name", np.str_),
        UnischemaField("free", np.int16, (None,), NdarrayCodec()),
        UnischemaField("page", np.uint8, (None, 2, None), NdarrayCodec()),
        UnischemaField("pair", np.bytes_, (2,), NdarrayCodec()),
        UnischemaField("words", np.str_, (None,), nullable=True),
    ],
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("track")
    rows = (
        {
            "time": n,
            "pose": np.full(2, n, np.float32),
            "name": f"n{n}",
            "free": np.full(n % 3, n, np.int16),
            "page": np.full((1 + n % 2, 2, n % 4), n, np.uint8),
            "pair": np.array([b"%d" % n, b"and"]),
            "words": None if n == 4 else np.array(["w"] * (n % 3), np.str_),
        }
        for n in range(20)
    )
    petastore.write_dataset(folder / "data", SCHEMA, rows, rows_per_row_group=3)
    return str(folder / "data")


def test_windows_of_fixed_shape_become_tensors(url: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    asked = NGram({0: ["time", "pose"], 1: ["name"], 2: ["time", "pose"]}, 1, "time")
    with petastore.make_reader(url, asked, shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=8)
        assert dataset.element_spec["pose"].shape.as_list() == [None, 2, 2]
        batches = list(dataset.as_numpy_iterator())
    assert [row for batch in batches for row in batch["time"].tolist()] == [[n, n + 2] for n in range(18)]
    assert batches[0]["name"].tolist() == [[f"n{n + 1}".encode()] for n in range(8)]
    assert batches[0]["pose"][3].tolist() == [[3.0, 3.0], [5.0, 5.0]]


def test_windows_become_elements_without_batch_size(url: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    with petastore.make_reader(url, NGram({0: ["time"], 1: ["time"]}, 1, "time"), shuffle_row_groups=False) as reader:
        windows = [window["time"].tolist() for window in make_tf_dataset(reader, batch_size=None).as_numpy_iterator()]
    assert windows == [[n, n + 1] for n in range(19)]


def test_columns_of_variable_shape_are_ragged_in_windows(url: str) -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow import make_tf_dataset

    asked = NGram({0: ["time", "free"], 1: ["time", "free", "page"]}, 1, "time")
    with petastore.make_reader(url, asked, shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=8)
        assert isinstance(dataset.element_spec["free"], tf.RaggedTensorSpec)
        assert dataset.element_spec["free"].shape.as_list() == [None, 2, None]
        assert dataset.element_spec["page"].shape.as_list() == [None, 1, None, 2, None]
        batches = list(dataset)
        single = list(make_tf_dataset(reader).take(5))
    windows = [window for batch in batches for window in batch["free"].to_list()]
    assert windows == [[[n] * (n % 3), [n + 1] * ((n + 1) % 3)] for n in range(19)]
    pages = [window for batch in batches for window in batch["page"].to_list()]
    assert pages == [[np.full((1 + n % 2, 2, n % 4), n).tolist()] for n in range(1, 20)]
    assert [window["free"].to_list() for window in single] == windows[:5]


def test_ragged_option_raises_for_windows(url: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    asked = NGram({0: ["time"], 1: ["free"]}, 1, "time")
    with (
        petastore.make_reader(url, asked) as reader,
        pytest.raises(InvalidArgumentError, match=r"ragged must be 'ragged' for windows, .* for column 'free'"),
    ):
        make_tf_dataset(reader, batch_size=8, ragged="padded")


def test_arrays_of_text_are_tensors_in_windows(url: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    asked = NGram({0: ["pair"], 2: ["pair"]}, 2, "time")
    with petastore.make_reader(url, asked, shuffle_row_groups=False) as reader:
        (first, *_) = make_tf_dataset(reader, batch_size=3).as_numpy_iterator()
    assert first["pair"].tolist() == [[[b"%d" % n, b"and"], [b"%d" % (n + 2), b"and"]] for n in range(3)]


def test_missing_arrays_are_masked_in_windows(url: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    asked = NGram({0: ["words"], 1: ["words"]}, 1, "time")
    with petastore.make_reader(url, asked, shuffle_row_groups=False) as reader:
        batches = list(make_tf_dataset(reader, batch_size=8, nulls="mask"))
    valid = [window for batch in batches for window in batch["words_valid"].numpy().tolist()]
    assert valid == [[n != 4, n + 1 != 4] for n in range(19)]
    assert batches[0]["words"].to_list()[3:5] == [[[], []], [[], [b"w", b"w"]]]


def test_petastorm_dataset_has_ragged_window_fields_by_offset(url: str) -> None:
    from petastore.interop.petastorm_calls import make_petastorm_dataset

    asked = NGram({0: ["free", "pair"], 1: ["page"]}, 1, "time")
    with petastore.make_reader(url, asked, shuffle_row_groups=False) as reader:
        dataset = make_petastorm_dataset(reader)
        assert dataset.element_spec[0].free.shape.as_list() == [None]
        assert dataset.element_spec[1].page.shape.as_list() == [None, 2, None]
        windows = list(dataset.take(4))
    assert [window[0].free.numpy().tolist() for window in windows] == [[n] * (n % 3) for n in range(4)]
    assert [window[1].page.shape for window in windows] == [(1 + n % 2, 2, n % 4) for n in range(1, 5)]
    assert windows[3][0].pair.numpy().tolist() == [b"3", b"and"]


def test_petastorm_dataset_has_named_tuples_by_window_offset(url: str) -> None:
    from petastore.interop.petastorm_calls import make_petastorm_dataset

    asked = NGram({-1: ["time", "name"], 1: ["pose"]}, 1, "time")
    with petastore.make_reader(url, asked, shuffle_row_groups=False) as reader:
        windows = list(make_petastorm_dataset(reader).take(3))
        assert [list(window) for window in windows] == [[-1, 0, 1]] * 3
        assert windows[0][0] == ()
        assert [int(window[-1].time) for window in windows] == [0, 1, 2]
        assert windows[2][-1].name.numpy() == b"n2"
        assert windows[2][1].pose.numpy().tolist() == [4.0, 4.0]
