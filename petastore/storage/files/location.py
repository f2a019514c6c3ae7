"""URLs of a dataset → where it lies: a filesystem and paths in it. Credentials stay there, and are never shown."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from petastore.errors import DatasetNotFoundError, InvalidArgumentError, StorageError
from petastore.once import once
from petastore.storage.files.clouds import bucket_is_missing, has_buckets, is_anonymous, refuse_unknown_host, sign_on
from petastore.storage.files.file_systems import (
    filesystem_and_path,
    full_url,
    has_cheap_rename,
    path_in,
    scheme_and_host,
)
from petastore.storage.files.fsspec_listings import forget_listings
from petastore.storage.requests.failure_kinds import attribute
from petastore.storage.requests.failures import answered, foreign_text, raise_alone
from petastore.storage.requests.shown import secrets_in_options, secrets_in_url, shown_url, without_query
from petastore.storage.requests.under_way import DEFAULT_STORAGE_TIMEOUT_S

__all__ = ["Location", "open_location"]

_WILDCARDS = frozenset("*?[")

_Found = TypeVar("_Found")


@dataclasses.dataclass(frozen=True, repr=False)
class Location:
    """Where a dataset lies: a filesystem and a path in it.

    Frozen, and thread-safe as far as the filesystem is (those of pyarrow and fsspec are). It pickles: with its
    credentials on the way into a process that `multiprocessing` is starting, and else without. They are looked for
    again where it is unpickled.

    Example:
        >>> location = open_location("memory://bucket/frames")
        >>> location, location.join("day=1/part-0.parquet")
        (Location('memory://bucket/frames'), '/bucket/frames/day=1/part-0.parquet')
    """

    url: str
    """The URL for people and messages, without credentials."""

    filesystem: Any
    """The `pyarrow.fs.FileSystem`; fsspec ones are wrapped."""

    root: str
    """Path of the dataset's directory in `filesystem`, without a slash at its end."""

    paths: tuple[str, ...] | None = None
    """Paths relative to `root` where single files, a list or a pattern were given, else None: all that is in `root`."""

    matched: frozenset[str] = frozenset()
    """Those of `paths` that nobody named: a pattern found them."""

    named: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of those of `paths` that were given with a query: their paths in `filesystem`, which may hold a signature."""

    timeout_s: float | None = dataclasses.field(default=DEFAULT_STORAGE_TIMEOUT_S, compare=False)
    """Seconds that storage may take to answer a request; None is without end."""

    hedged: bool = dataclasses.field(default=False, compare=False)
    """Whether requests whose answers are late are made a second time."""

    times: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Of those of `paths` that were named several times: how often."""

    @property
    def store(self) -> Any:
        """The fsspec filesystem that `filesystem` wraps; None for those of Arrow."""
        return attribute(attribute(self.filesystem, "handler"), "fs")

    @property
    def system(self) -> str:
        """Name of the file system, for messages."""
        return type(self.store or attribute(self.filesystem, "handler") or self.filesystem).__name__

    @property
    def secrets(self) -> frozenset[str]:
        """What messages of the file system may hold and must not be seen: its addresses, and what it was made with."""
        made_with = attribute(self.store, "storage_options")
        of_files = [secret for path in itertools.islice(self.named.values(), 100) for secret in secrets_in_url(path)]
        return secrets_in_url(self.root) | secrets_in_options(made_with) | frozenset(of_files)

    @property
    def is_anonymous(self) -> bool:
        """Whether requests are not signed, as far as the file system says so."""
        return is_anonymous(self.store)

    @property
    def has_buckets(self) -> bool:
        """Whether it is an object store: paths begin with a bucket, and there are no directories."""
        return has_buckets(self.filesystem)

    @property
    def missing_bucket(self) -> str | None:
        """The bucket that it lies in, if that is not there; asks the storage.

        Raises:
            StorageError: It does not say.
        """
        store, bucket = self.store, self.root.lstrip("/").partition("/")[0]
        if store is None or not self.has_buckets or not bucket:
            return None
        return bucket if answered(self, lambda: bucket_is_missing(store, bucket), "look for the bucket") else None

    @property
    def container(self) -> str:
        """What storages count requests by: the bucket, or the host of web addresses, without what signs them."""
        address = urlsplit(self.root) if "://" in self.root else None
        return self.root.lstrip("/").partition("/")[0] if address is None else shown_url(f"//{address.netloc}")

    @once
    def is_local(self) -> bool:
        """Whether it lies in the local file system, as Arrow reads it."""
        return bool(self.filesystem.type_name == "local")

    @once
    def is_asked_again(self) -> bool:
        """Whether requests that failed are made again by us: the clients of clouds do so, and a disk fails for good."""
        return not (self.is_local or self.has_buckets)

    def times_of(self, relative: str) -> int:
        """How often a file was named, or a directory around it: its rows are as many times in the dataset."""
        return next((times for path, times in self.times.items() if f"{relative}/".startswith(f"{path}/")), 1)

    def join(self, relative: str) -> str:
        """The path in `filesystem` of something that lies under `root`."""
        if relative in self.named:
            return self.named[relative]
        return f"{self.root.rstrip('/')}/{relative}" if self.root else relative

    @property
    def has_cheap_rename(self) -> bool:
        """Whether a rename is one step; on object stores it is a copy, and a put is the one step."""
        return has_cheap_rename(self.filesystem)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: without credentials and signatures, unless it is for a process that is being started."""
        from petastore.storage.files.pickles import WithoutSecrets, goes_to_a_child

        if goes_to_a_child():
            return dict(vars(self))
        unsigned = {name: without_query(path) for name, path in self.named.items()}
        return {**vars(self), "filesystem": WithoutSecrets(self.filesystem, self.url), "named": unsigned}

    def __deepcopy__(self, _memo: Any) -> Location:
        """Itself: nothing in it changes."""
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
    hedged: bool = False,
) -> Location:
    """Find the filesystem and the path of a dataset.

    Nothing has to exist yet. One URL may name a directory or a file. The URLs of a list share scheme and host, and none
    lies inside another; their nearest common directory becomes the root, so hive keys below it are seen. What is named
    several times counts as often (`Location.times`). Of a pattern
    such as `day=*/part-?.parquet` the directory before the first wildcard counts, so the root, and with it the
    partition columns, are the same whatever is found.

    Args:
        url_or_urls: A URL of any fsspec scheme (`file`, `s3`, `gs`, `abfs`, `hdfs`, `memory`, …), a local path, or a
            list of them. `s3a` and `s3n` mean `s3`. In `file` URLs `%20` is taken literally if such a path exists, as
            Spark takes it, and else decoded if that path exists.
        storage_options: Keyword arguments of the fsspec filesystem, such as keys and endpoints.
        filesystem: A pyarrow or fsspec filesystem to use instead; then the URL only gives the path.
        patterns: Whether `*`, `?`, `[…]` and `**` stand for what is there, as in fsspec's globs. A path that exists
            with such a character in its name is that path, and `?` begins the query of a web address.
        timeout_s: Seconds that storage may take to answer each request; None is without end.
        hedged: Whether requests whose answers are late are made a second time.

    Raises:
        InvalidArgumentError: There is no URL, it cannot be understood, or the URLs of a list do not belong together.
        StorageError: The storage cannot be reached.
        DatasetNotFoundError: A pattern matches nothing.
        MissingExtraError: The scheme needs a package that is not installed.

    Example:
        >>> open_location("s3://bucket/frames", filesystem=fs.LocalFileSystem()).root
        'bucket/frames'
        >>> open_location([])
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: the list of dataset URLs is empty; name at least one
    """
    way = _Way(storage_options, filesystem, patterns, timeout_s, hedged)
    if isinstance(url_or_urls, (str, os.PathLike)):
        return _of_one(_checked_url(url_or_urls), way)
    if not isinstance(url_or_urls, Iterable) or isinstance(url_or_urls, (bytes, Mapping)):
        raise InvalidArgumentError(
            f"a dataset URL is text, a path or a list of them, but a {type(url_or_urls).__name__} was given"
        )
    urls = [_checked_url(url) for url in url_or_urls]
    if not urls:
        raise InvalidArgumentError("the list of dataset URLs is empty; name at least one")
    return _of_one(urls[0], way) if len(urls) == 1 else _of_many(urls, way)


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """How a storage is reached."""

    storage_options: Mapping[str, Any] | None
    filesystem: Any
    patterns: bool
    timeout_s: float | None
    hedged: bool

    def location(
        self,
        url: str,
        filesystem: Any,
        root: str,
        paths: tuple[str, ...] | None = None,
        matched: frozenset[str] = frozenset(),
        named: Mapping[str, str] = MappingProxyType({}),
        times: Mapping[str, int] = MappingProxyType({}),
    ) -> Location:
        """A location that is reached so."""
        return Location(
            full_url(url),
            filesystem,
            root,
            paths,
            matched,
            dict(named),
            self.timeout_s,
            self.hedged,
            dict(times),
        )


def _checked_url(url: Any) -> str:
    if not isinstance(url, (str, os.PathLike)) or isinstance(os.fspath(url), bytes):
        raise InvalidArgumentError(f"a dataset URL is text or a path, but a {type(url).__name__} was given")
    text = os.fspath(url)
    if not text.strip():
        raise InvalidArgumentError("the dataset URL is empty; give a URL such as file:///data/frames or a local path")
    if "\0" in text:
        raise InvalidArgumentError(f"the dataset URL {shown_url(text)!r} holds a NUL character; no path has one")
    return text


def _of_one(url: str, way: _Way) -> Location:
    opened, root = filesystem_and_path(url, way.storage_options, way.filesystem)
    place = _place(opened, url, root, way)
    return _of_places(opened, [place], way)


def _whole_or_file(filesystem: Any, place: _Place, way: _Way) -> Location:
    location = way.location(place.url, filesystem, place.path)
    file_at = attribute(filesystem, "file_at") or filesystem.get_file_info
    info = _asked(location, lambda: file_at(place.path), way)
    if info.type == fs.FileType.File:
        path = without_query(place.path)
        directory, name = posixpath.split(path)
        with_query = {name: place.path} if path != place.path else {}
        return way.location(place.url, filesystem, directory, paths=(name,), named=with_query)
    if info.type == fs.FileType.Unknown:
        raise StorageError(
            f"{location.url} is neither a file nor a directory, and is not opened; name what holds the data"
        )
    return location


def _asked(location: Location, look: Callable[[], _Found], way: _Way) -> _Found:
    """What the first look at a storage finds."""

    def looked() -> _Found:
        try:
            if location.store is not None:
                forget_listings(location.store)
                refuse_unknown_host(location.store, location.container)
            sign_on(location.store)
            return look()
        except TypeError as problem:
            if not way.storage_options:
                raise
            # Some filesystems look at their options only when they connect.
            said = foreign_text(problem, location.secrets)
            raise_alone(InvalidArgumentError(f"{location.url}: the storage_options are refused: {said}"))

    return answered(location, looked)


def _of_many(urls: list[str], way: _Way) -> Location:
    schemes = {scheme_and_host(url) for url in urls}
    if len(schemes) > 1:
        shown = ", ".join(sorted(shown_url(f"{scheme}://{host}") for scheme, host in schemes))
        raise InvalidArgumentError(
            f"the URLs of one dataset must share scheme and host, but these have {shown}; open each alone"
        )
    opened, first = filesystem_and_path(urls[0], way.storage_options, way.filesystem)
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
                f"the URLs of one dataset overlap: {full_url(url)} is or lies in {full_url(around)}. To read rows "
                "several times, name what holds them several times, each time in the same way"
            )
    return _of_places(opened, places, way)


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where one URL leads in its filesystem."""

    url: str

    path: str
    """The path, or the fixed directory of a pattern."""

    levels: int
    """Of the path as it was given."""

    matches: Sequence[str] | None = None
    """What matches the pattern, relative to `path`; None where there is no pattern."""

    times: int = 1
    """How often it was named."""


