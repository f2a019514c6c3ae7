"""Tests of `DataLoader(device=)`: copies, prefetched batches, states and errors, on the CPU; and errors without CUDA.

`python -m benchmarks.device_prefetch` checks and measures CUDA streams where there is a GPU.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import petastore
from petastore.adapters.torch import DataLoader
from petastore.adapters.torch.device import Carrier, device_of
from petastore.codecs import NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError

ROWS = 50
CPU = torch.device("cpu")

FIELDS = [
    petastore.UnischemaField("id", "int64"),
    petastore.UnischemaField("flag", "bool"),
    petastore.UnischemaField("small", "uint16"),
    petastore.UnischemaField("name", str),
    petastore.UnischemaField("matrix", "float32", (64, 64), NdarrayCodec()),
    petastore.UnischemaField("track", "float64", (None, 2), NdarrayCodec()),
    petastore.UnischemaField("age", "int64", nullable=True),
]
WITHOUT_MISSING = [field.name for field in FIELDS if not field.nullable]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write fifty rows in row groups of seven, in which the age of row 30 is null, and return the URL."""
    url = str(tmp_path_factory.mktemp("device") / "dataset")
    rows = [
        {
            "id": i,
            "flag": i % 3 == 0,
            "small": i,
            "name": f"n{i}",
            "matrix": np.full((64, 64), i, np.float32),
            "track": np.full((i % 4, 2), i, np.float64),
            "age": None if i == 30 else i,
        }
        for i in range(ROWS)
    ]
    petastore.write_dataset(url, petastore.Unischema("rows", FIELDS), rows, rows_per_row_group=7)
    return url


@pytest.fixture
def readers(url: str) -> Iterator[Any]:
    """Return a function that opens readers; all of them are stopped at the end."""
    made: list[petastore.Reader] = []

    def make(fields: list[str] | None = None, **asked: Any) -> petastore.Reader:
        made.append(petastore.make_reader(url, fields or ["id"], seed=1, shuffle_rows=True, **asked))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()
        reader.join()


def test_device_loader_yields_the_same_batches(readers: Any) -> None:
    plain = list(DataLoader(readers(WITHOUT_MISSING), batch_size=8))
    moved = list(DataLoader(readers(WITHOUT_MISSING), batch_size=8, device="cpu"))
    assert len(plain) == len(moved) == 7
    for expected, found in zip(plain, moved, strict=True):
        assert list(expected) == list(found) == WITHOUT_MISSING
        for name in ("id", "flag", "small", "matrix"):
            assert found[name].dtype is expected[name].dtype
            assert torch.equal(found[name], expected[name])
        assert found["name"] == expected["name"]
        assert all(map(torch.equal, found["track"], expected["track"]))


def test_device_batches_are_copies(readers: Any) -> None:
    first, *_ = kept = list(DataLoader(readers(["id", "matrix"]), batch_size=8, device="cpu", pin_memory=True))
    first["matrix"].zero_()
    assert [int(row[0, 0]) for batch in kept[1:] for row in batch["matrix"]] == [
        int(i) for batch in kept[1:] for i in batch["id"]
    ]


@pytest.mark.parametrize("form", ["padded", "nested"])
def test_device_loader_keeps_ragged_forms(readers: Any, form: str) -> None:
    asked: Any = {"batch_size": 20, "ragged": form}
    plain = list(DataLoader(readers(["id", "track"]), **asked))
    moved = list(DataLoader(readers(["id", "track"]), device="cpu", **asked))
    for expected, found in zip(plain, moved, strict=True):
        assert list(found) == list(expected)
        assert found["track"].is_nested is (form == "nested")
        assert all(map(torch.equal, found["track"].unbind(), expected["track"].unbind()))


def test_collate_fn_runs_on_the_host_before_the_copy_to_device(readers: Any) -> None:
    loader = DataLoader(
        readers(["id"]), 10, lambda rows: (torch.tensor([row["id"] for row in rows]), len(rows)), device="cpu"
    )
    batches = list(loader)
    assert sorted(i for ids, _ in batches for i in ids.tolist()) == list(range(ROWS))
    assert [rows for _, rows in batches] == [10] * 5


