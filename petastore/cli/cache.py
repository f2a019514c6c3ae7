"""`petastore cache`: inspect, warm, prune and clear the local disk cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.filesize import decimal as people_bytes
from rich.text import Text

from petastore.cli.terminal import (
    Debug,
    StorageOptions,
    errors_in_one_line,
    facts_table,
    json_filters,
    json_options,
    print_json,
    print_line,
)
from petastore.errors import InvalidArgumentError
from petastore.monitoring.progress import ProgressDisplay
from petastore.plan.report.explanation import counted

if TYPE_CHECKING:
    from petastore.cache import CacheContents, DiskCache
    from petastore.dataset import Dataset
    from petastore.plan.plan import Plan
    from petastore.plan.request import Shard

__all__ = ["Warmed", "app", "warm_cache"]


@dataclasses.dataclass(frozen=True, slots=True)
class Warmed:
    """Result of warming a cache. Sizes are bytes."""

    row_groups: int
    """Number of row groups that were fetched, or were in the cache already."""
    row_groups_without_room: int
    """Number of row groups that were not fetched, because they do not fit into the cache.

    They are the last ones in reading order.
    """
    entries_fetched: int
    entries_there: int
    """Number of cache entries that existed already."""
    entries_not_kept: int
    """Number of fetched entries that the cache did not store."""
    requests: int
    """Number of storage requests for chunks, including failed ones."""
    bytes_fetched: int
    """Bytes of chunks that storage returned."""


def warm_cache(dataset: Dataset, plan: Plan, *, progress: Callable[[int, int], None]) -> Warmed:
    """Fetch the column chunks of a plan's first epoch into the cache of a dataset.

    The chunks are fetched in reading order.

    Data that would not fit into the cache is not fetched.

    Args:
        dataset: Dataset with a cache.
        plan: Plan (order of rows) of the training run.
        progress: Function called with the numbers of finished and of all row groups.

    Raises:
        InvalidArgumentError: The dataset is not cached.
        DatasetChangedError: A file differs from the inventory.
        StorageError: A file cannot be read, or the cache cannot be used.
    """
    from petastore.readers.fetches import fetches_of
    from petastore.storage.requests.retries import at_once
    from petastore.storage.row_groups.fetched_row_group import row_group_chunks
    from petastore.storage.row_groups.open_files import OpenFiles

    files = OpenFiles()
    cache, pinned = dataset.kept.cache, files.pinned(dataset.location, dataset.kept)
    if cache is None or pinned is None:
        files.close()
        raise InvalidArgumentError(
            f"the dataset must be remote, with files that petastore reads by byte ranges, got {dataset.url}. Local "
            "files need no cache"
        )
    columns = tuple(name for name in plan.request.columns if name not in dataset.partition_names)
    wanted = plan.row_groups(0)
    fitting = wanted[: _that_fit(fetches_of(dataset, columns).kept_bytes[wanted], cache)]
    before = cache.metrics

    def fetch(group: int) -> None:
        file, ordinal = plan.inventory.place_of(group)
        footer = dataset.footers.get(dataset.location, file)
        chunks = row_group_chunks(footer, ordinal, (columns,))
        pinned.fetch(footer.file, footer.encoded, chunks.columns, chunks, footer.version)

    try:
        progress(0, len(fitting))
        for done, _ in enumerate(at_once(fetch, fitting.tolist()), 1):
            progress(done, len(fitting))
        counts = pinned.fetcher.counts
    finally:
        files.close()
    now = cache.metrics
    return Warmed(
        row_groups=len(fitting),
        row_groups_without_room=len(wanted) - len(fitting),
        entries_fetched=now.misses - before.misses,
        entries_there=now.hits - before.hits,
        entries_not_kept=now.bypassed - before.bypassed,
        requests=counts.requests,
        bytes_fetched=counts.bytes,
    )


def _that_fit(sizes: NDArray[np.int64], cache: DiskCache) -> int:
    """Return how many row groups, from the first one on, fit into the cache.

    Args:
        sizes: Bytes of each row group in the cache, in reading order.
        cache: The cache; its present entries may be evicted.
    """
    from petastore.cache.disk_cache import ANNOUNCED_SHARE

    found = cache.info()
    room = found.limit - found.limit // ANNOUNCED_SHARE - found.ledger_bytes
    return int(np.searchsorted(np.cumsum(sizes), room, side="right"))


app = typer.Typer(
    help="Inspect, warm, prune and clear the local disk cache of column chunks.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Location = Annotated[
    Path | None,
    typer.Option("--cache-dir", help="Directory of the cache; default: PETASTORE_CACHE or the user's cache directory."),
]
_DAY_S = 24 * 3600
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; sizes are in bytes.")]


@app.command()
def info(location: _Location = None, as_json: _AsJson = False, debug: Debug = False) -> None:
    """Show the size, limit and entries of the cache."""
    with errors_in_one_line(debug=debug), _cache_there(location) as cache:
        found = cache.info()
        if as_json:
            print_json(dataclasses.asdict(found) | {"location": str(found.location)})
        else:
            _show(_contents_rows(found), _contents_line(found))


@app.command()
def warm(
    url: Annotated[str, typer.Argument(help="Dataset in an object store or on a web server.", metavar="URL")],
    columns: Annotated[list[str] | None, typer.Option(help="Column name or regular expression; repeatable.")] = None,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Rank I of N, from 0; default: all rows.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed as the training reader.")] = None,
    shuffle_rows: Annotated[
        bool, typer.Option("--shuffle-rows", help="Same shuffle_rows as the training reader.")
    ] = False,
    shuffle_row_groups: Annotated[bool, typer.Option(help="Same shuffle_row_groups as the training reader.")] = True,
    reshuffle_each_epoch: Annotated[
        bool, typer.Option(help="Same reshuffle_each_epoch as the training reader.")
    ] = False,
    shuffle_buffer_bytes: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="Same shuffle_buffer_bytes as the training reader, such as 512MB."),
    ] = None,
    interleave: Annotated[int | None, typer.Option(help="Same interleave as the training reader.")] = None,
    shuffle_block_rows: Annotated[
        int | None, typer.Option(help="Same shuffle_block_rows as the training reader.")
    ] = None,
    filters: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Same filters as the training reader, as JSON: [["day", ">=", 3]].'),
    ] = None,
    location: _Location = None,
    limit: Annotated[
        str | None,
        typer.Option("--cache-size-limit", metavar="BYTES", help="Maximum size of the cache, such as 200GB."),
    ] = None,
    as_json: _AsJson = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Prefetch the data of a training run into the cache, in reading order."""
    with errors_in_one_line(debug=debug):
        from petastore.plan.request import DEFAULT_SHUFFLE_BUFFER_BYTES
        from petastore.readers.options import LOCAL_DISK_CACHE, DatasetOptions
        from petastore.selecting.filter import select_rows

        rank, asked = _shard(shard), json_filters(filters)
        dataset = DatasetOptions(
            url,
            storage_options=json_options(storage_options),
            cache_type=LOCAL_DISK_CACHE,
            cache_location=location,
            cache_size_limit=limit,
        ).opened()
        plan = dataset.plan(
            columns=columns or None,
            seed=seed,
            shuffle_row_groups=shuffle_row_groups,
            shuffle_rows=shuffle_rows,
            shuffle_buffer_bytes=DEFAULT_SHUFFLE_BUFFER_BYTES if shuffle_buffer_bytes is None else shuffle_buffer_bytes,
            interleave=interleave,
            shuffle_block_rows=shuffle_block_rows,
            reshuffle_each_epoch=reshuffle_each_epoch,
            shard=rank,
            selection=select_rows(dataset, filters=asked),
        )
        with ProgressDisplay("fetching", "row groups") as display:
            found = warm_cache(dataset, plan, progress=display.update)
        if as_json:
            print_json(dataclasses.asdict(found))
        else:
            _show(_warmed_rows(found), _warmed_line(found))


