"""The front door: `make_reader` and `make_batch_reader`, with the names that Petastorm's users know.

Thin, and without logic of their own: they open the dataset, plan, and hand the plan to a `Reader`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from petastore.dataset import Dataset, open_dataset
from petastore.plan.lanes import DEFAULT_SHUFFLE_MEMORY
from petastore.plan.plan import Plan
from petastore.plan.request import Shard, Tail
from petastore.readers.filter import select_rows
from petastore.readers.options import Workers
from petastore.readers.reader import Reader
from petastore.readers.transform import TransformSpec
from petastore.schema.field import UnischemaField

__all__ = ["make_batch_reader", "make_reader"]


def make_reader(
    dataset_url: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    schema_fields: Iterable[str | UnischemaField] | None = None,
    reader_pool_type: str = "thread",
    workers_count: int | None = None,
    *,
    seed: int | None = None,
    shuffle_rows: bool = False,
    shuffle_row_groups: bool = True,
    shuffle_memory: int = DEFAULT_SHUFFLE_MEMORY,
    lanes: int | None = None,
    block_rows: int | None = None,
    reshuffle: str = "epoch",
    num_epochs: int | None = 1,
    cur_shard: int | None = None,
    shard_count: int | None = None,
    tail: str | Tail = "even",
    transform_spec: TransformSpec | None = None,
    filters: Any = None,
    predicate: Any = None,
    selection_cache: str | os.PathLike[str] | bool = True,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Reader:
    """Reads a dataset row by row; adapters and `reader.batches(n)` take batches of columns from it all the same.

    Args:
        dataset_url: A directory, one Parquet file, or a list of either: petastore's datasets and plain Parquet.
        schema_fields: Names, regular expressions over whole names, or fields; None is all.
        reader_pool_type: `"thread"`, or `"dummy"` for everything in the caller's thread. The order does not depend on
            it.
        workers_count: Tasks that run at a time; None is one for each CPU that the process may use.
        seed: Any integer; 0 is one like the others. None is a fresh seed, or, where `shard_count` is given, one fixed
            seed on which all ranks agree.
        shuffle_rows: Permute rows, anew in each epoch.
        shuffle_row_groups: Permute row groups, anew in each epoch.
        shuffle_memory: Bytes of stored cells that all ranks together keep for `shuffle_rows`; more mixes better.
        lanes: Row groups that are read side by side; None lets `shuffle_memory` choose.
        block_rows: Rows of a lane that are permuted together; None lets `shuffle_memory` choose.
        reshuffle: `"epoch"` permutes row groups anew in each epoch; `"static"` lets a rank keep its row groups.
        num_epochs: Epochs of one iteration; None is without end.
        cur_shard: This rank, from 0; give it together with `shard_count`.
        shard_count: Ranks. Each row belongs to exactly one of them, and all get the same number of batches.
        tail: What becomes of rows that fill no whole batch on every rank: `"even"` (each row once, shares differ by at
            most one), `"drop"`, `"pad"` (repeats, marked in a column `valid`) or `"wrap"`.
        transform_spec: A function from a row, as a dict, to a row.
        filters: Which rows: an expression such as `petastore.col("split") == "train"`, or pyarrow's nested lists of
            `(column, operator, value)`. Settled before the first batch, so that all counts are exact.
        predicate: Which of these rows: an object with `get_fields()` and `do_include(values)`, or a function of a row
            as a dict; asked once for each row.
        selection_cache: Where the answers of both are remembered: a local directory, True for the user's cache
            directory (or `PETASTORE_CACHE`), False for nowhere.
        storage_options: Passed to the fsspec filesystem of the URL's scheme.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Returns:
        An iterator of named tuples; use it in a `with` block.

    Raises:
        DatasetNotFoundError: There is no dataset there.
        RequestError: Something that was asked for cannot be.
        NoDataAvailableError: `tail="even"` with fewer rows than ranks.
        SchemaError: Files disagree with each other, or with the schema.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": 1}, {"id": 2}])
        ...     with make_reader(folder + "/users") as reader:
        ...         [int(row.id) for row in reader]
        [1, 2]
    """
    dataset = open_dataset(dataset_url, storage_options=storage_options, filesystem=filesystem)
    asked = {
        "columns": schema_fields,
        "seed": seed,
        "shuffle_row_groups": shuffle_row_groups,
        "shuffle_rows": shuffle_rows,
        "shuffle_memory": shuffle_memory,
        "lanes": lanes,
        "block_rows": block_rows,
        "reshuffle": reshuffle,
        "shard": Shard.parse(cur_shard, shard_count),
        "epochs": num_epochs,
        "tail": tail,
    }
    rows = {"filters": filters, "predicate": predicate, "selection_cache": selection_cache}
    workers = Workers(reader_pool_type, workers_count)
    return Reader(dataset, _planned(dataset, asked, rows, workers), workers=workers, transform=transform_spec)


def make_batch_reader(
    dataset_url_or_urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    schema_fields: Iterable[str | UnischemaField] | None = None,
    reader_pool_type: str = "thread",
    workers_count: int | None = None,
    *,
    seed: int | None = None,
    shuffle_rows: bool = False,
    shuffle_row_groups: bool = True,
    shuffle_memory: int = DEFAULT_SHUFFLE_MEMORY,
    lanes: int | None = None,
    block_rows: int | None = None,
    reshuffle: str = "epoch",
    num_epochs: int | None = 1,
    cur_shard: int | None = None,
    shard_count: int | None = None,
    tail: str | Tail = "even",
    transform_spec: TransformSpec | None = None,
    filters: Any = None,
    predicate: Any = None,
    selection_cache: str | os.PathLike[str] | bool = True,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Reader:
    """Reads a dataset in batches of columns, as large as its largest row group (at most 65,536 rows).

    All parameters are those of `make_reader`, but `transform_spec` takes and returns a pandas DataFrame of one batch.
    Columns with codecs are decoded here too. `reader.batches(n)` gives batches of n rows instead.

    Returns:
        An iterator of named tuples of NumPy arrays; use it in a `with` block.

    Raises:
        DatasetNotFoundError: There is no dataset there.
        RequestError: Something that was asked for cannot be.
        NoDataAvailableError: `tail="even"` with fewer rows than ranks.
        SchemaError: Files disagree with each other, or with the schema.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(pa.table({"id": [1, 2, 3]}), folder + "/plain.parquet")
        ...     with make_batch_reader(folder) as reader:
        ...         [batch.id.tolist() for batch in reader]
        [[1, 2, 3]]
    """
    dataset = open_dataset(dataset_url_or_urls, storage_options=storage_options, filesystem=filesystem)
    asked = {
        "columns": schema_fields,
        "seed": seed,
        "shuffle_row_groups": shuffle_row_groups,
        "shuffle_rows": shuffle_rows,
        "shuffle_memory": shuffle_memory,
        "lanes": lanes,
        "block_rows": block_rows,
        "reshuffle": reshuffle,
        "shard": Shard.parse(cur_shard, shard_count),
        "epochs": num_epochs,
        "tail": tail,
    }
    rows = {"filters": filters, "predicate": predicate, "selection_cache": selection_cache}
    workers = Workers(reader_pool_type, workers_count)
    plan = _planned(dataset, asked, rows, workers)
    return Reader(dataset, plan, workers=workers, transform=transform_spec, batched=True)


def _planned(dataset: Dataset, asked: dict[str, Any], rows: dict[str, Any], workers: Workers) -> Plan:
    """The plan of a reader; what cannot be is refused before a filter reads anything."""
    plan = dataset.plan(**asked)
    selection = select_rows(dataset, workers=workers, **rows)
    return plan if selection is None else dataset.plan(**asked, selection=selection)
