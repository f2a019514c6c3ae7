"""Run several processes on one disk cache, and print JSON: `python -m tests.cache.processes NAME FOLDER`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from petastore.cache import DiskCache, entries, ledger
from tests.forked import forked
from tests.killed_at_call import call_count, points, run_until_call
from tests.laws.cache_laws import Source, bytes_at_one_moment
from tests.tier import sized

PROCESSES = 8
KILLED = sized(full=50, quick=15)
LIMIT = 1 << 20
LARGE_LIMIT = 8 << 20
DAMAGE = b"wrong"


def is_alive(child: int) -> bool:
    """Return whether a child process still runs; raise if it failed."""
    ended, status = os.waitpid(child, os.WNOHANG)
    assert not ended or status == 0, status
    return not ended


def together(run: Callable[[int], None]) -> list[int]:
    """Fork child processes that start `run` at the same moment, and return their pids."""
    begin = os.pipe()

    def child(number: int) -> None:
        os.close(begin[1])
        os.read(begin[0], 1)
        run(number)

    children = [forked(lambda number=number: child(number)) for number in range(PROCESSES)]  # type: ignore[misc]
    os.close(begin[0])
    os.close(begin[1])
    return children


def cold(folder: Path) -> dict[str, object]:
    """Read the same entries of an empty cache in several processes; return how often they were fetched."""
    log = os.open(folder / "fetched", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    keys = [f"entry {number}" for number in range(40)]

    def run(number: int) -> None:
        mine = keys[:]
        random.Random(number % 4).shuffle(mine)  # noqa: S311 - some of them in the same order
        with DiskCache(folder / "cache", limit=LARGE_LIMIT) as cache:
            for key in mine:

                def fetch(key: str = key) -> bytes:
                    os.write(log, f"{key}\n".encode())
                    return Source.content(key, 30_000)

                with cache.entry(key, fetch) as view:
                    assert bytes(view) == Source.content(key, 30_000)

    for child in together(run):
        assert os.waitpid(child, 0)[1] == 0
    fetched = (folder / "fetched").read_text().splitlines()
    return {"fetched": sorted(fetched) == sorted(keys), "times": len(fetched)}


def writers(folder: Path) -> dict[str, object]:
    """Write twice the cache limit from several processes; return the largest size on disk after any write."""
    log = os.open(folder / "sampled", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    place = folder / "cache"

    def run(number: int) -> None:
        with DiskCache(place, limit=LIMIT) as cache:
            for entry in range(7):
                key = f"{number} {entry}"
                with cache.entry(key, lambda key=key: Source.content(key, 40_000)) as view:  # type: ignore[misc]
                    assert bytes(view) == Source.content(key, 40_000)
                os.write(log, f"{bytes_at_one_moment(place)}\n".encode())
            assert cache.metrics.bytes_written + cache.metrics.bypassed * 40_000 == 7 * 40_000

    for child in together(run):
        assert os.waitpid(child, 0)[1] == 0
    samples = [int(line) for line in (folder / "sampled").read_text().splitlines()]
    return {"most": max(samples), "samples": len(samples)}


def killed(folder: Path) -> dict[str, object]:
    """Kill writers at calls spread over their work; return the largest size, wrong and leftover entries."""
    most = wrong = left = ended = 0
    _, total = call_count(lambda _: announces_and_writes(folder / "counted", 0), "cache")
    folder /= "killed"
    for moment, call in enumerate(points(1, total, KILLED)):
        ended += not run_until_call(
            lambda _, moment=moment: announces_and_writes(folder, moment),  # type: ignore[misc]
            call,
            "cache",
        )
        most = max(most, bytes_at_one_moment(folder))
        with DiskCache(folder, limit=LIMIT) as cache:
            left += sum(1 for name in ("writing", "futures") for _ in (folder / "petastore-cache-1" / name).iterdir())
            for number in range(5):
                wrong += not is_right(cache, f"{moment} {number}")
            most = max(most, bytes_at_one_moment(folder))
            counted = cache.info().entry_bytes
            assert counted >= bytes_at_one_moment(folder / "petastore-cache-1/entries"), counted
            assert cache.metrics.damaged == 0
    return {"most": most, "wrong": wrong, "left": left, "ended": ended}


def announces_and_writes(folder: Path, moment: int) -> None:
    """Announce an access order and read entries through the cache, twice."""
    with DiskCache(folder, limit=LIMIT) as cache:
        keys = [f"{moment} {number}" for number in range(100)]
        for first in (0, 3):
            with cache.announce(keys, range(100)):
                for number in range(first, first + 3):
                    is_right(cache, keys[number])


def is_right(cache: DiskCache, key: str) -> bool:
    """Return whether the cache returns the right bytes for an entry."""
    with cache.entry(key, lambda: Source.content(key, 60_000)) as view:
        return bytes(view) == Source.content(key, 60_000)


def is_right_unless_damaged_meanwhile(cache: DiskCache, key: str) -> bool:
    """Like `is_right`, but accept one damaged read, because other processes damage files.

    A file that is damaged after its checksum was verified is returned once. The next read must detect the damage.
    """
    right = Source.content(key, 60_000)
    with cache.entry(key, lambda: right) as view:
        found = bytes(view)
    if found == right:
        return True
    at = next(place for place, byte in enumerate(right) if found[place] != byte)
    first = max(at - len(DAMAGE) + 1, 0)
    one_damage = any(right[:place] + DAMAGE + right[place + len(DAMAGE) :] == found for place in range(first, at + 1))
    return one_damage and is_right(cache, key)


def dead(folder: Path) -> dict[str, object]:
    """Kill a reader after it announced an access order; return readers and cached entries before and after."""
    told = os.pipe()
    keys = [f"entry {number}" for number in range(12)]

    def announces() -> None:
        with DiskCache(folder, limit=LIMIT) as cache, cache.announce(keys, range(12)):
            for key in keys:
                is_right(cache, key)
            os.write(told[1], b"1")
            signal.pause()

    with DiskCache(folder, limit=LIMIT) as cache:
        child = forked(announces)
        os.read(told[0], 1)
        living = cache.info().readers
        for number in range(20):
            is_right(cache, f"wanted by nobody {number}")
        kept = sum(was_kept(cache, key) for key in keys)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        after = cache.info().readers
        for number in range(20):
            is_right(cache, f"wanted now {number}")
        left = sum(was_kept(cache, key) for key in keys)
    return {"living": living, "kept": kept, "after": after, "left": left}


def anything(folder: Path) -> dict[str, object]:
    """Run random operations in processes, kill some, and damage entries; return the largest size and leftovers."""
    chance = random.Random(1)  # noqa: S311 - which process is killed, and when
    running = {forked(lambda number=number: does_anything(folder, number)) for number in range(PROCESSES)}  # type: ignore[misc]
    most = deaths = 0
    while running:
        most = max(most, bytes_at_one_moment(folder))
        if chance.random() < 0.05 and deaths < PROCESSES:
            child = chance.choice(sorted(running))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            deaths += 1
            running.remove(child)
            running.add(forked(lambda number=PROCESSES + deaths: does_anything(folder, number)))  # type: ignore[misc]
        running = {child for child in running if is_alive(child)}
    with DiskCache(folder, limit=LIMIT) as cache:
        left = sum(1 for name in ("writing", "futures") for _ in (folder / "petastore-cache-1" / name).iterdir())
        cache.prune()
        entries = [path for path in (folder / "petastore-cache-1/entries").rglob("*") if path.is_file()]
        return {"most": most, "left": left, "lost": len(entries) - cache.info().entries}


def does_anything(folder: Path, seed: int) -> None:
    """Run 300 random cache operations in one process."""
    chance = random.Random(seed)  # noqa: S311 - selects operations
    cache = DiskCache(folder, limit=LIMIT)
    keys = [f"entry {number}" for number in range(40)]
    announcement = cache.announce([], [])
    for step in range(300):
        deed = chance.choices(["ask", "announce", "move", "all", "open", "damage"], [80, 4, 4, 2, 2, 2])[0]
        if deed == "ask":
            assert is_right_unless_damaged_meanwhile(cache, chance.choice(keys)), step
        elif deed == "announce":
            announcement.close()
            announcement = cache.announce(keys, [chance.randrange(len(keys)) for _ in range(100)])
        elif deed == "move":
            announcement.move_to(chance.randrange(100))
        elif deed == "all":
            chance.choice([cache.info, cache.clear, cache.prune])()
        elif deed == "open":
            cache.close()
            cache = DiskCache(folder, limit=LIMIT)
        else:
            damages(chance, [*(folder / "petastore-cache-1/entries").rglob("??*")])
    announcement.close()


def full(folder: Path) -> dict[str, object]:
    """Limit files of this process to 20,000 bytes; return whether entries are right, and the warnings."""
    with DiskCache(folder, limit=LIMIT) as cache, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        right = all(is_right(cache, f"large {number}") for number in range(3))
        with cache.entry("small", lambda: bytes(1000)) as view:
            right &= len(view) == 1000
        left = sum(1 for _ in (folder / "petastore-cache-1/writing").iterdir())
        kept = was_kept(cache, "small")
        bypassed = cache.metrics.bypassed
    return {
        "right": right,
        "kept": kept,
        "bypassed": bypassed,
        "left": left,
        "told": [one.category.__name__ for one in told],
    }


def damages(chance: random.Random, paths: list[Path]) -> None:
    """Overwrite some bytes of a random file."""
    with contextlib.suppress(OSError), chance.choice([*paths, Path("/")]).open("r+b") as file:
        file.seek(chance.randrange(1000))
        file.write(DAMAGE)


def was_kept(cache: DiskCache, key: str) -> bool:
    """Return whether an entry is cached, without fetching it."""

    def refuses() -> bytes:
        raise LookupError

    with contextlib.suppress(LookupError), cache.entry(key, refuses):
        return True
    return False


if __name__ == "__main__":
    # On a busy machine, a process that holds a lock may not get CPU time for seconds.
    ledger.LOCK_PATIENCE_S = entries.FETCH_PATIENCE_S = 600.0
    programs = {program.__name__: program for program in (cold, writers, killed, dead, anything, full)}
    print(json.dumps(programs[sys.argv[1]](Path(sys.argv[2]))))