@app.command()
def prune(
    most_bytes: Annotated[
        str | None,
        typer.Option(
            "--max-size", metavar="BYTES", help="Evict least recently used entries down to a size, such as 50GB."
        ),
    ] = None,
    unused_days: Annotated[
        float | None, typer.Option("--older-than", metavar="DAYS", min=0, help="Evict entries not used for DAYS days.")
    ] = None,
    location: _Location = None,
    as_json: _AsJson = False,
    debug: Debug = False,
) -> None:
    """Remove leftovers of crashed processes and, optionally, old entries."""
    with errors_in_one_line(debug=debug), _cache_there(location) as cache:
        unused_s = None if unused_days is None else unused_days * _DAY_S
        _freed(cache.prune(most_bytes=most_bytes, unused_s=unused_s), cache, as_json=as_json)


@app.command()
def clear(location: _Location = None, as_json: _AsJson = False, debug: Debug = False) -> None:
    """Delete all entries. Running readers are not interrupted."""
    with errors_in_one_line(debug=debug), _cache_there(location) as cache:
        _freed(cache.clear(), cache, as_json=as_json)


def _cache_there(location: Path | None) -> DiskCache:
    """Return the existing cache at a location; raise an error if there is none."""
    from petastore.cache.disk_cache import DiskCache, has_cache
    from petastore.cache.folder import cache_location

    if not has_cache(location):
        if location is None:
            raise InvalidArgumentError(
                f"the default cache {cache_location(None)} does not exist yet. Readers with cache_type='local-disk' "
                "create one. If they have a cache_location, pass it as --cache-dir"
            )
        raise InvalidArgumentError(
            f"--cache-dir must be the directory of an existing cache, got {cache_location(location)}. Pass the "
            "cache_location of the readers"
        )
    return DiskCache(location)


