"""Verify a dataset: files, footers, page checksums, statistics and every cell."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.dataset.opening import dataset_of_footers, find_document, located
from petastore.errors import DatasetChangedError, DecodeError, FileMissingError, MetadataError, SchemaError
from petastore.monitoring.progress import progress_shown
from petastore.plan.request import Fields, whole_number
from petastore.storage.files.location import Location
from petastore.storage.requests.retries import DEFAULT_STORAGE_TIMEOUT_S
from petastore.verification.metadata import CheckedFiles, check_files, check_indexes, check_schema_documents
from petastore.verification.report import Problem, VerifyReport
from petastore.verification.row_groups import RowGroupCheck
from petastore.work.futures import in_order
from petastore.work.pools import Workers

__all__ = ["verify"]


def verify(
    dataset_url: str | os.PathLike[str],
    *,
    columns: Fields | None = None,
    sample: int | None = None,
    workers_count: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
    progress: bool | Callable[[int, int], object] | None = None,
) -> VerifyReport:
    """Read a dataset completely, and return all problems in a report.

    A problem does not raise an error.

    Files are compared with the manifest. Footers, page checksums, row counts, and the minimum, maximum and null count
    of each column chunk are checked. Every cell is decoded by its codec. Nothing is written.

    Args:
        dataset_url: Local path or URL of a directory or of one Parquet file: a dataset of petastore or Petastorm, or
            plain Parquet.
        columns: Names, regular expressions over whole names, or fields to read; None means all.
        sample: Number of row groups to read, evenly spaced; None means all. Metadata is always checked completely.
        workers_count: Number of row groups to read in parallel; None means one per CPU that the process may use.
        storage_options: Keyword arguments for the fsspec filesystem that the URL selects.
        filesystem: A pyarrow or fsspec filesystem, used instead of the one that the URL selects.
        storage_timeout: Timeout in seconds for each storage request; None means no timeout.
        progress: True shows progress on standard error; or a function that is called with the row groups done and their
            total.

    Returns:
        The report. Cells and statistics are not checked in a file with a damaged footer; if the schema is invalid, they
        are not checked in any file.

    Raises:
        DatasetNotFoundError: No dataset exists at the URL.
        InvalidArgumentError: An argument is invalid.
        DecodeError: pyarrow itself decodes wrong values on this machine.
        StorageError: Storage failed otherwise: no access, no connection, or a timeout.

    Example:
        >>> import tempfile, petastore
        >>> url = tempfile.mkdtemp() + "/words"
        >>> _ = petastore.write_dataset(url, {"id": [1, 2, 3], "word": ["a", None, "b"]})
        >>> report = verify(url)
        >>> report.is_clean, report.rows, report.cells
        (True, 3, 6)
    """
    count = None if sample is None else whole_number(sample, name="sample", least=1)
    workers = Workers(count=workers_count)
    location = located(
        dataset_url, storage_options=storage_options, filesystem=filesystem, storage_timeout=storage_timeout
    )
    checked = check_files(location)
    problems = checked.problems
    problems.extend(check_schema_documents(location, checked.manifest))
    dataset = _dataset(location, checked)
    if dataset is None:
        return VerifyReport(location.url, tuple(problems), len(checked.footers), 0, 0, 0, 0, {})
    if checked.manifest is not None:
        problems.extend(check_indexes(location, checked.manifest.inventory))
    problems.extend(_contradicted_directories(dataset, columns))
    check = RowGroupCheck(dataset, _stored_fields(dataset, columns))
    groups = _sampled(dataset.inventory.num_row_groups, count)
    rows = cells = 0
    pool = workers.pool()
    try:
        with progress_shown(progress, "verifying", "row groups", len(groups)) as show:
            for done, (_, of_group) in enumerate(in_order(check.check, groups.tolist(), pool), 1):
                problems.extend(of_group.problems)
                rows, cells = rows + of_group.rows, cells + of_group.cells
                if show is not None:
                    show(done, len(groups))
    finally:
        check.is_cancelled = True  # after an error or Ctrl-C, do not read a large row group to its end
        pool.close()
        pool.join()
    return VerifyReport(
        url=location.url,
        problems=tuple(dict.fromkeys(problems)),
        files=len(checked.footers),
        row_groups=len(groups),
        row_groups_total=dataset.inventory.num_row_groups,
        rows=rows,
        cells=cells,
        unsupported=dict(dataset.unreadable),
    )


def _dataset(location: Location, checked: CheckedFiles) -> Dataset | None:
    """Return the dataset of the readable files.

    Return None without readable files, or if the schema is invalid; an invalid schema adds a problem.
    """
    if not checked.footers:
        return None
    manifest, above, document = checked.manifest, list[str](), None
    try:
        if manifest is not None and manifest.schema_document is not None:
            document = manifest.schema_document
        elif not any(one.kind == "schema" for one in checked.problems):  # then `_common_metadata` is readable
            document, above = find_document(location, checked.footers)
        return dataset_of_footers(location, checked.footers, document, above)
    except (MetadataError, SchemaError) as problem:
        checked.problems.append(Problem("schema", str(problem)))
        return None


def _contradicted_directories(dataset: Dataset, columns: Fields | None) -> Iterator[Problem]:
    """Yield a problem for each partition column that only some files store, if one contradicts its directory."""
    for field in dataset.schema if columns is None else dataset.fields_of(columns):
        if field.name not in dataset.partition_names:
            continue
        try:
            dataset.check_partly_stored(field.name)
        except DecodeError as problem:
            yield Problem("page", problem.problem, problem.file, problem.row_group, field.name, problem.row)
        except (FileMissingError, DatasetChangedError, MetadataError):
            pass  # the check of row groups reports it


def _stored_fields(dataset: Dataset, columns: Fields | None) -> tuple[Any, ...]:
    fields = tuple(dataset.schema) if columns is None else dataset.fields_of(columns)
    return tuple(
        field for field in fields if field.name not in dataset.partition_names and field.name not in dataset.unreadable
    )


def _sampled(total: int, count: int | None) -> NDArray[np.int64]:
    """Return the row groups to read, by number (from 0): all, or `count` evenly spaced.

    Args:
        total: Number of row groups of the dataset.
        count: Number of row groups to read; None means all.
    """
    if count is None or count >= total:
        return np.arange(total)
    return np.linspace(0, total - 1, count).round().astype(np.int64)
