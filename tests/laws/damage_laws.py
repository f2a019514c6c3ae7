"""Checks of damaged datasets: with a wrong byte, a reader returns the right rows or raises one petastore error.

It never returns other rows, raises an exception that is not a `petastore.errors.PetastoreError`, or hangs. A check
takes files, and a function that reads their dataset. It damages a file, reads, compares and restores the file, and
raises `AssertionError` if the law is broken. The damage is determined by a seed. Afterwards each file has its old
content, but new timestamps.

Example:
    >>> import tempfile, petastore
    >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     url = folder + "/users"
    ...     _ = petastore.write_dataset(url, schema, [{"id": i} for i in range(20)], rows_per_row_group=5)
    ...     def read():
    ...         with petastore.make_reader(url, shuffle_row_groups=False) as reader:
    ...             return len(reader), [row.id for row in reader]
    ...     files = files_of(url)
    ...     of_flips = check_damage(flips(files, 50, seed=1), read)
    ...     of_cuts = check_damage(cuts(files, 10, seed=1), read)
    ...     epochs = check_damage_in_any_epoch(
    ...         flips(files, 10, seed=2), lambda: petastore.make_batch_reader(url, seed=1, num_epochs=3)
    ...     )
    >>> of_flips.damages, of_cuts.damages, epochs.damages
    (50, 10, 10)
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.errors import PetastoreError

__all__ = ["Damage", "Outcome", "check_damage", "check_damage_in_any_epoch", "cuts", "files_of", "flips", "noise"]

Read: TypeAlias = Callable[[], Any]
"""Reads everything; returns numbers, text, arrays, or lists, tuples and dicts of these."""

_MOST_TOLD = 5
_PATIENCE_S = 60.0


@dataclasses.dataclass(frozen=True)
class Damage:
    """New content for one file, and how to write it."""

    path: Path
    """Path of the file."""

    what: str
    """Description of the damage, for messages."""

    data: bytes
    """Content of the damaged file."""

    way: str = "write"
    """Method of writing the content.

    `"write"` writes in place; `"touch back"` also restores the modification time; `"map"` writes through a memory map;
    `"replace"` renames another file over it.
    """

    @contextlib.contextmanager
    def done(self) -> Iterator[None]:
        """Damage the file inside a `with` block, and restore it afterwards."""
        before = self.path.read_bytes()
        self.write(self.data)
        try:
            yield
        finally:
            self.write(before)

    def write(self, data: bytes) -> None:
        """Replace the bytes of the file as `way` says."""
        times = self.path.stat()
        if self.way == "replace":
            aside = self.path.with_name(f".{self.path.name}.aside")
            aside.write_bytes(data)
            aside.replace(self.path)
        elif self.way == "map" and len(data) == times.st_size and data:
            _write_through_memory(self.path, data)
        else:
            _write_in_place(self.path, data)
        if self.way == "touch back":
            os.utime(self.path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def __str__(self) -> str:
        return f"{self.path.name}: {self.what} ({self.way})"


def _write_in_place(path: Path, data: bytes) -> None:
    """Write only the bytes that differ."""
    with path.open("r+b") as file:
        before = np.frombuffer(file.read(), np.uint8)
        wanted = np.frombuffer(data, np.uint8)
        common = min(len(before), len(wanted))
        for place in np.flatnonzero(before[:common] != wanted[:common]).tolist():
            os.pwrite(file.fileno(), data[place : place + 1], place)
        os.pwrite(file.fileno(), data[common:], common)
        os.ftruncate(file.fileno(), len(data))


def _write_through_memory(path: Path, data: bytes) -> None:
    mapped: Any = np.memmap(path, dtype=np.uint8, mode="r+")
    wanted = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(mapped != wanted)
    mapped[places] = wanted[places]
    mapped.flush()


WAYS = ("write", "touch back", "map", "replace")


def files_of(folder: str | os.PathLike[str], pattern: str = "**/*.parquet") -> list[Path]:
    """Return the files below a folder whose paths match a pattern, sorted; by default the data files of a dataset."""
    return sorted(path for path in Path(folder).glob(pattern) if path.is_file())


def flips(files: Sequence[Path], count: int, *, seed: int, ways: Sequence[str] = WAYS) -> Iterator[Damage]:
    """Yield flips of one or several bits of one random byte; all bytes of all files are equally likely.

    Args:
        files: Files that have at least one byte.
        count: Number of flips.
        seed: Determines the bytes and bits.
        ways: Ways to write, in rotation; see `Damage.way`.
    """
    random = np.random.RandomState(seed)
    ends = np.cumsum([path.stat().st_size for path in files])
    for number in range(count):
        place = random.randint(ends[-1])
        which = int(np.searchsorted(ends, place, side="right"))
        inside = int(place - (ends[which - 1] if which else 0))
        mask = 1 << random.randint(8) if number % 2 else random.randint(1, 256)
        data = bytearray(files[which].read_bytes())
        data[inside] ^= mask
        what = f"byte {inside:,} is {data[inside]:#04x} instead of {data[inside] ^ mask:#04x}"
        yield Damage(files[which], what, bytes(data), ways[number % len(ways)])


def cuts(files: Sequence[Path], count: int, *, seed: int) -> Iterator[Damage]:
    """Yield files that are truncated at random positions."""
    random = np.random.RandomState(seed)
    for _ in range(count):
        path = files[random.randint(len(files))]
        data = path.read_bytes()
        end = int(random.randint(len(data)))
        yield Damage(path, f"it ends after {end:,} of {len(data):,} bytes", data[:end])


def noise(files: Sequence[Path], count: int, *, seed: int) -> Iterator[Damage]:
    """Yield files in which a random range of bytes is random."""
    random = np.random.RandomState(seed)
    for _ in range(count):
        path = files[random.randint(len(files))]
        data = bytearray(path.read_bytes())
        first, stop = sorted(random.randint(len(data) + 1, size=2).tolist())
        data[first:stop] = random.bytes(stop - first)
        yield Damage(path, f"bytes {first:,} to {stop:,} are random", bytes(data))


@dataclasses.dataclass
class Outcome:
    """Results of a number of damages."""

    damages: int = 0
    """Number of damages."""

    refused: int = 0
    """Number of damages that raised a `PetastoreError`; the others did not change the result."""

    broken: list[str] = dataclasses.field(default_factory=list)
    """Descriptions of damages that break the law."""

    def check(self) -> None:
        """Raise `AssertionError` if the law is broken."""
        assert not self.broken, (
            f"{len(self.broken):,} of {self.damages:,} damages are neither refused nor harmless:\n"
            + "\n".join(self.broken[:_MOST_TOLD])
        )


def check_damage(damages: Iterable[Damage], read: Read, *, patience_s: float = _PATIENCE_S) -> Outcome:
    """Check that reading with each damage raises a `PetastoreError`, or returns the same as without the damage.

    Args:
        damages: Damages, applied one after the other; see `flips`, `cuts` and `noise`.
        read: Function that opens the dataset and reads everything; called in a new thread.
        patience_s: Timeout after which a read counts as hanging.

    Returns:
        The counts of damages and errors.

    Raises:
        AssertionError: A read returned something else, raised another exception, or hung.
    """
    expected = read()
    outcome = Outcome()
    for damage in damages:
        outcome.damages += 1
        with damage.done():
            found = _read_with_patience(read, patience_s)
        _judge(outcome, damage, expected, found)
    assert _is_same(read(), expected), "what is read is not what it was, after all was restored"
    outcome.check()
    return outcome


def check_damage_in_any_epoch(
    damages: Iterable[Damage],
    open_reader: Callable[[], Any],
    *,
    seed: int = 0,
    settle: Callable[[], object] | None = None,
    patience_s: float = _PATIENCE_S,
) -> Outcome:
    """Check that damage during a read, in any epoch, raises a `PetastoreError` or does not change the result.

    Args:
        damages: Damages, each applied at a random position of a pass over all epochs.
        open_reader: Function that opens a reader of a few epochs, with the same rows or batches each time.
        seed: Determines the positions.
        settle: Called before each reader is opened. A write in the same clock tick as the previous one does not change
            the times of a file; `settle` can wait for the next tick.
        patience_s: Timeout after which a read counts as hanging.

    Returns:
        The counts of damages and errors.

    Raises:
        AssertionError: A read returned other rows, raised another exception, or hung.
    """
    random = np.random.RandomState(seed)
    expected = _all_of(open_reader, len, None)
    outcome = Outcome()
    for damage in damages:
        outcome.damages += 1
        place = int(random.randint(len(expected[1]) + 1))
        if settle is not None:
            settle()
        _judge(outcome, damage, expected, _read_while_damaged(damage, place, open_reader, patience_s))
    outcome.check()
    return outcome


def _read_while_damaged(damage: Damage, place: int, open_reader: Callable[[], Any], patience_s: float) -> Any:
    """Read with damage from the given position on, and return the result."""
    with contextlib.ExitStack() as until_judged:

        def begin(given: int) -> None:
            if given == place:
                until_judged.enter_context(damage.done())

        return _read_with_patience(lambda: _all_of(open_reader, len, begin), patience_s)


def _all_of(
    open_reader: Callable[[], Any], length: Callable[[Any], int], before: Callable[[int], Any] | None
) -> tuple[int, list[Any]]:
    """Return the length and all items of a reader; `before` is called before each, with the number so far."""
    given: list[Any] = []
    with open_reader() as reader:
        said = length(reader)
        while True:
            if before is not None:
                before(len(given))
            try:
                given.append(_copy(next(reader)))
            except StopIteration:
                return said, given


def _copy(value: Any) -> Any:
    """Return a copy of a row, batch or window, because the reader may reuse its memory."""
    fields = value._asdict() if hasattr(value, "_asdict") else value
    return {name: _copy(part) for name, part in fields.items()} if isinstance(fields, Mapping) else np.array(fields)


def _read_with_patience(read: Read, patience_s: float) -> Any:
    """Return the result of a read, or its exception; None after the timeout."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(read())
        except BaseException as problem:  # noqa: BLE001 - the law checks the type
            found.append(problem)

    reading = threading.Thread(target=run, name="reads what is damaged", daemon=True)
    reading.start()
    reading.join(patience_s)
    return found[0] if found else None


