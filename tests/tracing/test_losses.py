"""Tests of reading loss logs: CSV, W&B's CSV export and TensorBoard events."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.proto import event_pb2

from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.tracing import Losses, read_losses


def log(folder: Path, text: str) -> Path:
    path = folder / "losses.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_loss_csv_with_a_step_column_is_read(tmp_path: Path) -> None:
    losses = read_losses(log(tmp_path, "step,loss,lr\n0,0.5,1\n1,inf,1\n2,0.25,1\n"))
    assert losses.steps is not None
    assert (losses.steps.tolist(), losses.losses.tolist(), losses.ranks) == ([0, 1, 2], [0.5, np.inf, 0.25], None)
    assert repr(losses) == "Losses(3 losses of steps 0 to 2)"


def test_loss_csv_with_a_rank_column_is_read(tmp_path: Path) -> None:
    losses = read_losses(log(tmp_path, "step,rank,loss\n1,0,1\n1,1,2\n2,1,4\n2,0,3\n"), first_step=1)
    assert losses.steps is not None
    assert losses.ranks is not None
    assert list(zip(losses.steps, losses.ranks, losses.losses, strict=True)) == [
        (0, 0, 1),
        (0, 1, 2),
        (1, 0, 3),
        (1, 1, 4),
    ]
    assert "on 2 ranks" in repr(losses)


def test_loss_log_uses_the_last_line_of_a_repeated_step(tmp_path: Path) -> None:
    assert read_losses(log(tmp_path, "step,loss\n0,1\n1,2\n1,3\n")).losses.tolist() == [1, 3]


def test_loss_csv_with_columns_of_row_provenance_is_read(tmp_path: Path) -> None:
    losses = read_losses(log(tmp_path, "source_file,source_row_group,source_row,loss\na.parquet,0,4,1.5\n"))
    assert (losses.rows, losses.steps) == ((("a.parquet", 0, 4),), None)
    assert repr(losses) == "Losses(1 loss of rows)"


def test_loss_csv_exported_from_wandb_is_read(tmp_path: Path) -> None:
    """W&B names the column after the run and metric, adds a minimum and a maximum, and leaves other steps empty."""
    header = '"Step","sun-1 - loss","sun-1 - loss__MIN","sun-1 - loss__MAX"\n'
    text = header + '"0","1.5","1.5","1.5"\n"1","","",""\n"2","3","3","3"\n'
    losses = read_losses(log(tmp_path, text))
    assert losses.steps is not None
    assert (losses.steps.tolist(), losses.losses.tolist()) == ([0, 2], [1.5, 3])


def record(step: int, value: dict[str, Any]) -> bytes:
    event = event_pb2.Event(step=step, summary={"value": [value]}).SerializeToString()
    return struct.pack("<Q", len(event)) + bytes(4) + bytes(event) + bytes(4)


def test_losses_in_tensorboard_events_are_read(tmp_path: Path) -> None:
    """Older writers store plain values, newer ones tensors; the file of a running job ends in a partial record."""
    scalars = {"plugin_data": {"plugin_name": "scalars"}}
    records = [
        record(step, {"tag": tag, "metadata": scalars, "tensor": {"dtype": "DT_FLOAT", "float_val": [value]}})
        for step in range(4)
        for tag, value in (("train/loss", 1 / (step + 1)), ("lr", 0.1))
    ]
    last = record(4, {"tag": "train/loss", "simple_value": 0.2})
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(b"".join([*records, last, last[:-6]]))
    losses = read_losses(tmp_path)
    assert losses.steps is not None
    assert losses.steps.tolist() == [0, 1, 2, 3, 4]
    assert np.allclose(losses.losses, [1, 1 / 2, 1 / 3, 1 / 4, 0.2])
    assert read_losses(file, column="lr").losses.tolist() == pytest.approx([0.1] * 4)


def test_damaged_tensorboard_events_raise(tmp_path: Path) -> None:
    damaged = tmp_path / "events.out.tfevents.1"
    damaged.write_bytes(struct.pack("<Q", 3) + bytes(4) + b"\xff\xff\xff" + bytes(4))
    with pytest.raises(InvalidArgumentError, match="losses must be TensorBoard events"):
        read_losses(damaged)
    damaged.write_bytes(struct.pack("<Q", 2**60) + bytes(100))
    with pytest.raises(InvalidArgumentError, match=r"column must be one of \[\]"):
        read_losses(damaged)


def test_tensorboard_events_name_the_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(MissingExtraError, match="pip install tensorboard"):
        read_losses(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,cost\n0,1\n", r"column must be one of \['step', 'cost'\], the names in .*, got None\. Name the loss$"),
        ("step,a_loss,b_loss\n0,1,1\n", r"got None. Name the loss, such as 'a_loss'"),
        ("time,loss\n0,1\n", "losses must have a column 'step'"),
        ("step,loss\n0,high\n", "losses must be numbers in column 'loss'"),
        (
            "source_file,source_row_group,source_row,loss\na,x,0,1\n",
            "losses must be numbers in column 'source_row_group'",
        ),
        ("step,loss\nnan,1\n", "losses must have integers in column 'step', got nan"),
        ("step,loss\n1e30,1\n", r"losses must have integers in column 'step', got 1e\+30"),
        ("step,loss\n1.5,1\n", "losses must have integers in column 'step', got 1.5"),
        ("file,row_group,row,loss\na,0,inf,1\n", "losses must have integers in column 'row', got inf"),
    ],
)
def test_invalid_loss_log_raises(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        read_losses(log(tmp_path, text))


def test_missing_loss_log_raises(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="losses must be an existing file"):
        read_losses(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgumentError, match="losses must be a CSV file"):
        read_losses(tmp_path / "binary.csv")


def test_losses_need_either_steps_or_rows() -> None:
    with pytest.raises(InvalidArgumentError, match="either steps or rows, got both or neither"):
        Losses(np.zeros(2))
    with pytest.raises(InvalidArgumentError, match=r"steps must have one entry per loss \(2\), got 3"):
        Losses(np.zeros(2), steps=np.arange(3))
