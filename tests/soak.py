"""Soak test of four ranks on failing storage, some of which are killed and resumed: `make soak A=SECONDS`.

Each rank reads one epoch after another, every time with a new reader, and writes the row numbers and the state of each
batch to a journal. Storage is slow, throttles, resets connections, and cuts or changes bytes; all ranks share one disk
cache. Every few seconds, one of the ranks 1 to 3 is killed (SIGKILL) and started again at its last state. Rank 0 is
never killed: its memory, file descriptors and threads must stay flat. Each epoch must contain each row exactly once,
and all ranks must have the same number of batches.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.errors import DecodeError, StorageError
from petastore.testing.faults import Faults, FaultyFileSystem

RANKS: Final = 4
ROWS: Final = 5_003
BATCH: Final = 16
CACHE_BYTES: Final = 6_000_000
"""Limit of the cache: about half of the decoded dataset."""

FAULTS: Final = Faults(slow=0.02, slow_s=0.02, throttled=0.02, failed=0.02, short=0.01, flipped=0.005)
MOST_ERRORS: Final = 100
"""Maximum number of errors in a row that a rank may get without reading a batch."""

MOST_GROWTH_MIB: Final = 8
"""Maximum growth of the memory of rank 0, between the medians of its second and its last quarter."""


def write(url: Path) -> None:
    """Write the dataset: numbers and arrays in some 40 row groups."""
    schema = Unischema(
        "soak", [UnischemaField("id", np.int64), UnischemaField("x", np.float32, (24, 24), NdarrayCodec())]
    )
    rows = ({"id": number, "x": np.full((24, 24), number, np.float32)} for number in range(ROWS))
    petastore.write_dataset(url, schema, rows, rows_per_row_group=128)


def read_lines(journal: Path) -> list[dict[str, Any]]:
    """Return the entries of a journal, without a line that a killed process has left unfinished."""
    return [json.loads(line) for line in journal.read_bytes().split(b"\n")[:-1]]


def run_rank(folder: Path, rank: int) -> None:
    """Read epochs until the file `stop` exists; at least one, and each to its end."""
    journal = folder / f"rank-{rank}.jsonl"
    journal.touch()
    done = read_lines(journal)
    os.truncate(journal, journal.read_bytes().rfind(b"\n") + 1)
    epoch = sum("over" in entry for entry in done)
    state = next((entry.get("state") for entry in reversed(done)), None)
    with journal.open("ab", buffering=0) as file:

        def note(entry: dict[str, Any]) -> None:
            file.write(json.dumps(entry).encode() + b"\n")

        while state is not None or epoch == 0 or not (folder / "stop").exists():
            attempts = errors = 0
            is_over = False
            while not is_over:
                files = FaultyFileSystem(FAULTS, seed=hash((epoch, rank, os.getpid(), attempts)))
                attempts += 1
                try:
                    for ids, after in batches(folder, rank, epoch, state, files):
                        state, errors = after, 0
                        note({"ids": ids, "state": state})
                    is_over = True
                except (StorageError, DecodeError, OSError) as problem:
                    errors += 1
                    if errors == MOST_ERRORS:
                        raise
                    note({"error": f"{type(problem).__name__}: {problem}"[:300], "state": state})
            state, epoch = None, epoch + 1
            note({"over": True, **used()})


def batches(
    folder: Path, rank: int, epoch: int, state: Any, files: FaultyFileSystem
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Yield the row numbers of each batch that is left of an epoch, and the state after it."""
    with petastore.make_batch_reader(
        folder / "data",
        seed=epoch,
        cur_shard=rank,
        shard_count=RANKS,
        shuffle_rows=True,
        num_epochs=1,
        workers_count=2,
        filesystem=files,
        cache_type="local-disk",
        cache_location=folder / "cache",
        cache_size_limit=CACHE_BYTES,
    ) as reader:
        if state is not None:
            reader.load_state_dict(state)
        for batch in reader.iter_batches(BATCH):
            assert np.array_equal(batch["x"][:, 5, 7], batch["id"].astype(np.float32)), "values of other rows"
            yield batch["id"].tolist(), reader.state_dict()


