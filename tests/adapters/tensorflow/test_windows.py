"""Windows in TensorFlow: stacked arrays are tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore import NGram, Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.errors import RequestError

pytestmark = pytest.mark.tf

SCHEMA = Unischema(
    "track",
    [
        UnischemaField("time", np.int64),
        UnischemaField("pose", np.float32, (2,)),
        UnischemaField("name", np.str_),
        UnischemaField("free", np.int16, (None,), NdarrayCodec()),
    ],
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("track")
    rows = (
        {"time": n, "pose": np.full(2, n, np.float32), "name": f"n{n}", "free": np.zeros(n % 3, np.int16)}
        for n in range(20)
    )
    petastore.write_dataset(folder / "data", SCHEMA, rows, rows_per_row_group=3)
    return str(folder / "data")


def test_stacked_arrays_become_tensors(url: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    asked = NGram({0: ["time", "pose"], 1: ["name"], 2: ["time", "pose"]}, 1, "time")
    with petastore.make_reader(url, asked, shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=8)
        assert dataset.element_spec["pose"].shape.as_list() == [None, 2, 2]
        batches = list(dataset.as_numpy_iterator())
    assert [row for batch in batches for row in batch["time"].tolist()] == [[n, n + 2] for n in range(18)]
    assert batches[0]["name"].tolist() == [[f"n{n + 1}".encode()] for n in range(8)]
    assert batches[0]["pose"][3].tolist() == [[3.0, 3.0], [5.0, 5.0]]


def test_single_windows_become_elements(url: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    with petastore.make_reader(url, NGram({0: ["time"], 1: ["time"]}, 1, "time"), shuffle_row_groups=False) as reader:
        windows = [window["time"].tolist() for window in make_tf_dataset(reader, batch_size=None).as_numpy_iterator()]
    assert windows == [[n, n + 1] for n in range(19)]


def test_columns_of_free_shape_are_refused_at_the_call(url: str) -> None:
    from petastore.adapters.tensorflow import make_tf_dataset

    asked = NGram({0: ["time"], 1: ["free"]}, 1, "time")
    with petastore.make_reader(url, asked) as reader, pytest.raises(RequestError, match="'free' has a free shape"):
        make_tf_dataset(reader, batch_size=8)


def test_petastorms_function_gives_named_tuples_by_offset(url: str) -> None:
    from petastore.interop.petastorm_calls import make_petastorm_dataset

    asked = NGram({-1: ["time", "name"], 1: ["pose"]}, 1, "time")
    with petastore.make_reader(url, asked, shuffle_row_groups=False) as reader:
        windows = list(make_petastorm_dataset(reader).take(3))
        assert [list(window) for window in windows] == [[-1, 1]] * 3
        assert [int(window[-1].time) for window in windows] == [0, 1, 2]
        assert windows[2][-1].name.numpy() == b"n2"
        assert windows[2][1].pose.numpy().tolist() == [4.0, 4.0]
