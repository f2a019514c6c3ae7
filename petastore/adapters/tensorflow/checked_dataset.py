"""A `tf.data.Dataset` that calls a function each time an iteration from Python begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

__all__ = ["CheckedDataset"]


class CheckedDataset(tf.data.Dataset):  # type: ignore[misc]
    """The same dataset, with a check before each iteration.

    Args:
        dataset: The dataset.
        check: Called when an iteration from Python begins; raises what makes the dataset unusable by then.
    """

    def __init__(self, dataset: Any, check: Callable[[], None]) -> None:
        self._dataset, self._check = dataset, check
        super().__init__(tf.data.experimental.to_variant(dataset))

    def _inputs(self) -> list[Any]:
        return [self._dataset]

    @property
    def element_spec(self) -> Any:
        """The types and shapes of an element."""
        return self._dataset.element_spec

    def __iter__(self) -> Any:
        self._check()
        return super().__iter__()