def used() -> dict[str, int]:
    """Return the memory, file descriptors and threads of this process, after giving back what is unused."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    process = psutil.Process()
    return {"kib": process.memory_info().rss // 1024, "files": process.num_fds(), "threads": threading.active_count()}


def started(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    """Start a rank; its standard error is appended to a file."""
    with (folder / f"rank-{rank}.stderr").open("ab") as stderr:
        return subprocess.Popen([sys.executable, "-m", "tests.soak", str(folder), "--rank", str(rank)], stderr=stderr)


def soak(folder: Path, seconds: float, seed: int) -> int:
    """Run all ranks, and kill one every few seconds; return how many were killed.

    Raises:
        AssertionError: A rank ended by itself.
    """
    chance, kills = random.Random(seed), 0  # noqa: S311 - not a secret
    ranks = [started(folder, rank) for rank in range(RANKS)]
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.3, 6.0))
            ended = [rank for rank, process in enumerate(ranks) if process.poll() is not None]
            assert not ended, f"ranks {ended} ended: {(folder / f'rank-{ended[0]}.stderr').read_text()[-3000:]}"
            rank = chance.randrange(1, RANKS)
            ranks[rank].send_signal(signal.SIGKILL)
            ranks[rank].wait()
            ranks[rank], kills = started(folder, rank), kills + 1
        (folder / "stop").touch()
        codes = [process.wait(timeout=600) for process in ranks]
        assert codes == [0] * RANKS, f"ranks ended with {codes}"
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return kills


def checked(folder: Path) -> tuple[int, collections.Counter[str]]:
    """Return the number of epochs that all ranks have read, and the number of errors by their type.

    Raises:
        AssertionError: An epoch has other rows, or ranks have other numbers of batches.
    """
    epochs: list[list[list[list[int]]]] = []  # row numbers by rank, epoch and batch
    errors: collections.Counter[str] = collections.Counter()
    for rank in range(RANKS):
        epochs.append([[]])
        for entry in read_lines(folder / f"rank-{rank}.jsonl"):
            if "ids" in entry:
                epochs[rank][-1].append(entry["ids"])
            elif "over" in entry:
                epochs[rank].append([])
            else:
                errors[entry["error"].partition(":")[0]] += 1
    for number, of_ranks in enumerate(zip(*(each[:-1] for each in epochs), strict=False)):
        rows = sorted(row for of_rank in of_ranks for batch in of_rank for row in batch)
        assert rows == list(range(ROWS)), f"epoch {number} has {len(rows):,} rows, {len(set(rows)):,} of them distinct"
        assert len({len(of_rank) for of_rank in of_ranks}) == 1, (
            f"ranks have other numbers of batches in epoch {number}"
        )
    return min(len(each) for each in epochs) - 1, errors


def growth(folder: Path) -> dict[str, float]:
    """Return how much rank 0 has grown, from the median of the second quarter of its epochs to that of the last one."""
    samples = [entry for entry in read_lines(folder / "rank-0.jsonl") if "over" in entry]
    quarter = max(len(samples) // 4, 1)
    second, last = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    return {
        name: statistics.median(entry[name] for entry in last) - statistics.median(entry[name] for entry in second)
        for name in ("kib", "files", "threads")
    }


def main() -> int:
    """Run the soak test; return 1 if memory, file descriptors or threads of rank 0 have grown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="folder of the dataset, the cache and journals")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=0, help="seed of who is killed when")
    parser.add_argument("--rank", type=int, help="run as one of the ranks")
    asked = parser.parse_args()
    if asked.rank is not None:
        run_rank(asked.folder, asked.rank)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        write(folder / "data")
        kills = soak(folder, asked.seconds, asked.seed)
        epochs, errors = checked(folder)
        grown = growth(folder)
    print(f"{epochs:,} epochs on {RANKS} ranks, {kills} ranks killed, errors that ended a reader: {dict(errors)}")
    print(
        f"growth of rank 0: {grown['kib'] / 1024:.1f} MiB, {grown['files']:g} open files, {grown['threads']:g} threads "
        f"(at most {MOST_GROWTH_MIB} MiB, 0, 0)"
    )
    return int(grown["kib"] / 1024 > MOST_GROWTH_MIB or grown["files"] > 0 or grown["threads"] > 0)


if __name__ == "__main__":
    sys.exit(main())