def _place(filesystem: Any, url: str, path: str, way: _Way) -> _Place:
    levels = without_query(path).count("/") + 1
    if not way.patterns:
        return _Place(url, path, levels)

    def look() -> _Place | None:
        for spelling in dict.fromkeys([path, unquote(path) if url.startswith("file:") else path]):
            if not _WILDCARDS.intersection(spelling):
                return _Place(url, spelling, levels)
            from petastore.storage.files.patterns import pattern_at  # which few paths need

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
            f"{full_url(url)}: nothing matches this pattern; correct it, or name what is to be read"
        )
    return place


def _of_places(filesystem: Any, places: Sequence[_Place], way: _Way) -> Location:
    if len(places) == 1 and places[0].matches is None:
        return _named_alone(_whole_or_file(filesystem, places[0], way), places[0].times)
    # Not `posixpath.commonpath`: it makes one slash of the two in paths that are web addresses.
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
        url = url.rsplit("/", places[0].levels - shared)[0]
    if "" in named:
        return way.location(url, filesystem, root)
    with_query = {name: path for name, path in named.items() if without_query(path) != path}
    paths = (*named, *sorted(matched))
    return way.location(url, filesystem, root, paths, frozenset(matched), with_query, times)


def _named_alone(location: Location, times: int) -> Location:
    """A file or a directory that is all that was named."""
    if times == 1:
        return location
    if location.paths is None:
        raise InvalidArgumentError(
            f"{location.url} was named {times} times, and is a whole dataset; to read its rows several times, read "
            "several epochs, or name what weighs more several times: files, or a pattern"
        )
    return dataclasses.replace(location, times=dict.fromkeys(location.paths, times))


def _unlike(named: list[str], paths: list[str]) -> list[str]:
    """Names for files whose paths differ in the query alone: told apart by a digest of it."""
    ways: dict[str, set[str]] = collections.defaultdict(set)
    for name, path in zip(named, paths, strict=True):
        ways[name].add(path)
    return [
        f"{name}~{hashlib.sha256(path.encode()).hexdigest()[:8]}" if len(ways[name]) > 1 else name
        for name, path in zip(named, paths, strict=True)
    ]
