"""Losses of a training log, for each step or for each row.

Logs are CSV files, also exported from W&B, and TensorBoard event files.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.inventory import RowPlace

__all__ = ["Losses", "read_losses"]

_STEP_NAMES = ("step", "_step", "global_step", "trainer/global_step")
"""Names of the step column, in lower case: ours, and those that W&B exports."""

_PLACE_NAMES = (("source_file", "source_row_group", "source_row"), ("file", "row_group", "row"))
"""Names of the columns that identify a row: those of `provenance=True`, and short ones."""


_LARGEST_RECORD = 2**28
"""Maximum bytes of a TensorBoard event: a damaged length does not allocate more."""


@dataclasses.dataclass(frozen=True, eq=False)
class Losses:
    """Losses of a training run: one entry per step, per step and rank, or per row.

    Example:
        >>> Losses(np.array([0.9, 0.8]), steps=np.array([0, 1]))
        Losses(2 losses of steps 0 to 1)
    """

    losses: NDArray[np.float64]
    """Loss of each entry, shape (n,)."""

    steps: NDArray[np.int64] | None = None
    """Number of the step, shape (n,); None for losses of rows."""

    ranks: NDArray[np.int64] | None = None
    """Rank, shape (n,); None if each loss is the loss of all ranks."""

    rows: tuple[RowPlace, ...] | None = None
    """`(file, row group, row)` of each entry, for losses of rows."""

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.rows is None):
            raise InvalidArgumentError("losses must have either steps or rows, got both or neither")
        for name in ("steps", "ranks", "rows"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.losses):
                raise InvalidArgumentError(
                    f"{name} must have one entry per loss ({len(self.losses):,}), got {len(values):,}"
                )

    def __repr__(self) -> str:
        count = f"{len(self.losses):,} loss{'' if len(self.losses) == 1 else 'es'}"
        if self.steps is None or not len(self.losses):
            return f"Losses({count} of {'rows' if self.steps is None else 'steps'})"
        ranks = "" if self.ranks is None else f" on {len(np.unique(self.ranks)):,} ranks"
        return f"Losses({count} of steps {int(self.steps.min()):,} to {int(self.steps.max()):,}{ranks})"


def read_losses(path: str | os.PathLike[str], *, column: str | None = None, first_step: int = 0) -> Losses:
    r"""Read the losses of a training log.

    A CSV file has the columns `step` and `loss`, and optionally `rank`; a file that W&B exported has them under its own
    names. Or it has `source_file`, `source_row_group`, `source_row` and `loss`, one line per row of a batch, as
    `provenance=True` names rows. If a step occurs several times, such as after a restart, its last line is used. A
    directory, or a file whose name contains `tfevents`, is read as TensorBoard event files.

    Args:
        path: CSV file, TensorBoard event file, or directory with such files.
        column: Name of the loss column or of TensorBoard's tag. None means `loss`, or the only one that ends in "loss".
        first_step: Number that the log gives to the first batch, such as 1.

    Raises:
        InvalidArgumentError: The file cannot be read, or a column is missing or ambiguous.
        MissingExtraError: The file has TensorBoard events, and tensorboard is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "losses.csv"
        >>> _ = file.write_text("step,loss\n0,0.9\n1,nan\n")
        >>> read_losses(file).losses.tolist()
        [0.9, nan]
    """
    file = Path(path)
    if not file.exists():
        raise InvalidArgumentError(f"losses must be an existing file or directory, got {str(path)!r}")
    if file.is_dir() or "tfevents" in file.name:
        return _of_steps(*_tensorboard(file, column), None, first_step)
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            table = list(reader)
            names = list(reader.fieldnames or ())
    except (OSError, ValueError, csv.Error) as problem:
        raise InvalidArgumentError(f"losses must be a CSV file, got {str(path)!r}, which is not: {problem}") from None
    loss = _loss_name(names, column, path)
    for of_place in _PLACE_NAMES:
        if set(of_place) <= set(names):
            numbers = [_integers(table, name, path).tolist() for name in of_place[1:]]
            files = [row[of_place[0]] for row in table]
            return Losses(_numbers(table, loss, path), rows=tuple(zip(files, *numbers, strict=True)))
    step = next((name for name in names if name.lower() in _STEP_NAMES), None)
    if step is None:
        raise InvalidArgumentError(f"losses must have a column 'step', got {names} in {str(path)!r}")
    filled = [row for row in table if row[loss] not in ("", None)]  # W&B leaves steps of other metrics empty
    ranks = _integers(filled, "rank", path) if "rank" in names else None
    return _of_steps(_integers(filled, step, path), _numbers(filled, loss, path), ranks, first_step)


def _of_steps(
    steps: NDArray[np.int64], losses: NDArray[np.float64], ranks: NDArray[np.int64] | None, first_step: int
) -> Losses:
    """Return the losses sorted by step and rank, with steps numbered from 0.

    If a step (of a rank) occurs several times, its last loss is used. Steps before `first_step` are left out.

    Args:
        steps: Step of each loss, as the log numbers it.
        losses: The losses.
        ranks: Rank of each loss; None if the log has no ranks.
        first_step: Number that the log gives to the first batch.
    """
    keys = np.stack([steps, np.zeros_like(steps) if ranks is None else ranks])
    _, last = np.unique(keys[:, ::-1], axis=1, return_index=True)
    kept = len(steps) - 1 - last
    kept = kept[steps[kept] >= first_step]
    return Losses(losses[kept], steps=steps[kept] - first_step, ranks=None if ranks is None else ranks[kept])


def _loss_name(names: Sequence[str], column: str | None, path: Any) -> str:
    """Return the name of the column or tag that has the loss.

    Args:
        names: Names of all columns or tags of the log.
        column: Name that the user passed. None means `loss`, or the only name that ends in "loss".
        path: Path of the log, for messages.

    Raises:
        InvalidArgumentError: The name does not exist, or several names end in "loss".
    """
    wanted = "loss" if column is None else column
    if wanted in names:
        return wanted
    ending = [name for name in names if name.lower().endswith("loss")]
    if column is None and len(ending) == 1:
        return ending[0]
    raise InvalidArgumentError(
        f"column must be one of {list(names)}, the names in {str(path)!r}, got {column!r}. "
        f"Name the loss{f', such as {ending[0]!r}' if ending else ''}"
    )


def _numbers(table: Sequence[Mapping[str, Any]], name: str, path: Any) -> NDArray[np.float64]:
    try:
        return np.array([row[name] for row in table], dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InvalidArgumentError(
            f"losses must be numbers in column {name!r}, got {problem} in {str(path)!r}"
        ) from None


def _integers(table: Sequence[Mapping[str, Any]], name: str, path: Any) -> NDArray[np.int64]:
    numbers = _numbers(table, name, path)
    # `~(… < 2**53)` instead of `>=`, so that NaN is included.
    wrong = numbers[(numbers != np.floor(numbers)) | ~(np.abs(numbers) < 2**53)]
    if len(wrong):
        raise InvalidArgumentError(
            f"losses must have integers in column {name!r}, got {float(wrong[0])} in {str(path)!r}"
        )
    return numbers.astype(np.int64)


def _tensorboard(path: Path, tag: str | None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    try:
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        raise MissingExtraError("a TensorBoard log", package="tensorboard") from None
    pairs: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(path.rglob("*tfevents*")) if path.is_dir() else [path]:
        for record in _records(file):
            try:
                event = Event.FromString(record)
                for value in event.summary.value:
                    if value.HasField("simple_value"):
                        pairs.setdefault(value.tag, []).append((event.step, value.simple_value))
                    elif value.HasField("tensor") and not value.tensor.tensor_shape.dim:
                        number = make_ndarray(value.tensor)
                        if number.dtype.kind in "fiu":
                            pairs.setdefault(value.tag, []).append((event.step, float(number)))
            except (DecodeError, TypeError, ValueError) as problem:
                raise InvalidArgumentError(f"losses must be TensorBoard events, got {str(file)!r}: {problem}") from None
    name = _loss_name(list(pairs), tag, path)
    steps, losses = np.array(pairs[name], dtype=np.float64).T
    return steps.astype(np.int64), losses


def _records(path: Path) -> Iterator[bytes]:
    """Yield the records of a TFRecord file.

    The last record may be incomplete, because training still writes it; then it is left out.
    """
    # TensorBoard's own reader is not used: it imports TensorFlow if that is installed, which takes seconds.
    with path.open("rb") as file:
        while len(header := file.read(12)) == 12:
            (length,) = struct.unpack("<Q", header[:8])
            record = file.read(min(length, _LARGEST_RECORD))
            if len(record) < length or len(file.read(4)) < 4:
                return
            yield record
