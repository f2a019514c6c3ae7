"""What a reader is asked beside its plan: of which dataset, which of its rows, and how it is run.

Each is a frozen value with one field for a parameter.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from petastore.dataset import Dataset
from petastore.dataset.opening import dataset_at, located
from petastore.errors import InvalidArgumentError
from petastore.plan.request import known_word
from petastore.storage.ranges.kept_files import cache_for
from petastore.storage.requests.under_way import DEFAULT_STORAGE_TIMEOUT_S
from petastore.work.workers import Workers

if TYPE_CHECKING:
    from petastore.codecs.images.image_hint import ImageDecode
    from petastore.expressions import Expression
    from petastore.plan.selection import Selection
    from petastore.transforming.transform import AnyTransform

__all__ = [
    "LOCAL_DISK_CACHE",
    "NULL_CACHE",
    "CacheAsk",
    "CacheType",
    "DatasetAsk",
    "Filters",
    "Predicate",
    "RowGroupSelector",
    "RowsAsk",
    "RunAsk",
    "SelectionCache",
    "Urls",
]

Urls: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""Where a dataset lies."""

_Comparison: TypeAlias = tuple[str, str, Any]
"""Column, operator and value."""

Filters: TypeAlias = "Expression | Sequence[_Comparison | Sequence[_Comparison]]"
"""An expression, or pyarrow's nested lists of `(column, operator, value)`."""

CacheType: TypeAlias = Literal["null", "local-disk"]
"""What a reader keeps of what it read, in a word."""

NULL_CACHE: Final = "null"
"""`cache_type` of a reader that keeps nothing."""

LOCAL_DISK_CACHE: Final = "local-disk"
"""`cache_type` of a reader that keeps on the local disk what it read of files elsewhere."""

SelectionCache: TypeAlias = str | os.PathLike[str] | bool
"""Where answers of filters and predicates are remembered."""


class _IncludesRows(Protocol):
    """Says of a row whether it is included; `petastore.predicates.PredicateBase` is one."""

    def get_fields(self) -> Any: ...

    def do_include(self, values: Any, /) -> Any: ...


class _IncludesBatches(Protocol):
    """Says of many rows at once which are included."""

    def get_fields(self) -> Any: ...

    def do_include_batch(self, columns: Any, /) -> Any: ...


Predicate: TypeAlias = _IncludesRows | _IncludesBatches | Callable[[Any], Any]
"""A predicate: an object that says which fields it looks at and which rows it includes, or a function of a row."""


class RowGroupSelector(Protocol):
    """What picks row groups by stored indexes; `petastore.selectors.RowGroupSelectorBase` is one."""

    def get_index_names(self) -> Any:
        """Names of the indexes that it needs."""

    def select_row_groups(self, index_dict: Any, /) -> Any:
        """Numbers of the row groups that it picks."""


