"""Location of a dataset: the filesystem and paths of its URLs.

Credentials are never shown.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

from pyarrow import fs

from petastore.errors import DatasetNotFoundError, InvalidArgumentError, StorageError
from petastore.lazy import once
from petastore.storage.files.file_systems import (
    WithoutSecrets,
    filesystem_and_path,
    full_url,
    goes_to_a_child,
    path_in,
    scheme_and_host,
)
from petastore.storage.files.walk import pattern_at
from petastore.storage.requests.failures import (
    answered,
    foreign_text,
    raise_alone,
    secrets_in_options,
    secrets_in_url,
    shown_url,
    without_query,
)
from petastore.storage.requests.retries import DEFAULT_STORAGE_TIMEOUT_S
from petastore.storage.stores.interface import Store, store_of

__all__ = ["Location", "open_location"]

_WILDCARDS = frozenset("*?[")

_Found = TypeVar("_Found")


@dataclasses.dataclass(frozen=True, repr=False)
class Location:
    """Filesystem and path of a dataset.

    Immutable; thread-safe if the filesystem is, such as those of pyarrow and fsspec. The pickle contains credentials
    only if `multiprocessing` is starting a process. Otherwise the unpickled location finds credentials in its
    environment.

    Example:
        >>> location = open_location("memory://bucket/frames")
        >>> location, location.join("day=1/part-0.parquet")
        (Location('memory://bucket/frames'), '/bucket/frames/day=1/part-0.parquet')
    """

    url: str
    """URL for messages, without credentials."""

    filesystem: Any
    """A `pyarrow.fs.FileSystem`, or a `Store`, which has the same methods."""

    root: str
    """Path of the dataset's directory in `filesystem`, without a trailing slash."""

    paths: tuple[str, ...] | None = None
    """Files or directories to read, relative to `root`; None means all of `root`.

    Set if the caller passed a single file, a list or a pattern.
    """

    matched: frozenset[str] = frozenset()
    """The `paths` that match a pattern of the caller."""

    named: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Dict from path in `paths` to full path in `filesystem` with the URL's query.

    It contains only the paths whose URLs have a query, such as signed URLs.
    """

    timeout_s: float | None = dataclasses.field(default=DEFAULT_STORAGE_TIMEOUT_S, compare=False)
    """Timeout of each storage request in seconds; None means no timeout."""

    times: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """How often the caller listed each path, for paths that were listed repeatedly."""

    @property
    def store(self) -> Store:
        """The filesystem as a `Store`, whose reads can require and return file versions."""
        return store_of(self.filesystem)

    @property
    def system(self) -> str:
        """Name of the file system, for messages."""
        return self.store.system

    @property
    def secrets(self) -> frozenset[str]:
        """Secrets that messages of the filesystem may contain, from its URLs and options."""
        of_files = [secret for path in itertools.islice(self.named.values(), 100) for secret in secrets_in_url(path)]
        return secrets_in_url(self.root) | secrets_in_options(self.store.storage_options) | frozenset(of_files)

    @property
    def is_anonymous(self) -> bool:
        """Whether requests are known to be unsigned."""
        return self.store.is_anonymous

    @property
    def missing_bucket(self) -> str | None:
        """The location's bucket if it does not exist, otherwise None; makes a request.

        Raises:
            StorageError: The request failed.
        """
        store, bucket = self.store, self.root.lstrip("/").partition("/")[0]
        if not store.has_buckets or not bucket:
            return None
        return bucket if answered(self, lambda: store.bucket_is_missing(bucket), "look for the bucket") else None

    @once
    def is_local(self) -> bool:
        """Whether the dataset is in Arrow's local filesystem."""
        return bool(self.filesystem.type_name == "local")

    @once
    def is_asked_again(self) -> bool:
        """Whether petastore retries failed requests.

        False for a local disk and for clients that the user passed.
        """
        return self.store.is_retried

    def times_of(self, relative: str) -> int:
        """Return how often the rows of a file are read in each epoch.

        This is how often the user passed the file or its directory.
        """
        return next((times for path, times in self.times.items() if f"{relative}/".startswith(f"{path}/")), 1)

    def join(self, relative: str) -> str:
        """Return the path in `filesystem` of a path under `root`."""
        if relative in self.named:
            return self.named[relative]
        return f"{self.root.rstrip('/')}/{relative}" if self.root else relative

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle, without credentials.

        Only the state for a process that `multiprocessing` starts has credentials.
        """
        if goes_to_a_child():
            return dict(vars(self))
        unsigned = {name: without_query(path) for name, path in self.named.items()}
        return {**vars(self), "filesystem": WithoutSecrets(self.filesystem, self.url), "named": unsigned}

    def __deepcopy__(self, _memo: Any) -> Location:
        """Return the same object, which is immutable."""
        return self

    def __repr__(self) -> str:
        return f"Location({self.url!r})" if self.paths is None else f"Location({self.url!r}, {len(self.paths):,} paths)"


def open_location(
    url_or_urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
    patterns: bool = False,
    timeout_s: float | None = DEFAULT_STORAGE_TIMEOUT_S,
) -> Location:
    """Return the location of a dataset: its filesystem and path.

    The path need not exist. A URL may name a directory or a file. The URLs of a list must share scheme and host, and a
    URL must not be inside another one. Their nearest common directory is the root, so that hive keys below it become
    columns. Repeated paths are read repeatedly (`Location.times`). The root of a pattern such as `day=*/part-?.parquet`
    is the directory before the first wildcard. Root and partition columns therefore do not depend on the matches.

    Args:
        url_or_urls: A URL of any fsspec scheme (`file`, `s3`, `gs`, `abfs`, `hdfs`, `memory`, …), a local path, or a
            list of them. `s3a` and `s3n` mean `s3`. In `file` URLs `%20` is literal if such a path exists, as in Spark;
            otherwise it is decoded if that path exists.
        storage_options: Keyword arguments of the fsspec filesystem, such as keys and endpoints.
        filesystem: A pyarrow or fsspec filesystem to use instead; the URL then is a path in this filesystem.
        patterns: Whether `*`, `?`, `[…]` and `**` are wildcards, as in fsspec's globs. An existing path with such a
            character is not a pattern, and in a web address `?` begins the query.
        timeout_s: Timeout of each request in seconds; None means no timeout.

    Raises:
        InvalidArgumentError: The URL is missing or invalid, or the URLs of a list have no common scheme and host.
        StorageError: The storage cannot be reached.
        DatasetNotFoundError: A pattern matches nothing.
        MissingExtraError: The scheme needs a package that is not installed.

    Example:
        >>> open_location("s3://bucket/frames", filesystem=fs.LocalFileSystem()).root
        'bucket/frames'
        >>> open_location([])
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: dataset URLs must not be an empty list. Name at least one
    """
    way = _Way(storage_options, filesystem, patterns, timeout_s)
    if isinstance(url_or_urls, (str, os.PathLike)):
        url_or_urls = [url_or_urls]
    if not isinstance(url_or_urls, Iterable) or isinstance(url_or_urls, (bytes, Mapping)):
        raise InvalidArgumentError(
            f"dataset URL must be a str, a path or a list of them, got {type(url_or_urls).__name__}"
        )
    urls = [_checked_url(url) for url in url_or_urls]
    if not urls:
        raise InvalidArgumentError("dataset URLs must not be an empty list. Name at least one")
    return _of_urls(urls, way)


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """Options that the user passed for access to storage, such as `storage_options`."""

    storage_options: Mapping[str, Any] | None
    filesystem: Any
    patterns: bool
    timeout_s: float | None

    def location(self, url: str, filesystem: Any, root: str) -> Location:
        """Return the location of a dataset, with the timeout that the user passed.

        Args:
            url: URL of the dataset.
            filesystem: Filesystem of the URL.
            root: Path of the dataset in the filesystem.
        """
        return Location(full_url(url), filesystem, root, timeout_s=self.timeout_s)


def _checked_url(url: Any) -> str:
    if not isinstance(url, (str, os.PathLike)) or isinstance(os.fspath(url), bytes):
        raise InvalidArgumentError(f"dataset URL must be a str or a path, got {type(url).__name__}")
    text = os.fspath(url)
    if not text.strip():
        raise InvalidArgumentError(
            "dataset URL must not be empty. Pass a URL such as file:///data/frames, or a local path"
        )
    if "\0" in text:
        raise InvalidArgumentError(f"dataset URL must not contain a NUL character, got {shown_url(text)!r}")
    return text


def _whole_or_file(filesystem: Any, place: _Place, way: _Way) -> Location:
    location = way.location(place.url, filesystem, place.path)
    info = _asked(location, lambda: location.store.file_at(place.path), way)
    if info.type == fs.FileType.File:
        path = without_query(place.path)
        directory, name = posixpath.split(path)
        with_query = {name: place.path} if path != place.path else {}
        times = {name: place.times} if place.times > 1 else {}
        return dataclasses.replace(location, root=directory, paths=(name,), named=with_query, times=times)
    if info.type == fs.FileType.Unknown:
        raise StorageError(
            f"{location.url} must be a file or a directory, got something else. Name the file or directory that has "
            "the data"
        )
    if place.times > 1:
        raise InvalidArgumentError(
            f"a whole dataset must be named once, got {location.url} {place.times} times. To repeat its rows, read "
            "several epochs, or name files or a pattern several times"
        )
    return location


def _asked(location: Location, look: Callable[[], _Found], way: _Way) -> _Found:
    """Make the first request to a storage, and return its result.

    Some filesystems reject invalid `storage_options` only at the first request. The exception is then converted to
    InvalidArgumentError.

    Args:
        location: Location of the request.
        look: Function that makes the request.
        way: Options that the user passed.
    """

    def looked() -> _Found:
        try:
            location.store.forget_listings()
            return look()
        except TypeError as problem:
            if not way.storage_options:
                raise
            # Some filesystems read their options only on connecting.
            said = foreign_text(problem, location.secrets)
            raise_alone(
                InvalidArgumentError(f"{location.url}: the file system rejected storage_options: {said}. Correct them")
            )

    return answered(location, looked)


def _of_urls(urls: list[str], way: _Way) -> Location:
    schemes = {scheme_and_host(url) for url in urls} if len(urls) > 1 else set()
    if len(schemes) > 1:
        shown = ", ".join(sorted(shown_url(f"{scheme}://{host}") for scheme, host in schemes))
        raise InvalidArgumentError(
            f"dataset URLs must have the same scheme and host, got {shown}. Open each separately"
        )
    opened, first = filesystem_and_path(urls[0], way.storage_options, way.filesystem, way.timeout_s)
    paths = [first, *(path_in(opened, url, way.filesystem) for url in urls[1:])]
    times, first_urls = collections.Counter(paths), dict(zip(reversed(paths), reversed(urls), strict=True))
    places = [
        dataclasses.replace(_place(opened, first_urls[path], path, way), times=count) for path, count in times.items()
    ]
    named = [(place.path, place.url) for place in places if place.matches is None]
    sorted_paths = sorted(named, key=lambda named: named[0].split("/"))
    for (previous, around), (path, url) in itertools.pairwise(sorted_paths):
        if path == previous or path.startswith(previous.rstrip("/") + "/"):
            raise InvalidArgumentError(
                f"dataset URLs must not overlap, got {full_url(url)}, which is or is inside {full_url(around)}. To "
                "repeat rows, name the same file or pattern several times"
            )
    return _of_places(opened, places, way)


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Path of one URL in its filesystem."""

    url: str

    path: str
    """Path in the filesystem; of a pattern, the directory before the first wildcard."""

    levels: int
    """Number of `/`-separated parts of the path that the caller passed, to shorten the URL in messages."""

    matches: Sequence[str] | None = None
    """Paths that match the pattern, relative to `path`; None without a pattern."""

    times: int = 1
    """Number of times that the caller listed this URL."""


