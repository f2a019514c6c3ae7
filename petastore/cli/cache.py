"""`petastore cache`: inspect, warm, prune and clear the local disk cache."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal as people_bytes
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options
from petastore.cli.render import counted
from petastore.errors import InvalidArgumentError

if TYPE_CHECKING:
    from petastore.cache.disk_cache import DiskCache
    from petastore.cache.metrics import CacheContents
    from petastore.cli.warm import Warmed
    from petastore.plan.request import Reshuffle, Shard

__all__ = ["app"]

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
            _print_json(dataclasses.asdict(found) | {"location": str(found.location)})
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
    reshuffle: Annotated[
        str | None, typer.Option(metavar="static|epoch", help="Same reshuffle as the training reader; default: static.")
    ] = None,
    shuffle_buffer_bytes: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Same shuffle_buffer_bytes as the training reader.")
    ] = None,
    lanes: Annotated[int | None, typer.Option(help="Same lanes as the training reader.")] = None,
    block_rows: Annotated[int | None, typer.Option(help="Same block_rows as the training reader.")] = None,
    filters: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Same filters as the training reader, as JSON: [["day", ">=", 3]].'),
    ] = None,
    location: _Location = None,
    limit: Annotated[
        int | None, typer.Option("--cache-size-limit", metavar="BYTES", help="Maximum size of the cache.")
    ] = None,
    as_json: _AsJson = False,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Prefetch the data of a training run into the cache, in reading order."""
    with errors_in_one_line(debug=debug):
        from petastore.cli.warm import warm as warmed
        from petastore.plan.lanes import DEFAULT_SHUFFLE_BUFFER_BYTES
        from petastore.readers.asked import LOCAL_DISK_CACHE, CacheAsk, DatasetAsk
        from petastore.selecting.filter import select_rows

        rank, asked, order = _shard(shard), _filters(filters), _reshuffle(reshuffle)
        cache = CacheAsk(LOCAL_DISK_CACHE, location, limit)
        dataset = DatasetAsk(url, json_options(storage_options), cache=cache).opened()
        plan = dataset.plan(
            columns=columns or None,
            seed=seed,
            shuffle_row_groups=shuffle_row_groups,
            shuffle_rows=shuffle_rows,
            shuffle_buffer_bytes=DEFAULT_SHUFFLE_BUFFER_BYTES if shuffle_buffer_bytes is None else shuffle_buffer_bytes,
            lanes=lanes,
            block_rows=block_rows,
            reshuffle=order,
            shard=rank,
            selection=select_rows(dataset, filters=asked),
        )
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("fetching", total=None)
            found = warmed(dataset, plan, progress=lambda done, total: bar.update(task, completed=done, total=total))
        if as_json:
            _print_json(dataclasses.asdict(found))
        else:
            _show(_warmed_rows(found), _warmed_line(found))


@app.command()
def prune(
    most_bytes: Annotated[
        int | None, typer.Option("--max-size", metavar="BYTES", help="Evict least recently used entries down to BYTES.")
    ] = None,
    unused_days: Annotated[
        float | None, typer.Option("--older-than", metavar="DAYS", help="Evict entries not used for DAYS days.")
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
    """The cache at a location; none is made there."""
    from petastore.cache.disk_cache import DiskCache, has_cache
    from petastore.cache.location import cache_location

    if not has_cache(location):
        raise InvalidArgumentError(
            f"there is no cache at {cache_location(location)}; name the one that readers have as cache_location with "
            "--cache-dir"
        )
    return DiskCache(location)


def _shard(text: str | None) -> Shard | None:
    """The shard of `--shard I/N`."""
    from petastore.plan.request import Shard

    if text is None:
        return None
    index, found, count = text.partition("/")
    if not (found and index.isdecimal() and count.isdecimal()):
        raise InvalidArgumentError(f"--shard {text}: it is written as I/N, such as 0/8 for the first of eight ranks")
    return Shard(int(index), int(count))


def _reshuffle(word: str | None) -> Reshuffle | None:
    """The word of `--reshuffle`."""
    if word in {None, "static", "epoch"}:
        return word  # type: ignore[return-value]
    raise InvalidArgumentError(f"--reshuffle {word}: it is static or epoch")


def _filters(text: str | None) -> Any:
    """What `filters=` of a reader is, of the JSON after `--filters`: conditions are lists there."""
    if text is None:
        return None
    try:
        asked = json.loads(text)
    except ValueError as problem:
        raise InvalidArgumentError(f"--filters takes JSON, but {text!r} is none: {problem}") from None

    def condition(one: Any) -> Any:
        if isinstance(one, list) and one and isinstance(one[0], str):
            return tuple(one)
        return [condition(each) for each in one] if isinstance(one, list) else one

    return condition(asked)


def _freed(size: int, cache: DiskCache, *, as_json: bool) -> None:
    left = cache.info()
    if as_json:
        _print_json({"freed_bytes": size, "entries": left.entries, "entry_bytes": left.entry_bytes})
    else:
        has = f"{_entries(left.entries)} of {people_bytes(left.entry_bytes)} are left"
        _show([], f"{people_bytes(size)} freed, {has}")


def _contents_rows(found: CacheContents) -> list[tuple[str, str]]:
    return [
        ("cache", str(found.location)),
        ("entries", f"{found.entries:,}, {people_bytes(found.entry_bytes)} ({found.entry_bytes:,} bytes)"),
        ("ledger", people_bytes(found.ledger_bytes)),
        ("limit", f"{people_bytes(found.limit)} ({found.limit:,} bytes)"),
        ("readers", f"{found.readers:,} have announced what they will need"),
    ]


def _contents_line(found: CacheContents) -> str:
    used = found.entry_bytes + found.ledger_bytes
    return f"{_entries(found.entries)}, {people_bytes(used)} of {people_bytes(found.limit)} ({used / found.limit:.0%})"


def _warmed_rows(found: Warmed) -> list[tuple[str, str]]:
    entries = [f"{found.entries_fetched:,} fetched", f"{found.entries_there:,} there already"]
    if found.entries_not_kept:
        entries.append(f"{found.entries_not_kept:,} not kept")
    rows = [
        ("entries", ", ".join(entries)),
        ("storage", f"{counted(found.requests, 'request')}, {people_bytes(found.bytes_fetched)}"),
    ]
    if found.row_groups_without_room:
        rows.append(("no room", f"for {counted(found.row_groups_without_room, 'row group')}, which are needed last"))
    return rows


def _warmed_line(found: Warmed) -> str:
    everything = found.row_groups + found.row_groups_without_room
    fetched = people_bytes(found.bytes_fetched)
    return f"{found.row_groups:,} of {counted(everything, 'row group')} in the cache, {fetched} fetched"


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"


def _show(rows: list[tuple[str, str]], line: str) -> None:
    """Some facts, a line each, and one line that says it all."""
    console = Console()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    if rows:
        console.print(table)
    console.print(Text(line, style="bold green"), soft_wrap=True)


def _print_json(facts: dict[str, Any]) -> None:
    json.dump(facts, sys.stdout, indent=2, ensure_ascii=False)
    print()
