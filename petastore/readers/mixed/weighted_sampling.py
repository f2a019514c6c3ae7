"""`WeightedSamplingReader`: several readers by weight, under the name that Petastorm's users know."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.fixed_share import fixed_share
from petastore.plan.mixture.mixture import Batching, Mixture
from petastore.plan.order.mix import mix
from petastore.readers.execution.execution import Execution
from petastore.readers.mixed.mixed_datasets import MixedDatasets, agreed_schema
from petastore.readers.mixed.mixed_execution import execution_of_mixture
from petastore.readers.reader import Reader
from petastore.readers.windows.window_execution import execution_of_windows
from petastore.transforming.transform import TransformSpec
from petastore.work.workers import Workers

__all__ = ["WeightedSamplingReader"]


class WeightedSamplingReader(Reader):
    """Reads several readers as one, each with its probability; all that a `Reader` does, it does.

    Nothing is drawn: proportions are exact, every run with the same seeds gives the same rows, ranks agree, and states
    resume, as `petastore.plan.mixture.mixture` says. It ends when the first of the readers has given all rows of all
    its epochs on all ranks; where all readers are endless, it is too. The readers are taken over: they lend their plan,
    dataset and transform, are not iterated themselves, and are stopped with this one.

    Rows come from all readers in turn; batch readers give batches of one source each, as Petastorm's do. Readers of
    windows must have been given equal `NGram`s; their windows are mixed then.

    Readers of one shard share the mixture with the other ranks, to the row. Where their shards differ there is none to
    share: each rank mixes what is its own, of each source the same part in every epoch, of one size on all ranks. Up to
    `shard_count - 1` rows of a source are left out.

    Args:
        readers: At least two, all from `make_reader` or all from `make_batch_reader`, with one `last_batch` and equal
            fields.
        probabilities: One for each; only their proportion counts. A reader with 0 gives nothing, and ends nothing.
        batching: `"mixed"` or `"per_source"`, as of `make_mixed_reader`; None is the latter for batch readers.
        seed: Decides in which order readers have their turns; None makes it of their seeds.
        source_column: The name of a column that is added and says which reader a row is of, from 0.

    Raises:
        InvalidArgumentError: There are too few readers, they give rows and batches, one was read from or stopped
            already, or a probability cannot be.
        SchemaError: The readers differ in a field; both datasets and the field are named.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("number", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name, first in (("/a", 0), ("/b", 100)):
        ...         _ = petastore.write_dataset(folder + name, schema, [{"id": first + n} for n in range(4)])
        ...     readers = [petastore.make_reader(folder + name, shuffle_row_groups=False) for name in ("/a", "/b")]
        ...     with WeightedSamplingReader(readers, [0.75, 0.25]) as reader:
        ...         [int(row.id) for row in reader]
        [0, 100, 1, 2, 3]
    """

    def __init__(
        self,
        readers: Sequence[Reader],
        probabilities: Sequence[Any],
        *,
        batching: Batching | None = None,
        seed: int | None = None,
        source_column: str | None = None,
    ) -> None:
        self.readers = tuple(readers)
        """The readers that were given."""
        datasets = _checked(self.readers)
        if len(probabilities) != len(datasets):
            raise InvalidArgumentError(
                f"{len(datasets):,} readers were given, but {len(probabilities):,} probabilities"
            )
        chosen = [number for number, weight in enumerate(probabilities) if weight != 0] or [0]
        if len(chosen) < len(datasets) and source_column is not None:
            raise InvalidArgumentError(
                f"source_column={source_column!r} numbers the readers, but some have probability 0; leave these out"
            )
        mixed = [self.readers[number] for number in chosen]
        first = mixed[0]
        if first.windows is not None and source_column is not None:
            raise InvalidArgumentError(f"source_column={source_column!r}, but windows have no such column")
        batching = batching or ("per_source" if first.batched_output else "mixed")
        weights = [probabilities[number] for number in chosen]
        mixture = _mixture(mixed, weights, batching=batching, seed=seed)
        super().__init__(
            MixedDatasets(tuple(datasets[number] for number in chosen), mixture),
            mixture,
            workers=first.workers,
            batched=first.batched_output,
            build=functools.partial(_execution, mixed, source_column),
        )

    def stop(self) -> None:
        """Ends reading, also of the readers that were given. May be called again, by any thread."""
        super().stop()
        for reader in self.readers:
            reader.stop()

    def join(self) -> None:
        """Waits until no worker runs any more, after `stop`. May be called again."""
        super().join()
        for reader in self.readers:
            reader.join()


def _checked(readers: Sequence[Reader]) -> list[Dataset]:
    """The datasets of readers that can be mixed."""
    if len(readers) < 2:
        raise InvalidArgumentError(
            f"{len(readers)} reader(s) were given, but there is nothing to choose among less than two"
        )
    datasets = []
    for number, reader in enumerate(readers):
        if not isinstance(reader, Reader) or not isinstance(reader.dataset, Dataset):
            raise InvalidArgumentError(
                f"reader {number} is {reader!r:.100}; give what make_reader or make_batch_reader gave"
            )
        ours, first = reader.ngram, readers[0].ngram
        if not (ours is first or (ours is not None and first is not None and ours.asks_the_same(first))):
            raise InvalidArgumentError(
                f"reader {number} gives {ours or 'rows'}, but reader 0 {first or 'rows'}; readers that are mixed must "
                "give windows of one NGram, or none"
            )
        if reader.stopped or reader.cursor != Cursor():
            raise InvalidArgumentError(f"reader {number} was read from or stopped already; give a fresh one")
        if reader.batched_output != readers[0].batched_output:
            raise InvalidArgumentError("some readers give rows and others batches; make all by make_reader, or none")
        datasets.append(reader.dataset)
    agreed_schema([reader.schema for reader in readers], [dataset.url for dataset in datasets])
    return datasets


def _execution(
    readers: Sequence[Reader],
    source_column: str | None,
    mixed: MixedDatasets,
    mixture: Mixture,
    *,
    workers: Workers,
    transform: TransformSpec | None,
    batched: bool,
) -> Execution:
    """What is run: rows of all readers, each transformed as its reader does, or windows of them."""
    transforms = [reader.transform for reader in readers]
    rows = execution_of_mixture(
        mixed,
        mixture,
        workers=workers,
        transform=transform,
        batched=batched,
        transforms=transforms,
        source_column=source_column,
    )
    windows = [reader.windows for reader in readers if reader.windows is not None]
    ngram = readers[0].ngram
    return rows if ngram is None else execution_of_windows(rows, ngram, type(windows[0]).joined(windows))


def _mixture(readers: Sequence[Reader], weights: Sequence[Any], *, batching: Batching, seed: int | None) -> Mixture:
    plans = [reader.plan for reader in readers if not isinstance(reader.plan, Mixture)]
    if len({plan.request.shard for plan in plans}) > 1:
        plans = [fixed_share(plan) for plan in plans]
    is_endless = all(plan.request.epochs is None for plan in plans)
    are_drawn = seed is None and any("seed" in plan.request.chosen for plan in plans)
    return Mixture(
        plans,
        weights,
        stop="cycle" if is_endless else "first_exhausted",
        batching=batching,
        seed=mix(*(plan.request.order.seed for plan in plans)) if seed is None else seed,
        epochs=None if is_endless else 1,
        chosen=frozenset({"seed"} if are_drawn else ()),
    )
