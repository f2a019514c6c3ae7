"""`WeightedSamplingReader`, as in Petastorm: mixes the rows of several readers by probability."""

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
from petastore.plan.plan import Plan
from petastore.plan.windows.windows import Windows
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.execution.mixed_datasets import MixedDatasets, agreed_schema
from petastore.readers.reader import Reader
from petastore.readers.window_reader import execution_of_windows
from petastore.transforming.transform import TransformSpec
from petastore.work.pools import Workers

__all__ = ["WeightedSamplingReader"]


class WeightedSamplingReader(Reader):
    """A reader that mixes the rows of several readers by probability, with all methods of `Reader`.

    Mixing is deterministic: proportions are fixed, and equal seeds give the same rows in every run, also after a
    resume. Iteration ends when the rows of one reader are used up (all epochs of this reader, on all ranks). If all
    readers are endless, iteration never ends. Do not iterate or close the readers yourself: this reader uses their
    plan, dataset and transform, and closes them.

    Readers from `make_reader` are mixed row by row. With readers from `make_batch_reader`, each batch comes from one
    reader, as in Petastorm. Readers of windows are mixed window by window, and must have equal `NGram`s.

    If all readers have the same shard, the mixture is divided among the ranks row by row. Otherwise each rank mixes its
    own shard of each source, with the same rows in every epoch. All ranks then get the same number of rows, and up to
    `shard_count - 1` rows of a source are dropped.

    Args:
        readers: At least two readers, all from `make_reader` or all from `make_batch_reader`, with the same
            `last_batch` and equal fields.
        probabilities: One number per reader, at least 0; only their ratio matters. A reader with probability 0 is never
            read, and does not end the epoch.
        batching: `"mixed"` or `"per_source"`, as in `make_mixed_reader`; None means `"per_source"` for batch readers,
            else `"mixed"`.
        seed: Seed of the order in which readers alternate; None derives it from the seeds of the readers.
        source_column: Name of an int32 column to add: index of the row's reader in `readers`. None adds no column.

    Raises:
        InvalidArgumentError: There are fewer than two readers, row and batch readers are combined, a reader was already
            iterated or closed, or a probability is invalid.
        SchemaError: The readers differ in a field; the message names both datasets and the field.

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
        """The readers that are mixed, in the order given."""
        datasets = _checked(self.readers)
        if len(probabilities) != len(datasets):
            raise InvalidArgumentError(
                f"probabilities must be one number per reader ({len(datasets):,}), got {len(probabilities):,}"
            )
        chosen = [number for number, weight in enumerate(probabilities) if weight != 0] or [0]
        if len(chosen) < len(datasets) and source_column is not None:
            raise InvalidArgumentError(
                f"source_column must be None if a reader has probability 0, got {source_column!r}. Leave out readers "
                "with probability 0"
            )
        mixed = [self.readers[number] for number in chosen]
        first = mixed[0]
        if first.windows is not None and source_column is not None:
            raise InvalidArgumentError(f"source_column must be None for windows, got {source_column!r}")
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
        """Stop reading, and stop the given readers. Any thread may call it, repeatedly."""
        super().stop()
        for reader in self.readers:
            reader.stop()

    def join(self) -> None:
        """Wait until all workers have ended, after `stop`. May be called repeatedly."""
        super().join()
        for reader in self.readers:
            reader.join()


def _checked(readers: Sequence[Reader]) -> list[Dataset]:
    """Return the datasets of the readers; raise an error if the readers cannot be mixed."""
    if len(readers) < 2:
        raise InvalidArgumentError(
            f"readers must have at least two readers, got {len(readers)}. Use a single reader without mixing"
        )
    datasets = []
    for number, reader in enumerate(readers):
        if not isinstance(reader, Reader) or not isinstance(reader.dataset, Dataset):
            raise InvalidArgumentError(
                f"readers must come from make_reader or make_batch_reader, got {reader!r:.100} as reader {number}"
            )
        ours, first = reader.ngram, readers[0].ngram
        if not (ours is first or (ours is not None and first is not None and ours.asks_the_same(first))):
            raise InvalidArgumentError(
                f"readers must all return windows of one NGram, or all return rows, got {ours or 'rows'} from reader "
                f"{number} "
                f"and {first or 'rows'} from reader 0"
            )
        if reader.stopped or reader.cursor != Cursor():
            raise InvalidArgumentError(
                f"readers must not have been iterated or closed before, got reader {number}, which was. Make a new "
                "reader"
            )
        if reader.batched_output != readers[0].batched_output:
            raise InvalidArgumentError(
                "readers must all be made by make_reader, or all by make_batch_reader, got both kinds"
            )
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
    """Return the execution for the rows or windows of all readers, each with its own transform."""
    transforms = [reader.transform for reader in readers]
    rows = build_execution(
        mixed,
        mixture,
        workers=workers,
        transform=transform,
        batched=batched,
        transforms=transforms,
        source_column=source_column,
        provenance=all(reader.provenance for reader in readers),
    )
    windows = [reader.windows for reader in readers if reader.windows is not None]
    ngram = readers[0].ngram
    return rows if ngram is None else execution_of_windows(rows, ngram, Windows.joined(windows))


def _mixture(readers: Sequence[Reader], weights: Sequence[Any], *, batching: Batching, seed: int | None) -> Mixture:
    plans = [reader.plan for reader in readers if isinstance(reader.plan, Plan)]
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
        urls=tuple(reader.dataset.url for reader in readers),
    )