def _place(filesystem: Any, url: str, path: str, way: _Way) -> _Place:
    levels = without_query(path).count("/") + 1
    if not way.patterns:
        return _Place(url, path, levels)

    def look() -> _Place | None:
        for spelling in dict.fromkeys([path, unquote(path) if url.startswith("file:") else path]):
            if not _WILDCARDS.intersection(spelling):
                return _Place(url, spelling, levels)
            pattern = pattern_at(filesystem, spelling)
            if pattern is None:
                return _Place(url, spelling, levels)
            matches = pattern.matches(filesystem)
            if matches:
                return _Place(url, pattern.fixed, levels, matches)
        return None

    place = _asked(way.location(url, filesystem, path), look, way)
    if place is None:
        raise DatasetNotFoundError(
            f"{full_url(url)}: the pattern must match at least one file, got none. Correct the pattern"
        )
    return place


def _of_places(filesystem: Any, places: Sequence[_Place], way: _Way) -> Location:
    if len(places) == 1 and places[0].matches is None:
        return _whole_or_file(filesystem, places[0], way)
    # `posixpath.commonpath` is not used, because it merges the two slashes of web addresses.
    asked = [place.path for place in places]
    names = _unlike([place.path if place.matches is not None else without_query(place.path) for place in places], asked)
    parts = [name.split("/") for name in names]
    shared = len(list(itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))))
    root = "/".join(parts[0][:shared]) or ("/" if places[0].path.startswith("/") else "")
    named: dict[str, str] = {}
    matched: set[str] = set()
    times: dict[str, int] = {}
    for place, part in zip(places, parts, strict=True):
        above = "/".join(part[shared:])
        if place.matches is None:
            named[above] = place.path
        under_it = [posixpath.join(above, path) for path in place.matches or ()]
        matched.update(under_it)
        if place.times > 1:
            times.update(dict.fromkeys([above] if place.matches is None else under_it, place.times))
    matched.difference_update(named)
    url = without_query(places[0].url)
    if len(places) > 1 and places[0].levels > shared:
        # A relative path has fewer parts than its path in the filesystem, so the URL is made absolute before.
        above = full_url(url).rsplit("/", places[0].levels - shared)[0]
        url = "/" if above == "file://" else above
    if "" in named:
        return way.location(url, filesystem, root)
    with_query = {name: path for name, path in named.items() if without_query(path) != path}
    paths = (*named, *sorted(matched))
    location = way.location(url, filesystem, root)
    return dataclasses.replace(location, paths=paths, matched=frozenset(matched), named=with_query, times=times)


def _unlike(named: list[str], paths: list[str]) -> list[str]:
    """Make the names of files distinct if their paths differ only in the query.

    A digest of the path is appended to names that different paths share. All other names are returned unchanged.

    Args:
        named: Path of each file without the query.
        paths: Path of each file with the query.
    """
    ways: dict[str, set[str]] = collections.defaultdict(set)
    for name, path in zip(named, paths, strict=True):
        ways[name].add(path)
    return [
        f"{name}~{hashlib.sha256(path.encode()).hexdigest()[:8]}" if len(ways[name]) > 1 else name
        for name, path in zip(named, paths, strict=True)
    ]
