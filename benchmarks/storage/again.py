"""Second epochs: from the disk cache, with the connection to storage closed, compared with reading local files."""

from __future__ import annotations

import tempfile
from typing import Any

from benchmarks.bench.workloads import Workload
from benchmarks.storage.children import Child
from benchmarks.storage.datasets import workload_of
from benchmarks.storage.far import Bench
from benchmarks.storage.figures import Figure
from benchmarks.storage.images import pictures_of

__all__ = ["pictures_from_the_cache"]

_TORCH = "benchmarks.bench.contenders.petastore_torch"


def pictures_from_the_cache(bench: Bench) -> list[Figure]:
    """The first epoch over the line, the second after its end; and both of the same data on the local disk."""
    workload, local = workload_of("images", bench.scale), pictures_of(bench, "petastore")
    near, far, remote = [], [], []
    for _ in range(bench.rounds):
        near.append(_local(bench, workload, str(local), epochs=2))
        epochs, of_line = _cached(bench, workload, "s3://images/petastore", epochs=2)
        far.append(epochs)
        remote.append(of_line)
    rows = workload.rows
    return [
        Figure("first epoch, local files", [rows / first for first, _ in near], "rows/s"),
        Figure("second epoch, local files", [rows / second for _, second in near], "rows/s"),
        Figure("second epoch, cache, the line closed", [rows / second for _, second in far], "rows/s"),
        Figure(
            "the same / first epoch, local files",
            [one[0] / other[1] for one, other in zip(near, far, strict=True)],
            "×",
            least=1.0,
        ),
        Figure(
            "the same / second epoch, local files",
            [one[1] / other[1] for one, other in zip(near, far, strict=True)],
            "×",
        ),
        Figure("bytes from the store in the second epoch", remote, "bytes", most=0),
    ]


def _local(bench: Bench, workload: Workload, place: str, *, epochs: int) -> list[float]:
    with Child(_TORCH, workload.name, place, workload.rows, scale=bench.scale, epochs=epochs) as child:
        return _seconds(child, workload, epochs)


def _cached(bench: Bench, workload: Workload, place: str, *, epochs: int) -> tuple[list[float], int]:
    """Seconds of epochs, and the bytes that came over the line after the first."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as kept, bench.line() as line:
        cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": kept, "cache_size_limit": 4 << 30}
        options = {"storage_options": line.options, **cache}
        with Child(_TORCH, workload.name, place, workload.rows, scale=bench.scale, epochs=epochs, **options) as child:
            first = child.epoch()["seconds"]
            line.close()
            before = line.counted[1]
            child.go_on()
            return [first, *_seconds(child, workload, epochs - 1)], line.counted[1] - before


def _seconds(child: Child, workload: Workload, epochs: int) -> list[float]:
    found = []
    for epoch in range(epochs):
        told = child.epoch()
        assert told["distinct"] == workload.rows, f"{told['distinct']:,} of {workload.rows:,} rows"
        found.append(told["seconds"])
        if epoch < epochs - 1:
            child.go_on()
    return found
