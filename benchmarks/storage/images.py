"""Images over a slow network, compared with local images and with other loaders over the same network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bench.data import MAKE_SECONDS
from benchmarks.bench.process import ROOT, environment_of
from benchmarks.bench.venvs import EnvironmentUnavailableError, python_of
from benchmarks.storage.children import one_epoch
from benchmarks.storage.datasets import workload_of
from benchmarks.storage.far import Bench, Line
from benchmarks.storage.figures import Figure
from benchmarks.storage.tables import committed

__all__ = ["over_a_line", "pictures_of"]

LATENCY_S, BYTES_PER_S = 0.02, 100e6
_PETASTORE = "benchmarks.bench.contenders.petastore_torch"


def _petastore(line: Line, _: Path) -> tuple[str, str, dict[str, Any]]:
    return _PETASTORE, "s3://images/petastore", {"storage_options": line.options}


def _cached(line: Line, kept: Path) -> tuple[str, str, dict[str, Any]]:
    cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": str(kept), "cache_size_limit": 4 << 30}
    return _PETASTORE, "s3://images/petastore", {"storage_options": line.options, **cache}


def _petastorm(line: Line, _: Path) -> tuple[str, str, dict[str, Any]]:
    options = {"reader": "make_reader", "loader": "DataLoader", "s3": {**line.options, "default_cache_type": "none"}}
    return "benchmarks.bench.contenders.petastorm_torch", "s3://images/petastorm", options


def _litdata(line: Line, kept: Path) -> tuple[str, str, dict[str, Any]]:
    keys = {"aws_access_key_id": line.options["key"], "aws_secret_access_key": line.options["secret"]}
    options = {"storage_options": {**keys, "endpoint_url": line.url, "region_name": "us-east-1"}}
    return (
        "benchmarks.bench.contenders.litdata_torch",
        "s3://images/litdata",
        {**options, "cache_dir": str(kept)},
    )


def _mosaic(_: Line, kept: Path) -> tuple[str, str, dict[str, Any]]:
    return "benchmarks.bench.contenders.mosaic_torch", str(kept), {"remote": "s3://images/mosaic"}


PEERS: dict[str, tuple[str, Callable[[Line, Path], tuple[str, str, dict[str, Any]]]]] = {
    "Petastorm, s3fs": ("petastorm", _petastorm),
    "LitData": ("litdata", _litdata),
    "Mosaic Streaming": ("mosaic", _mosaic),
}
"""The environment of each, which is its format as well, and how it is asked."""


def pictures_of(bench: Bench, name: str) -> Path:
    """The pictures in a format, which is written if it is not there; and committed in the store, where that is done."""
    workload = workload_of("images", bench.scale)
    if name == "petastorm":
        pictures_of(bench, "petastore")  # it links these files

    def write(folder: Path) -> None:
        values = bench.folder / "values" / f"{workload.rows}"
        if not values.exists():
            from benchmarks.bench.values import make_values

            make_values(workload, values)
        python = sys.executable if name == "petastore" else python_of(name, bench.folder / "venvs")
        _write_in(Path(python), name, bench, values, folder)
        if name == "petastore":
            committed(bench, "images/petastore")

    return bench.made(f"images/{name}", repr(workload), write)


def _write_in(python: Path, name: str, bench: Bench, values: Path, folder: Path) -> None:
    arguments = [name, str(bench.scale), str(values), str(folder)]
    ran = subprocess.run(
        [str(python), "-m", "benchmarks.storage.write_images", *arguments],
        cwd=ROOT, env=environment_of(ROOT), capture_output=True, text=True, timeout=MAKE_SECONDS, check=False,
    )  # fmt: skip
    if ran.returncode:
        raise RuntimeError(f"{name} was not written: {ran.stderr.strip().splitlines()[-1:]}")


def over_a_line(bench: Bench) -> list[Figure]:
    """An epoch of each loader, cold, in turns."""
    workload = workload_of("images", bench.scale)
    local = pictures_of(bench, "petastore")
    stored = sum(path.stat().st_size for path in local.glob("*.parquet"))
    peers = {name: ask for name, ask in PEERS.items() if _is_there(bench, ask[0])}
    rates: dict[str, list[float]] = {name: [] for name in ("local", "petastore", "cached", *peers)}
    firsts: dict[str, list[float]] = {name: [] for name in rates}

    def take(name: str, python: Path | str, asked: tuple[str, str, dict[str, Any]], line: Line) -> None:
        module, place, options = asked
        told = one_epoch(
            module, "images", place, workload.rows,
            scale=bench.scale, python=python, environment=line.environment, **options,
        )  # fmt: skip
        assert told["distinct"] == workload.rows, f"{name} gave {told['distinct']:,} of {workload.rows:,} rows"
        rates[name].append(workload.rows / told["seconds"])
        firsts[name].append(told["first_batch"])

    with bench.line("images", latency_s=LATENCY_S, bytes_per_s=BYTES_PER_S) as line:
        for _ in range(bench.rounds):
            take("local", sys.executable, (_PETASTORE, str(local), {}), line)
            take("petastore", sys.executable, _petastore(line, local), line)
            with tempfile.TemporaryDirectory(dir=bench.folder) as kept_here:
                take("cached", sys.executable, _cached(line, Path(kept_here)), line)
            for name, (environment, ask) in list(peers.items()):
                kept = Path(tempfile.mkdtemp(dir=bench.folder))
                try:
                    take(name, python_of(environment, bench.folder / "venvs"), ask(line, kept), line)
                except RuntimeError as problem:
                    print(f"{name} did not come to the end of an epoch: {problem}", file=sys.stderr, flush=True)
                    del peers[name], rates[name], firsts[name]
                finally:
                    shutil.rmtree(kept, ignore_errors=True)
    return _figures(rates, firsts, workload.rows * BYTES_PER_S / stored)


def _is_there(bench: Bench, environment: str) -> bool:
    """Whether a loader can take part; else it is said why not."""
    try:
        python_of(environment, bench.folder / "venvs")
        pictures_of(bench, environment)
    except (EnvironmentUnavailableError, RuntimeError) as problem:
        print(f"{environment} does not take part: {problem}", file=sys.stderr, flush=True)
        return False
    return True


def _figures(rates: dict[str, list[float]], firsts: dict[str, list[float]], of_link: float) -> list[Figure]:
    ours = rates["petastore"]
    possible = [min(local, of_link) for local in rates["local"]]
    figures = [
        Figure("petastore, the same data local", rates["local"], "rows/s"),
        Figure("the line can carry", [of_link], "rows/s"),
        Figure("petastore, over the line", ours, "rows/s"),
        Figure(
            "the same / min(local, line)",
            [one / most for one, most in zip(ours, possible, strict=True)],
            "×",
            least=0.8,
        ),
        Figure("petastore, over the line into an empty cache", rates["cached"], "rows/s"),
        Figure(
            "the same / min(local, line)",
            [one / most for one, most in zip(rates["cached"], possible, strict=True)],
            "×",
            least=0.8,
        ),
    ]
    for name in (one for one in PEERS if one in rates):
        figures += [
            Figure(f"{name}, over the line", rates[name], "rows/s"),
            Figure(
                f"petastore / {name}",
                [one / other for one, other in zip(ours, rates[name], strict=True)],
                "×",
                least=1.0,
            ),
        ]
    return figures + [Figure(f"first batch, {name}", values, "s") for name, values in firsts.items()]
