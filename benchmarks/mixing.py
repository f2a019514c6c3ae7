"""Cost of mixing datasets: `python -m benchmarks.mixing`. Writes a few small datasets into a temporary folder.

`WeightedSamplingReader` over 8 datasets against one reader of one dataset with the same rows, in turns, so that both
meet the same machine. Prints the machine's facts, then for each case the median rates with their spread, and the median
of the ratios of neighbouring runs beside the bound that it has to keep. Exits with 1 if one is not kept.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import petastore
from petastore import Unischema, UnischemaField, WeightedSamplingReader
from petastore.codecs import NdarrayCodec
from petastore.work.pools import available_cpus

SOURCES = 8
ROW_GROUPS = 8
RUNS = 11
EPOCHS = 8
LEAST = 0.9

NUMBERS = Unischema("numbers", [UnischemaField(name, np.float32) for name in "abcdefgh"])
ARRAYS = Unischema(
    "arrays", [UnischemaField("id", np.int64), UnischemaField("image", np.uint8, (32, 32, 3), NdarrayCodec())]
)


def rows_of(schema: Unischema, count: int) -> Iterator[dict[str, Any]]:
    """Rows of random values, always the same ones."""
    random = np.random.RandomState(0)
    for number in range(count):
        if schema is NUMBERS:
            yield dict(zip(schema.fields, random.rand(len(schema)).astype(np.float32), strict=True))
        else:
            yield {"id": number, "image": random.randint(0, 256, (32, 32, 3)).astype(np.uint8)}


def written(folder: Path, schema: Unischema, rows_per_row_group: int) -> tuple[str, list[str]]:
    """One dataset of all rows, and as many datasets as there are sources with equal parts of them."""
    rows = list(rows_of(schema, SOURCES * ROW_GROUPS * rows_per_row_group))
    one, many = str(folder / f"{schema.name}-one"), [str(folder / f"{schema.name}-{n}") for n in range(SOURCES)]
    petastore.write_dataset(one, schema, rows, rows_per_row_group=rows_per_row_group)
    for number, url in enumerate(many):
        petastore.write_dataset(url, schema, rows[number::SOURCES], rows_per_row_group=rows_per_row_group)
    return one, many


def rate(open_reader: Callable[[], Any]) -> float:
    """Rows a second of some epochs in batches of 256."""
    with contextlib.closing(Stopped(open_reader())) as opened:
        began = time.perf_counter()
        rows = sum(batch.num_rows for batch in opened.reader.iter_batches(256))
        return rows / (time.perf_counter() - began)


class Stopped:
    """A reader that is stopped in the end."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader

    def close(self) -> None:
        """Stops and waits."""
        self.reader.stop()
        self.reader.join()


def compare(name: str, one: str, many: list[str], **asked: Any) -> bool:
    """Measures one case and prints it; whether its bound is kept."""

    def single() -> Any:
        return petastore.make_reader(one, seed=1, num_epochs=EPOCHS, **asked)

    def mixed() -> Any:
        readers = [
            petastore.make_reader(url, seed=number, num_epochs=EPOCHS, **asked) for number, url in enumerate(many)
        ]
        return WeightedSamplingReader(readers, [1] * SOURCES)

    rate(single), rate(mixed)  # files into the page cache
    pairs = [(rate(single), rate(mixed)) for _ in range(RUNS)]
    ratio = statistics.median(many / one for one, many in pairs)
    kept = ratio >= LEAST
    bound = f"at least {LEAST}  {'kept' if kept else 'NOT KEPT'}"
    print(name)
    for label, rates in (
        ("one source", [one for one, _ in pairs]),
        (f"{SOURCES} sources", [many for _, many in pairs]),
    ):
        middle = statistics.median(rates)
        print(f"  {label:<12} {middle:>12,.0f} rows/s  ({min(rates):,.0f} to {max(rates):,.0f})")
    print(f"  ratio        {ratio:>12.2f} {bound}")
    return kept


def main() -> int:
    """Prints all cases."""
    print(f"{platform.platform()}, Python {platform.python_version()}, NumPy {np.__version__}, {available_cpus()} CPUs")
    print(f"{RUNS} runs of each, in turns; medians (least to most)\n")
    with tempfile.TemporaryDirectory() as folder:
        numbers = written(Path(folder), NUMBERS, 4000)
        arrays = written(Path(folder), ARRAYS, 250)
        kept = [
            compare("8 columns of float32, row groups of 4,000", *numbers),
            compare("the same, rows shuffled", *numbers, shuffle_rows=True),
            compare("ids and arrays of 3 KiB, row groups of 250", *arrays),
            compare("the same, rows shuffled", *arrays, shuffle_rows=True),
        ]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