@pytest.mark.parametrize("epochs", [1, 3])
def test_device_loader_has_the_same_state_after_each_batch(readers: Any, epochs: int) -> None:
    plain = DataLoader(readers(num_epochs=epochs), batch_size=8)
    moved = DataLoader(readers(num_epochs=epochs), batch_size=8, device="cpu")
    assert plain.state_dict() == moved.state_dict()
    for _ in range(2):
        for expected, found in zip(plain, moved, strict=True):
            assert expected["id"].tolist() == found["id"].tolist()
            assert plain.state_dict() == moved.state_dict()
        assert plain.state_dict() == moved.state_dict()


@pytest.mark.parametrize("received", range(1, 8))
def test_device_loader_resumes_after_the_last_yielded_batch(readers: Any, received: int) -> None:
    reader = readers(num_epochs=2)
    loader = DataLoader(reader, batch_size=8, device="cpu")
    batches = iter(loader)
    ids = [i for _ in range(received) for i in next(batches)["id"].tolist()]
    state = loader.state_dict()
    assert reader.state_dict() != state
    again = DataLoader(readers(num_epochs=2), batch_size=5, device="cpu")
    again.load_state_dict(state)
    ids += [i for batch in again for i in batch["id"].tolist()]
    assert collections.Counter(ids) == dict.fromkeys(range(ROWS), 2)


@pytest.mark.parametrize("received", [1, 6, 7, 8, 14])
def test_device_loader_restarts_after_a_break(readers: Any, received: int) -> None:
    # An epoch has seven batches, so after the seventh the prefetched batch belongs to the next epoch.
    found = []
    for device in (None, "cpu"):
        loader = DataLoader(readers(num_epochs=2), batch_size=8, device=device)
        batches = iter(loader)
        seen = [[next(batches)["id"].tolist() for _ in range(received)]]
        seen += [[batch["id"].tolist() for batch in loader]]
        found.append((seen, loader.state_dict()))
    assert found[0] == found[1]


def test_device_loader_resumes_from_a_state_loaded_after_a_break(readers: Any) -> None:
    loader = DataLoader(readers(), batch_size=8, device="cpu")
    whole = [batch["id"].tolist() for batch in loader]
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch["id"].tolist() for batch in batches]
    next(iter(loader))
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert [batch["id"].tolist() for batch in loader] == rest
    assert 0 < len(rest) < len(whole)


def test_device_loader_state_follows_a_reset_of_the_reader(readers: Any) -> None:
    loader = DataLoader(readers(), batch_size=8, device="cpu")
    next(iter(loader))
    received = loader.state_dict()
    loader.reader.reset()
    assert loader.state_dict() == loader.reader.state_dict() != received
    assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(ROWS))


def test_device_loader_newer_loop_ends_the_older_with_an_error(readers: Any) -> None:
    loader = DataLoader(readers(num_epochs=None), batch_size=8, device="cpu")
    older, newer = iter(loader), iter(loader)
    next(older)
    next(newer)
    state = loader.state_dict()
    with pytest.raises(InvalidArgumentError, match="the loader was iterated again"):
        next(older)
    assert loader.state_dict() == state
    next(newer)


def test_device_loader_older_loop_drops_its_prefetched_batch(readers: Any) -> None:
    loader = DataLoader(readers(), batch_size=25, device="cpu")
    older = iter(loader)
    next(older)
    assert len(list(loader)) == 2
    with pytest.raises(InvalidArgumentError, match="the loader was iterated again"):
        next(older)


def test_device_loader_raises_errors_at_their_batch(url: str, tmp_path: Path) -> None:
    # The file has no statistics; with them, the error would be raised when the loader is created.
    table = petastore.open_dataset(url).to_arrow(ROWS).select(["id", "age"])
    pq.write_table(table, tmp_path / "ages.parquet", row_group_size=7, write_statistics=False)
    with petastore.make_reader(str(tmp_path / "ages.parquet"), shuffle_row_groups=False) as reader:
        loader = DataLoader(reader, batch_size=8, device="cpu")
        seen = []
        with pytest.raises(DecodeError, match=r"column 'age': nulls= must be set .* 1 of 8 values missing\."):
            seen += [batch["id"].tolist() for batch in loader]
        assert seen == []
        batches = iter(loader)
        assert [next(batches)["id"].tolist()[0] for _ in range(3)] == [0, 8, 16]
        state = loader.state_dict()
        with pytest.raises(DecodeError, match=r"column 'age': nulls= must be set .* 1 of 8 values missing\."):
            next(batches)
        assert loader.state_dict() == state
        assert state["position"] == 24


