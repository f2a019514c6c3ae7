"""Opening a reader of several datasets by weight, given their mixture."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from petastore.dataset import Dataset
from petastore.plan.mixture.mixture import Mixture
from petastore.readers.mixed.mixed_datasets import MixedDatasets
from petastore.readers.mixed.mixed_execution import execution_of_mixture
from petastore.readers.reader import Reader
from petastore.transforming.transform import AnyTransform, as_transform_spec
from petastore.work.workers import Workers

__all__ = ["MixedReader"]


def MixedReader(  # noqa: N802 - the name by which it is known
    datasets: Sequence[Dataset],
    mixture: Mixture,
    *,
    workers: Workers,
    transforms: AnyTransform | Sequence[AnyTransform | None] | None = None,
    batched: bool = False,
    source_column: str | None = None,
) -> Reader:
    """A reader of several datasets; all that a `Reader` does, it does.

    Args:
        datasets: One for each source of the mixture.
        mixture: What is read, by whom and in what order.
        workers: Who does the work.
        transforms: One function for all rows, or one (or None) for each source.
        batched: Whether iteration gives column batches, or else rows.
        source_column: The name of an int32 column that is added and says which source a row is of, from 0; None adds
            none. The function for all rows is given it too.

    Raises:
        SchemaError: The datasets, or what their functions make of them, differ in fields, dtypes or shapes.
        InvalidArgumentError: `source_column` is the name of a column that there is.
    """
    of_sources = [as_transform_spec(each) for each in transforms] if isinstance(transforms, Sequence) else None
    return Reader(
        MixedDatasets(tuple(datasets), mixture),
        mixture,
        workers=workers,
        transform=None if isinstance(transforms, Sequence) else transforms,
        batched=batched,
        build=functools.partial(execution_of_mixture, transforms=of_sources, source_column=source_column),
    )
