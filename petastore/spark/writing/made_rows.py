"""Rows that a user's function makes in Spark's workers, encoded where they are made."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from petastore.errors import EncodeError
from petastore.schema import Unischema
from petastore.writers.encode import encode_chunks

__all__ = ["MadeRows"]


@dataclasses.dataclass(frozen=True)
class MadeRows:
    """Numbers of items → stored cells of the rows that a function makes of them. A value; it goes to tasks by pickle.

    Example:
        >>> from petastore.schema import UnischemaField
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> made = MadeRows(lambda item: {"id": len(item)}, ["a", "bb", "ccc"], schema)
        >>> [cells.to_pydict() for cells in made([0, 2])]
        [{'id': [1, 3]}]
    """

    function: Callable[[Any], Any]
    """Gives a row, or an iterable of rows."""

    items: Sequence[Any]
    """What it is called with."""

    schema: Unischema
    """The schema of the rows."""

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        return encode_chunks(itertools.chain.from_iterable(map(self._rows, numbers)), self.schema)

    def _rows(self, number: int) -> Iterable[Any]:
        item = self.items[number]
        found = self.function(item)
        if isinstance(found, Mapping) or hasattr(found, "_asdict"):
            return (found,)
        if not isinstance(found, Iterable) or isinstance(found, (str, bytes)):
            raise EncodeError(
                f"the function of rows gave a {type(found).__name__} for the item {item!r:.100}; let it give a row, "
                "which is a dict or a named tuple, or an iterable of rows"
            )
        return found