def _shard(text: str | None) -> Shard | None:
    """Parse the value of `--shard I/N`; None selects all rows."""
    from petastore.plan.request import Shard

    if text is None:
        return None
    index, found, count = text.partition("/")
    if not (found and index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise InvalidArgumentError(
            f"--shard must have the form I/N, such as 0/8 for the first of eight ranks, got {text!r}"
        )
    return Shard(int(index), int(count))


def _freed(size: int, cache: DiskCache, *, as_json: bool) -> None:
    left = cache.info()
    if as_json:
        print_json({"freed_bytes": size, "entries": left.entries, "entry_bytes": left.entry_bytes})
    else:
        has = f"{counted(left.entries, 'entry', 'entries')} of {people_bytes(left.entry_bytes)} are left"
        _show([], f"{people_bytes(size)} freed, {has}")


def _contents_rows(found: CacheContents) -> list[tuple[str, str]]:
    return [
        ("cache", str(found.location)),
        ("entries", f"{found.entries:,}, {people_bytes(found.entry_bytes)} ({found.entry_bytes:,} bytes)"),
        ("ledger", people_bytes(found.ledger_bytes)),
        ("limit", f"{people_bytes(found.limit)} ({found.limit:,} bytes)"),
        ("readers", f"{found.readers:,} have announced their future reads"),
    ]


def _contents_line(found: CacheContents) -> str:
    used = found.entry_bytes + found.ledger_bytes
    entries = counted(found.entries, "entry", "entries")
    return f"{entries}, {people_bytes(used)} of {people_bytes(found.limit)} ({used / found.limit:.0%})"


def _warmed_rows(found: Warmed) -> list[tuple[str, str]]:
    entries = [f"{found.entries_fetched:,} fetched", f"{found.entries_there:,} there already"]
    if found.entries_not_kept:
        entries.append(f"{found.entries_not_kept:,} not kept")
    rows = [
        ("entries", ", ".join(entries)),
        ("storage", f"{counted(found.requests, 'request')}, {people_bytes(found.bytes_fetched)}"),
    ]
    if found.row_groups_without_room:
        rows.append(("no room", f"for {counted(found.row_groups_without_room, 'row group')}, which are read last"))
    return rows


def _warmed_line(found: Warmed) -> str:
    everything = found.row_groups + found.row_groups_without_room
    fetched = people_bytes(found.bytes_fetched)
    return f"{found.row_groups:,} of {counted(everything, 'row group')} in the cache, {fetched} fetched"


def _show(rows: list[tuple[str, str]], line: str) -> None:
    """Print one line per fact, and a summary line."""
    table = facts_table()
    for name, value in rows:
        table.add_row(name, Text(value))
    if rows:
        Console().print(table)
    print_line(line)
