"""The page `docs/explanation/writing.md`, from what was measured."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

__all__ = ["page_of"]

_HEAD = """\
# What writing costs

<!-- Written by `make bench-writing A=--publish`; edit benchmarks/writing/page.py instead. -->

The ways of writing, beside Petastorm's and beside what Spark takes for itself. `make bench-writing` measures them, and
installs Petastorm into an environment of its own in `.bench`.

* **Each way is a process of its own**, that lives for all rounds: Spark has started before the clock does, and has
  written the same once. Ways run in turns, ratios are taken within a round, figures are medians. "Once, from the
  start" is what a program takes that begins, writes the same once, and has no round besides: one measurement.
* **No two tensors are alike**; what repeats, Parquet's dictionaries would store once. `encode_dataframe` and the data
  source read them from plain Parquet, as lists of numbers ("arrays") or as their bytes.
* **Rows** are an RDD of dicts through `dict_to_spark_row`: the program that Petastorm's documentation has, which runs
  unchanged with petastore's imports.
* **Spark alone** writes cells that somebody else has encoded, or hands raw values to a function in Python that counts
  them: what passes through Spark cannot be faster than that, whoever encodes it.
* **The encoder alone** is OpenCV's, in one thread, whose pictures are dropped.
"""

_TAIL = """\
## What limits what

* Encoding tensors is a copy, 0.6 µs for 8 KiB. What Spark takes to move them is most of every way through Spark: its
  own ways without any encoder are in the table, and bounds that lie above these are out of reach there. Petastorm's
  rows pass through the same Spark, so its rate is near that limit too, for tensors; for pictures all ways are near the
  encoder.
* Columns cross from Spark to Python and, with `encode_dataframe`, back. The data source does not send them back, and
  bytes cross faster than lists of numbers. Beginning and committing a write of the data source takes .4 s.
* `write_dataset` needs no Spark. It encodes in threads, which is what pictures need; tensors wait for one thread that
  writes. For 8 KiB it takes 3 µs to cut pages and see whether they shrink, 2.2 µs for their checksums, and 1.5 µs for
  a copy that makes all pages of a size, which halves what reading takes of memory.
* Row groups that several threads make in memory, and one puts together with a footer of its own, have the same bytes.
  That was tried: with two CPUs tables of numbers were written 1.3 × as fast, but cells of bytes .7 – .9 ×, as they are
  copied once more, into memory that the system has to clear first. It was put back.
"""


def page_of(table: Sequence[str], title: str, machine: Mapping[str, str]) -> str:
    """The whole page.

    Args:
        table: Lines of Markdown.
        title: What was measured.
        machine: Facts by name.
    """
    facts = "\n".join(f"* {name}: {fact}" for name, fact in machine.items())
    measured = f"Measured on {dt.datetime.now(dt.UTC):%Y-%m-%d}: {title}."
    return "\n".join([_HEAD, f"## The machine\n\n{facts}\n", "## Figures\n", measured + "\n", *table, "", _TAIL])
