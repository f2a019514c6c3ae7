"""A column on its way into TensorFlow: the arrays that cross, and the tensor that is made of them there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from petastore.adapters.runs import Run

__all__ = ["TensorColumn"]


@dataclasses.dataclass(frozen=True)
class TensorColumn:
    """How a column travels from NumPy into TensorFlow."""

    name: str
    parts: tuple[Any, ...]
    """A `tf.TensorSpec` of each array that crosses."""
    convert: Callable[[NDArray[Any]], Sequence[NDArray[Any]]]
    """A column `(rows, ...)` as these arrays."""
    join: Callable[[Sequence[Any]], Any] | None = None
    """The arrays, as tensors, as the column, in graph code; None where it is the one array."""
    finish_row: Callable[[Any], Any] | None = None
    """For rows: one row of the column as the tensor that users get, in graph code; None where it is that."""
    made_of: str | None = None
    """The reader's column; None is the one of this name."""
    is_dense: bool = False
    """Whether it is one array whose first dimension is rows, each independent of the others."""
    is_as_it_is: bool = False
    """Whether it is the reader's array itself, once nothing is missing."""

    def of(self, run: Run) -> Sequence[NDArray[Any]]:
        """The arrays of all rows of a run."""
        return self.convert(run.column(self.made_of or self.name))
