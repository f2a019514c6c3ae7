"""Excluded rows of a mixture (`exclude_rows=`): find the source to which each row belongs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.inventory import RowPlace

__all__ = ["divide_excluded_rows"]


def divide_excluded_rows(places: Iterable[RowPlace], datasets: Sequence[Dataset]) -> list[tuple[RowPlace, ...]]:
    """Return the rows to exclude from each dataset.

    A path that begins with the URL of a dataset names a row of this dataset only.

    Args:
        places: `(file, row group, row)` of each row; the path of the file begins with the URL of a dataset or not.
        datasets: Datasets of the sources; the same dataset may occur several times.

    Raises:
        InvalidArgumentError: No dataset has a row, or several datasets have a row that is named without a URL.
    """
    asked: dict[str, list[tuple[int, int]]] = {}
    for path, group, row in places:
        asked.setdefault(path, []).append((group, row))
    prefixes = [f"{dataset.url}/" for dataset in datasets]
    of_datasets: list[list[RowPlace]] = [[] for _ in datasets]
    for path, rows in asked.items():
        by_url = [number for number, prefix in enumerate(prefixes) if path.startswith(prefix)]
        # sizes: rows per row group of this file in each dataset that has it
        sizes: dict[int, NDArray[np.int64]] = {}
        for number in by_url or range(len(datasets)):
            of_file = datasets[number].inventory.rows_of(path.removeprefix(prefixes[number]))
            if of_file is not None:
                sizes[number] = of_file
        for group, row in rows:
            owners = [number for number, of_file in sizes.items() if group < len(of_file) and row < of_file[group]]
            urls = dict.fromkeys(datasets[number].url for number in owners)
            if not owners or (len(urls) > 1 and not by_url):
                problem = f"which {len(urls)} datasets have" if urls else "which does not exist in any source"
                advice = f", such as {next(iter(urls))}/{path}" if urls else ""
                raise InvalidArgumentError(
                    f"exclude_rows must name rows of one dataset, got {(path, group, row)}, {problem}. Name each file "
                    f"by the URL of its dataset and its path{advice}"
                )
            for number in owners:
                of_datasets[number].append((path, group, row))
    return [tuple(rows) for rows in of_datasets]
