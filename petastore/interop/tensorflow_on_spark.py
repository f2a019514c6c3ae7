"""`DataFeed`: a reader with the interface of TensorFlowOnSpark's `DataFeed`.

Use it in existing training functions.

TensorFlowOnSpark's `InputMode.SPARK` sends rows one by one through queues. Instead, write the data once as a dataset
and use `InputMode.TENSORFLOW`: each node then reads its own shard. In a training function that takes batches from a
feed, replace only the feed:

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
    """Batches of a reader, with the interface of `TFNode.DataFeed`.

    `TFNode` is a module of TensorFlowOnSpark. Not thread-safe.

    Args:
        reader: The reader that `make_reader` returned, not yet iterated. It is closed after the last row, or by
            `terminate`.
        input_mapping: Dict from column name to name in a batch; None returns rows.

    Raises:
        InvalidArgumentError: The reader does not have a column of `input_mapping`.

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
                f"input_mapping must name columns of the reader ({', '.join(map(repr, reader.schema.fields))}), got "
                f"{', '.join(map(repr, unknown))}"
            )
        self.input_mapping = input_mapping
        """Dict from column name to name in a batch; None for rows."""
        self._columns = list(reader.schema.fields) if input_mapping is None else list(input_mapping)
        self._reader = reader
        self._batches: Iterator[Batch] | None = None
        self._batch_size = 0
        self._next: Batch | None = None
        self._given = 0  # number of rows of `_next` that were returned
        self._is_over = False

    def next_batch(self, batch_size: int) -> list[tuple[Any, ...]] | dict[str, Any]:
        """Return the next batch of `batch_size` rows; fewer at the end of an epoch.

        If the number of rows is not a multiple of the number of ranks, some ranks have one row more than others. With
        `batch_size=1`, these ranks need one additional call. To avoid this, pass `last_batch="drop"`, `"pad"` or
        `"wrap"` to `make_reader`.

        Args:
            batch_size: Rows per batch, the same in each call.

        Returns:
            A list of rows, each a tuple of column values; with `input_mapping`, a dict of arrays (rows, *shape). Empty
            after the last row.

        Raises:
            InvalidArgumentError: `batch_size` differs from that of the first call.
        """
        if self._batches is None:
            self._batch_size = whole_number(batch_size, name="batch_size", least=1)
            self._batches = iter(self._reader.iter_batches(self._batch_size))
            self._next = next(self._batches, None)
        if batch_size != self._batch_size:
            raise InvalidArgumentError(
                f"batch_size must be {self._batch_size}, as in the first call, because ranks divide batches of one "
                f"size, got {batch_size!r}"
            )
        columns = self._columns_of_next(self._batches)
        if self.input_mapping is None:
            return list(zip(*columns, strict=True))
        return dict(zip(self.input_mapping.values(), columns, strict=True))

    def _columns_of_next(self, batches: Iterator[Batch]) -> list[Any]:
        """Return the columns of the next `batch_size` rows, and advance.

        If a batch of the reader has more rows, the next calls return its remaining rows. After the last row, the
        columns are empty, and the reader is closed.
        """
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
        """Return whether the last batch was returned, or `terminate` was called."""
        return self._is_over

    def terminate(self) -> None:
        """Stop and close the reader. May be called repeatedly."""
        self._is_over = True
        self._reader.close()

    def batch_results(self, results: Sequence[Any]) -> NoReturn:
        """Raise `InvalidArgumentError`, because sending results to Spark is not supported.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(
            f"a reader's feed cannot send results to Spark, got {len(results):,} results. Write them with their "
            "keys, petastore.write_dataset(url, rows), and read that in Spark; or predict inside df.mapInPandas"
        )
