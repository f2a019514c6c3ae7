"""Program of `test_forked`: forks while readers are open; the children stop the readers, and read again.

It prints a line for each child that failed, and finally the number of forks.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import petastore

PATIENCE_S = 300.0
"""Seconds after which a child counts as hung; a child that does not hang takes a second."""
WORDS = {0: "did what it should", 1: "failed", 3: "read other rows"}


def main(url: str, rows: int, forks: int, spin: bool) -> None:
    """Fork repeatedly, each time at a different moment of reading."""
    with spinning() if spin else contextlib.nullcontext():
        for number in range(forks):
            # Not reproducible on purpose: the fork must occur at any state of the threads.
            with reading(url, number) as reader:
                time.sleep(random.random() * 0.02)  # noqa: S311
                child = os.fork()
                if child == 0:
                    os._exit(in_child(url, rows, reader, number))
                outcome = awaited(child)
            if outcome != WORDS[0]:
                print(f"child {number} {outcome}", flush=True)
    print(f"{forks} forks", flush=True)


@contextlib.contextmanager
def reading(url: str, number: int) -> Iterator[petastore.Reader]:
    """Return a reader that two threads iterate in the background; its kind and options depend on the number."""
    make = (petastore.make_reader, petastore.make_batch_reader)[number % 2]
    options: dict[str, Any] = {"num_epochs": None, "shuffle_rows": number % 3 == 0, "workers_count": 2 + number % 3}
    if number % 5 == 0:
        options["transform_spec"] = petastore.TransformSpec(dict if number % 2 == 0 else lambda frame: frame)
        options["reader_pool_type"] = "process" if number % 20 == 0 else "thread"
    with make(url, **options) as reader:
        threads = [threading.Thread(target=iterate, args=(reader,), daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        yield reader
        reader.stop()
        for thread in threads:
            thread.join()


def iterate(reader: petastore.Reader) -> None:
    """Iterate until the reader is stopped."""
    with contextlib.suppress(petastore.errors.ReaderClosedError):
        for _ in reader:
            pass


def in_child(url: str, rows: int, reader: petastore.Reader, number: int) -> int:
    """Stop or restart the parent's reader, read all rows, and return the exit status."""
    try:
        warnings.simplefilter("error")
        faulthandler.dump_traceback_later(PATIENCE_S - 5)
        steps: list[Callable[[], list[int]]] = [lambda: of_new_reader(url), lambda: of_same_dataset(reader)]
        reader.state_dict()
        if number % 4 < 2:
            reader.stop()
            reader.join()
        else:
            steps.append(lambda: of_inherited_reader(reader, rows))
        wanted = list(range(rows))
        return 0 if all(sorted(step()) == wanted for step in steps[number % 2 :]) else 3
    except BaseException as problem:  # noqa: BLE001 - the parent reports every error
        print(repr(problem), flush=True)
        return 1


def of_new_reader(url: str) -> list[int]:
    """Return the ids from a reader that the child opens."""
    with petastore.make_reader(url, ["id"]) as reader:
        return [int(row.id) for row in reader]


def of_same_dataset(reader: petastore.Reader) -> list[int]:
    """Return the ids from a new reader over the dataset that the parent opened."""
    from petastore.readers import Workers

    dataset: Any = reader.dataset
    with petastore.Reader(dataset, dataset.plan(columns=["id"]), workers=Workers("thread", 2)) as again:
        return [int(number) for batch in again.iter_batches(17) for number in batch["id"]]


def of_inherited_reader(reader: petastore.Reader, rows: int) -> list[int]:
    """Return the ids from the parent's reader, beginning with its next epoch."""
    try:
        next(reader)
    except petastore.errors.ReaderClosedError:
        reader.reset()
    found: list[int] = []
    while len(found) < rows:
        taken = next(reader).id
        found += taken.tolist() if reader.batched_output else [int(taken)]
    reader.stop()
    reader.join()
    return found


def awaited(child: int) -> str:
    """Return how a child ended; kill it if it hangs."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return WORDS.get(code, f"ended with {code}")
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hung"


@contextlib.contextmanager
def spinning() -> Iterator[None]:
    """Run a process that keeps a CPU core busy."""
    child = os.fork()
    if child == 0:
        while os.getppid() != 1:
            pass
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "spin")
