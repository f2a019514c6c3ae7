"""`DataFeed` of TensorFlowOnSpark over a reader: for functions that pull batches from what Spark pushed.

`InputMode.SPARK` sends rows one by one through queues. With the data written once as a dataset, and
`InputMode.TENSORFLOW`, each node reads its own share, `make_reader(url, cur_shard=from_tfos(ctx))`; a function that
asks its feed for batches goes on as it is:

```python
feed = DataFeed(make_reader(url, cur_shard=from_tfos(ctx)), input_mapping={"image": "x", "label": "y"})
while not feed.should_stop():
    batch = feed.next_batch(64)
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from petastore.errors import InvalidArgumentError
from petastore.plan.request import whole_number
from petastore.readers.batch import Batch
from petastore.readers.reader import Reader

__all__ = ["DataFeed"]


class DataFeed:
    """Batches of a reader, as `TFNode.DataFeed` gives those of a queue. Use it from one thread.

    Args:
        reader: What `make_reader` gave, at its beginning. It is closed at its end, or by `terminate`.
        input_mapping: Column to the name under which a batch has it; None gives rows.

    Raises:
        InvalidArgumentError: The reader has no such column.

    Example:
        >>> import petastore, tempfile
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, {"x": [1, 2, 3], "y": [4, 5, 6]})
        >>> feed = DataFeed(petastore.make_reader(url, shuffle_row_groups=False), input_mapping={"x": "input"})
        >>> while not feed.should_stop():
        ...     print(feed.next_batch(2))
        {'input': array([1, 2])}
        {'input': array([3])}
    """

    def __init__(self, reader: Reader, input_mapping: Mapping[str, str] | None = None) -> None:
        unknown = sorted(set(input_mapping or ()) - reader.schema.fields.keys())
        if unknown:
            raise InvalidArgumentError(
                f"input_mapping names {', '.join(map(repr, unknown))}, but the reader has "
                f"{', '.join(map(repr, reader.schema.fields))}"
            )
        self.input_mapping = input_mapping
        """Column to name in a batch; None for rows."""
        self._columns = list(reader.schema.fields) if input_mapping is None else list(input_mapping)
        self._reader = reader
        self._batches: Iterator[Batch] | None = None
        self._batch_size = 0
        self._next: Batch | None = None
        self._given = 0  # rows of it
        self._is_over = False

    def next_batch(self, batch_size: int) -> list[tuple[Any, ...]] | dict[str, Any]:
        """So many rows; fewer at the end of an epoch, and never more.

        Where an epoch leaves fewer rows than there are ranks, some ranks have one row more than the others. It comes by
        a further call, so with batches of one row, for one, those ranks make one call more; `last_batch="drop"`,
        `"pad"` or `"wrap"` of `make_reader` makes them equal.

        Args:
            batch_size: The same in each call: ranks share batches of it.

        Returns:
            A list of rows, each a tuple of its columns' values; or with `input_mapping` a dict of arrays
            (rows, *shape). Empty after the end.

        Raises:
            InvalidArgumentError: The number is another one than in the first call.
        """
        if self._batches is None:
            self._batch_size = whole_number(batch_size, name="batch_size", least=1)
            self._batches = iter(self._reader.iter_batches(self._batch_size))
            self._next = next(self._batches, None)
        if batch_size != self._batch_size:
            raise InvalidArgumentError(
                f"next_batch({batch_size!r}) after next_batch({self._batch_size}): ranks share batches of one size, so "
                "give the same number in each call"
            )
        columns = self._columns_of_next(self._batches)
        if self.input_mapping is None:
            return list(zip(*columns, strict=True))
        return dict(zip(self.input_mapping.values(), columns, strict=True))

    def _columns_of_next(self, batches: Iterator[Batch]) -> list[Any]:
        """The columns of a batch, or of what is left of one that has more rows than were asked for."""
        if self._is_over or self._next is None:
            self.terminate()
            return [[] for _ in self._columns]
        batch, begin = self._next, self._given
        end = min(begin + self._batch_size, batch.num_rows)
        self._given = end
        if end == batch.num_rows:
            self._next, self._given = next(batches, None), 0
        if self._next is None:
            self.terminate()
        is_whole = end - begin == batch.num_rows
        return [batch[name] if is_whole else batch[name][begin:end] for name in self._columns]

    def should_stop(self) -> bool:
        """Whether the last batch was given, or `terminate` was called."""
        return self._is_over

    def terminate(self) -> None:
        """Ends it; the reader is closed. May be called again."""
        self._is_over = True
        self._reader.stop()
        self._reader.join()

    def batch_results(self, results: Sequence[Any]) -> NoReturn:
        """Nothing goes back to Spark this way.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(
            f"{len(results):,} results cannot go back to Spark through a feed of a reader: write them with their keys, "
            "petastore.write_dataset(url, rows), and read that in Spark; or predict inside of df.mapInPandas"
        )