def _judge(outcome: Outcome, damage: Damage, expected: Any, found: Any) -> None:
    if isinstance(found, PetastoreError):
        outcome.refused += 1
    elif isinstance(found, BaseException):
        outcome.broken.append(f"{damage}: foreign exception {type(found).__name__}: {found!s:.300}")
    elif found is None and expected is not None:
        outcome.broken.append(f"{damage}: nothing came, and no error")
    elif not _is_same(found, expected):
        outcome.broken.append(f"{damage}: other rows, silently: {_difference(found, expected)}")


def _is_same(found: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return isinstance(found, np.ndarray) and _is_same_array(found, expected)
    if isinstance(expected, Mapping):
        return isinstance(found, Mapping) and list(found) == list(expected) and _is_same_list(found, expected)
    if isinstance(expected, (list, tuple)):
        return isinstance(found, (list, tuple)) and len(found) == len(expected) and all(map(_is_same, found, expected))
    return bool(type(found) is type(expected) and (found == expected or (found != found and expected != expected)))


def _is_same_list(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> bool:
    return all(_is_same(found[name], part) for name, part in expected.items())


def _is_same_array(found: NDArray[Any], expected: NDArray[Any]) -> bool:
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return False
    if expected.dtype.kind == "O":
        return _is_same(found.tolist(), expected.tolist())
    return found.tobytes() == expected.tobytes()


def _difference(found: Any, expected: Any) -> str:
    """Describe the first difference."""
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)) and len(found) == len(expected):
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not _is_same(one, other):
                return f"[{place}]" + _difference(one, other)
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for name in expected:
            if name not in found or not _is_same(found[name], expected[name]):
                return f"[{name!r}]" + _difference(found.get(name), expected[name])
    return f": {found!r:.150} instead of {expected!r:.150}"
