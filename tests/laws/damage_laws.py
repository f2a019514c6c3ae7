"""Checks of damaged datasets: with a wrong byte, a reader returns the right rows or raises one petastore error.

Never other rows, values or counts, never an exception that is not a `petastore.errors.PetastoreError`, and never a wait
without end. A law takes files, and a way to read what they belong to; it damages, reads, compares and restores, and
raises `AssertionError` where the law is broken. What is damaged follows from a seed. When the law ends, each file is as
it was, but for its times.

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
"""Reads everything: numbers, text, arrays, and lists, tuples and dicts of them."""

_MOST_TOLD = 5
_PATIENCE_S = 60.0


@dataclasses.dataclass(frozen=True)
class Damage:
    """One file, and what is in it in the place of what should be."""

    path: Path
    """The file."""

    what: str
    """What is done to it, for people."""

    data: bytes
    """All of its bytes afterwards."""

    way: str = "write"
    """How it is written: `"write"`, which is in place; `"touch back"`, in place with the old time of the last write put
    back; `"map"`, in place through memory; `"replace"`, as another file of that name."""

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
        """Replace the bytes of the file in the given way."""
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
    """Files below a folder whose paths match a pattern, sorted: the data files of a dataset."""
    return sorted(path for path in Path(folder).glob(pattern) if path.is_file())


def flips(files: Sequence[Path], count: int, *, seed: int, ways: Sequence[str] = WAYS) -> Iterator[Damage]:
    """Flips of one bit, or of some bits of one byte, anywhere in the files; each file is as likely as it is long.

    Args:
        files: Files that have at least one byte.
        count: How many.
        seed: Where and which.
        ways: How they are written, in turns; see `Damage.way`.
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
    """Files that end too early, anywhere."""
    random = np.random.RandomState(seed)
    for _ in range(count):
        path = files[random.randint(len(files))]
        data = path.read_bytes()
        end = int(random.randint(len(data)))
        yield Damage(path, f"it ends after {end:,} of {len(data):,} bytes", data[:end])


def noise(files: Sequence[Path], count: int, *, seed: int) -> Iterator[Damage]:
    """Files of which a run of bytes, or all, are random ones."""
    random = np.random.RandomState(seed)
    for _ in range(count):
        path = files[random.randint(len(files))]
        data = bytearray(path.read_bytes())
        first, stop = sorted(random.randint(len(data) + 1, size=2).tolist())
        data[first:stop] = random.bytes(stop - first)
        yield Damage(path, f"bytes {first:,} to {stop:,} are random", bytes(data))


@dataclasses.dataclass
class Outcome:
    """What became of some damages."""

    damages: int = 0
    """How many there were."""

    refused: int = 0
    """How many were met with an error of the family; the others did no harm."""

    broken: list[str] = dataclasses.field(default_factory=list)
    """Those by which the law is broken."""

    def check(self) -> None:
        """Raises `AssertionError` unless the law was kept."""
        assert not self.broken, (
            f"{len(self.broken):,} of {self.damages:,} damages are neither refused nor harmless:\n"
            + "\n".join(self.broken[:_MOST_TOLD])
        )


def check_damage(damages: Iterable[Damage], read: Read, *, patience_s: float = _PATIENCE_S) -> Outcome:
    """Each damage is refused with an error of the family, or what is read is the same as without it.

    Args:
        damages: What is done, one after the other; `flips`, `cuts` and `noise` make them.
        read: Opens and reads everything anew, in a thread of its own.
        patience_s: Seconds after which reading counts as waiting without end.

    Returns:
        How many were refused.

    Raises:
        AssertionError: Something else was read, another exception came, or none of the two for too long.
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
    """Each damage that is done while a reader reads is refused, or what it gives stays the same, in any epoch.

    Args:
        damages: What is done, each at some place of a pass, the begin of an epoch and its middle among them.
        open_reader: Opens a reader of a few epochs, which gives the same rows or batches each time.
        seed: At which place.
        settle: Called before each reader is opened. A write in the same tick of the clock as the one before is not
            seen by the times of a file; `settle` can wait for the next tick.
        patience_s: Seconds after which reading counts as waiting without end.

    Returns:
        How many were refused.

    Raises:
        AssertionError: Other rows were given, another exception came, or none of the two for too long.
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
    """Return what a pass gives when the file is damaged after some batches or rows."""
    with contextlib.ExitStack() as until_judged:

        def begin(given: int) -> None:
            if given == place:
                until_judged.enter_context(damage.done())

        return _read_with_patience(lambda: _all_of(open_reader, len, begin), patience_s)


def _all_of(
    open_reader: Callable[[], Any], length: Callable[[Any], int], before: Callable[[int], Any] | None
) -> tuple[int, list[Any]]:
    """The length of a reader and all that it gives; `before` is called before each, with how many were given."""
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
    """What a reader gives, a row, a batch or a window, as values that outlive the next one."""
    fields = value._asdict() if hasattr(value, "_asdict") else value
    return {name: _copy(part) for name, part in fields.items()} if isinstance(fields, Mapping) else np.array(fields)


def _read_with_patience(read: Read, patience_s: float) -> Any:
    """What was read, or the exception that came instead; None where neither came in time."""
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
    """Where they differ first."""
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)) and len(found) == len(expected):
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            if not _is_same(one, other):
                return f"[{place}]" + _difference(one, other)
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for name in expected:
            if name not in found or not _is_same(found[name], expected[name]):
                return f"[{name!r}]" + _difference(found.get(name), expected[name])
    return f": {found!r:.150} instead of {expected!r:.150}"
