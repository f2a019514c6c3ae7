"""The demo: Spark → Parquet → two ranks of torch → the accuracy on digits that were held out."""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp
from rich.console import Console

from examples.digits.train import LOOPBACK, Report, Settings, run_rank
from examples.digits.write import write_digits
from petastore.spark import local_session
from petastore.spark.java import use_java

CLONE = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; 0 where the accuracy is at least 0.97."""
    settings = _settings(arguments)
    console = Console(highlight=False)
    began = time.perf_counter()
    use_java()  # says which one, before anything moves on the screen
    with console.status("Spark writes the digits"):
        rows = _write(settings)
    console.print(f"wrote {rows['train']:,} digits to train on and {rows['test']:,} held out, {_since(began)}")
    console.print(f"in {settings.directory}")
    reports = _train(settings)
    accuracy = reports[0].correct / reports[0].held_out
    (steps,) = {report.steps for report in reports}
    rows_per_second = sum(report.rows for report in reports) / max(report.seconds for report in reports)
    console.print(f"{reports[0].correct} of {reports[0].held_out} held-out digits right, {_since(began)}")
    print(f"demo: accuracy {accuracy:.2f}, {settings.ranks} ranks, {steps} steps each, {rows_per_second:,.0f} rows/s")
    return 0 if accuracy >= 0.97 else 1


def _settings(arguments: list[str] | None) -> Settings:
    defaults = Settings(directory=CLONE / ".demo" / "digits")
    parser = argparse.ArgumentParser(prog="python -m examples.digits", description=__doc__)
    parser.add_argument("--directory", type=Path, default=defaults.directory, help="where the datasets go")
    for name in ("ranks", "epochs", "batch_size", "seed"):
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=getattr(defaults, name), help="default %(default)s")
    return Settings(**vars(parser.parse_args(arguments)))


def _write(settings: Settings) -> dict[str, int]:
    shutil.rmtree(settings.directory, ignore_errors=True)
    spark = local_session("digits")
    try:
        return write_digits(spark, settings.directory, seed=settings.seed)
    finally:
        spark.stop()


def _train(settings: Settings) -> list[Report]:
    """The report of each rank, in order."""
    # The store takes a free port itself, so that nobody else can take it in between.
    store = dist.TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    reports = mp.get_context("spawn").SimpleQueue()
    arguments = (settings, store.port, reports)
    mp.spawn(run_rank, arguments, nprocs=settings.ranks)  # type: ignore[attr-defined,no-untyped-call]
    return sorted((Report(*reports.get()) for _ in range(settings.ranks)), key=lambda report: report.rank)


def _since(began: float) -> str:
    return f"{time.perf_counter() - began:.0f} s"
