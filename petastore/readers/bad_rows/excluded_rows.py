"""Excluded rows of a mixture (`exclude_rows=`): find the source to which each row belongs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    of_datasets: list[list[RowPlace]] = [[] for _ in datasets]
    for path, group, row in places:
        by_url: list[int] = []
        by_path: list[int] = []
        for number, dataset in enumerate(datasets):
            relative = path.removeprefix(f"{dataset.url}/")
            rows = dataset.inventory.rows_of(relative)
            if rows is not None and group < len(rows) and row < rows[group]:
                (by_path if relative == path else by_url).append(number)
        urls = dict.fromkeys(datasets[number].url for number in by_path)
        if not by_url and len(urls) != 1:
            problem = f"which {len(urls)} datasets have" if urls else "which does not exist in any source"
            advice = f", such as {next(iter(urls))}/{path}" if urls else ""
            raise InvalidArgumentError(
                f"exclude_rows must name rows of one dataset, got {(path, group, row)}, {problem}. Name each file by "
                f"the URL of its dataset and its path{advice}"
            )
        for number in by_url or by_path:
            of_datasets[number].append((path, group, row))
    return [tuple(rows) for rows in of_datasets]