def test_device_loader_raises_an_error_of_the_first_batch(readers: Any) -> None:
    def fail(_row: dict[str, Any]) -> dict[str, Any]:
        raise OSError("the camera was off")

    loader = DataLoader(readers(transform_spec=petastore.TransformSpec(fail)), batch_size=8, device="cpu")
    with pytest.raises(petastore.errors.TransformError, match="the camera was off"):
        next(iter(loader))


def test_device_loader_can_be_left_when_endless(readers: Any) -> None:
    loader = DataLoader(readers(num_epochs=None), batch_size=8, device="cpu")
    batches = iter(loader)
    assert len([next(batches) for _ in range(30)]) == 30


def test_device_loader_has_device_attribute(readers: Any) -> None:
    assert DataLoader(readers(), batch_size=8).device is None
    assert DataLoader(readers(), batch_size=8, device=CPU).device == CPU


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("gpu", r"device must be a torch device, got 'gpu' \(Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl,"),
        (3.5, r"device must be a torch device, got 3\.5 \(device\(\) received an invalid combination of arguments"),
        (
            "meta",
            r"device must be a CUDA device or 'cpu', got 'meta': a loader copies batches in advance only to these\.",
        ),
    ],
)
def test_invalid_device_raises_at_the_call(readers: Any, asked: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        DataLoader(readers(), batch_size=8, device=asked)


@pytest.mark.leaves_running("CUDA keeps its devices open")
def test_dataloader_rejects_a_missing_cuda_device_at_the_call(readers: Any) -> None:
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    needed = rf"one of the CUDA devices 0 to {devices - 1}, got 'cuda:99'" if devices else "available, got 'cuda:99'"
    with pytest.raises(InvalidArgumentError, match=f"device must be {needed}"):
        DataLoader(readers(), batch_size=8, device="cuda:99")
    if not devices:
        with pytest.raises(
            InvalidArgumentError, match=r"device must be available, got 'cuda', but torch .* finds no CUDA"
        ):
            device_of("cuda")


class Pair(NamedTuple):
    x: torch.Tensor
    y: Any


def test_nested_tensors_are_moved_to_the_device() -> None:
    x, y = torch.arange(3), torch.arange(4.0)
    batch = Carrier(CPU).begin(({"x": x, "words": ["a"]}, Pair(y, [x]), None, 7))()
    assert isinstance(batch[1], Pair)
    assert torch.equal(batch[0]["x"], x)
    assert torch.equal(batch[1].x, y)
    assert batch[0]["x"].data_ptr() != x.data_ptr()
    assert batch[1].y[0] is x
    assert batch[2:] == (None, 7)


DTYPES = [torch.bool, torch.uint8, torch.int16, torch.float16, torch.bfloat16, torch.float64, torch.complex128]


def test_small_tensors_are_copied_in_one_buffer() -> None:
    tensors = {
        f"{dtype} {shape}": torch.ones(shape).to(dtype) for dtype in DTYPES for shape in [(), (0, 3), (5,), (2, 3)]
    }
    moved = Carrier(CPU).begin(tensors)()
    assert list(moved) == list(tensors)
    for name, tensor in tensors.items():
        assert moved[name].dtype is tensor.dtype
        assert torch.equal(moved[name], tensor)
    assert len({tensor.untyped_storage().data_ptr() for tensor in moved.values()}) == 1


def test_large_tensors_have_their_own_buffer() -> None:
    moved = Carrier(CPU).begin({"label": torch.zeros(64), "image": torch.zeros(64, 1024)})()
    assert moved["label"].untyped_storage().nbytes() <= 1024
    assert moved["image"].untyped_storage().nbytes() == 64 * 1024 * 4


def test_device_copy_is_not_affected_by_later_writes() -> None:
    source = {"id": torch.arange(3), "image": torch.zeros(64, 1024), "step": torch.ones(4)[::2]}
    carried = Carrier(CPU).begin(source)
    for tensor in source.values():
        tensor.fill_(9)
    moved = carried()
    assert moved["id"].tolist() == [0, 1, 2]
    assert float(moved["image"].abs().sum()) == 0
    assert moved["step"].tolist() == [1, 1]


def test_gpu_benchmark_reports_a_missing_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import device_prefetch

    assert Path(device_prefetch.__file__).name == "device_prefetch.py"
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match="no CUDA device"):
            device_prefetch.main([])