@dataclasses.dataclass(frozen=True, slots=True)
class CacheAsk:
    """What is kept of files elsewhere, and where.

    Example:
        >>> CacheAsk().keeps, CacheAsk("local-disk").keeps
        (False, True)
    """

    cache_type: CacheType | None = "null"
    """What is kept."""

    cache_location: str | os.PathLike[str] | None = None
    """The local directory where that is; None is the user's cache directory."""

    cache_size_limit: int | None = None
    """Bytes that may be kept there."""

    def __post_init__(self) -> None:
        known_word(self.cache_type, CacheType, name="cache_type", or_none=True)
        if self.keeps:
            from petastore.cache.location import cache_location, verified_limit

            cache_location(self.cache_location)
            verified_limit(self.cache_size_limit)

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return self.cache_type == LOCAL_DISK_CACHE


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetAsk:
    """Which dataset, how it is reached, which parts of its images are wanted, and what is kept of its files."""

    url: Urls | Dataset = dataclasses.field(repr=False)  # it and options may hold secrets
    """Where it lies, or the dataset itself."""

    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    """Of the fsspec filesystem of the URL's scheme."""

    filesystem: Any = dataclasses.field(default=None, repr=False)
    """A pyarrow or fsspec filesystem to use instead."""

    storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S
    """Seconds that storage may take to answer a request; None is without end."""

    decode: Mapping[str, ImageDecode] | None = None
    """Field name to what is wanted of its images."""

    cache: CacheAsk = CacheAsk()
    """What is kept of its files."""

    storage_hedging: bool = False
    """Whether requests whose answers are late are made a second time."""

    def opened_alone(self) -> Dataset:
        """`opened`, of who asks for this dataset and no other.

        Raises:
            DatasetNotFoundError: There is none.
            InvalidArgumentError: It was opened before, and something is asked that is asked of who opens it; or it
                cannot be so.
        """
        reached = (self.storage_options, self.filesystem, self.storage_timeout, self.storage_hedging)
        if isinstance(self.url, Dataset) and reached != (None, None, DEFAULT_STORAGE_TIMEOUT_S, False):
            raise InvalidArgumentError(
                "storage_options and filesystem belong to open_dataset, as storage_timeout and storage_hedging do, and "
                "it has opened this dataset; give them to petastore.open_dataset"
            )
        return self.opened()

    def opened(self) -> Dataset:
        """The dataset; opened where a URL was given.

        Raises:
            DatasetNotFoundError: There is none.
            InvalidArgumentError: It cannot be so.

        Warns:
            CacheBypassWarning: Nothing can be kept of its files.
        """
        keeps, at, limit = self.cache.keeps, self.cache.cache_location, self.cache.cache_size_limit
        if isinstance(self.url, Dataset):
            return (self.url.with_cache(at, limit=limit) if keeps else self.url).with_decode(self.decode)
        location = located(
            self.url,
            storage_options=self.storage_options,
            filesystem=self.filesystem,
            storage_timeout=self.storage_timeout,
            storage_hedging=self.storage_hedging,
        )
        cache = cache_for(location, at, limit) if keeps else None
        return dataset_at(location, cache).with_decode(self.decode)


@dataclasses.dataclass(frozen=True, slots=True)
class RowsAsk:
    """Which rows, and where the answer is remembered.

    Example:
        >>> RowsAsk().is_for_all, RowsAsk(filters=[("id", ">", 7)]).is_for_all
        (True, False)
    """

    filters: Filters | None = None
    """A filter."""

    predicate: Predicate | None = None
    """Asked about each row that the filter leaves."""

    rowgroup_selector: RowGroupSelector | None = None
    """Picks the row groups that are looked at."""

    filter_cache: SelectionCache = True
    """Where answers are remembered."""

    def __post_init__(self) -> None:
        if not isinstance(self.filter_cache, bool):
            # Imported where rows are selected, if at all.
            from petastore.selecting.remembered import selection_directory

            selection_directory(self.filter_cache)  # refuses what is none

    @property
    def is_for_all(self) -> bool:
        """Whether all rows are wanted."""
        return self.filters is None and self.predicate is None and self.rowgroup_selector is None

    def selected(self, dataset: Dataset, *, workers: Workers, batched: bool = False) -> Selection | None:
        """The rows of a dataset that are wanted, by `petastore.select_rows`; None is all."""
        # Imported when something is asked: a first batch of all rows comes 20 ms sooner.
        if self.is_for_all:
            return None
        from petastore.selecting.filter import select_rows

        return select_rows(
            dataset,
            filters=self.filters,
            predicate=self.predicate,
            rowgroup_selector=self.rowgroup_selector,
            workers=workers,
            filter_cache=self.filter_cache,
            batched=batched,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class RunAsk:
    """How a reader is run."""

    workers: Workers
    """Who does the work."""

    transform: AnyTransform | None = None
    """A function for rows, or for DataFrames where `batched`; or its TransformSpec."""

    batched: bool = False
    """Whether iteration gives column batches, or else rows."""

    provenance: bool = False
    """Whether columns are added that say where rows come from."""
