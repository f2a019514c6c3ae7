"""Write the report `benchmarks/writing/report.md` from the results."""

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
  written the same once. Ways run in turns, ratios are taken within a round, figures are medians. Rows, arrays, bytes
  and pictures are measured one after the other, so `Petastorm, rows` is there more than once. "Once, from the
  start" is what a program takes that begins, writes the same once, and has no round besides: one measurement.
* **No two tensors or pictures are alike**; what repeats, Parquet's dictionaries would store once. `encode_dataframe`
  and the data source read them from plain Parquet: tensors as lists of numbers ("arrays") or as their bytes, pictures
  as the bytes of their pixels.
* **Rows** are an RDD of dicts through `dict_to_spark_row`: the program that Petastorm's documentation has, which runs
  unchanged with petastore's imports. **A DataFrame**, at Petastorm's, is `df.rdd`, of which each row becomes a dict of
  arrays, and goes through `dict_to_spark_row`.
* **`write_rows`, `write_columns` and `write_files`** are methods of a `materialize_dataset` block's writer: Spark's
  workers encode and write the files themselves. A function makes the rows there, and pyarrow reads the files there.
* **"Times"** is what was promised, and beside what. **"Like for like"** is beside the way of Petastorm's that begins
  with the same: a stored DataFrame for whole columns, as rows that no DataFrame has held need not be read by Spark.
* **Spark alone** writes cells that somebody else has encoded, or hands raw values to a function in Python that counts
  them: whoever has cells cross into Java, or takes them from there, cannot be faster than that.
* **The encoder alone** is OpenCV's, in one thread, whose pictures are dropped. `write_dataset` encodes in as many
  threads as there are processors, so its rate may be above the encoder's: what it costs is in the column of CPU.
"""

_TAIL = """\
## What limits what

* Encoding tensors is a copy. What Spark takes to move 8 KiB between its storage, Java and Python is most of every way
  in which they cross: its own ways without any encoder are in the table, and bounds that lie above these are out of
  reach for cells that cross into Java. They are none for cells that processes in Python encode and write themselves.
* Columns cross from Spark to Python and, with `encode_dataframe`, back; the data source does not send them back.
  Beginning and committing a write of the data source takes .4 s.
* `write_dataset` needs no Spark. It encodes in threads, which is what pictures need; tensors wait for one thread that
  writes. Of 8 KiB Arrow makes pages in 1.8 µs, and their checksums in 2.1; the system takes them in 1.6 to 2.3, and
  encoding, another copy into memory that is not warm, 1.1 to 1.8. So a row has 7 µs of CPU, whoever runs them: two
  CPUs write no more than 2.3 GB/s.
* Noise is stored as it is: seeing that it does not shrink, page by page, took .8 µs, and readers the copy. Row groups
  are no longer copied into one chunk: only what lies across borders of chunks is, and pages have the same size.
* Pages that another thread hands to the system, while the next ones are made, were tried: Arrow gives them to Python
  as a copy, and that took 1.2 to 1.5 µs of CPU a row, for about .93 of the time on two CPUs with other work to do.
* Row groups that several threads make in memory, and one puts together with a footer of its own, have the same bytes.
  That was tried: with two CPUs tables of numbers were written 1.3 × as fast, but cells of bytes .7 – .9 ×, as they are
  copied once more, into memory that the system has to clear first. It was put back.

## Where the time goes

`encode_dataframe` of arrays, µs of CPU a row of 8 KiB, on a machine with other work to do: 16,000 rows a write, ten
writes, Java's threads told apart by their names, and the task's by samples of its stack.

| | µs |
|:--|--:|
| Spark reads arrays from Parquet | 16 |
| makes rows of them | 5 |
| puts their 2,048 numbers into Arrow, one by one | 19 |
| Python's workers: sockets, lists to an array, to cells | 17 |
| Spark takes the cells back, and makes rows of them | 5 |
| writes Parquet | 10 |
| what else the task does | 4 |
| system calls of the task: sockets and files | 13 |
| Java's collector of memory | 17 |
| Java's compiler, which ends at some time | 34 |
| planning and committing, .3 s a write | 17 |

* Two fifths of what Java's tasks compute is arrays, number by number: into rows, and then into Arrow.
  No setting changes that; `write_files` does without.
* Spark's Parquet writer is no large part. Without dictionaries and statistics of cells, without compression, or without
  checksums, the differences were smaller than those between runs: they stay as Spark has them.
* Reading 512 rows at a time, and not 4,096, took .92 of the time (six rounds in turns). Of the data source, for which
  nobody had bounded what Python gets at a time, both bounds took .65 (five rounds): 122 µs became 80.
* With these, three rounds of 32,000 rows on a busy machine: the data source was 6.7 ×, `write_columns` 6.1 × and
  `encode_dataframe` 4.1 × Petastorm's DataFrame of arrays. What `encode_dataframe` lacks is the way back into Java.
* `write_dataset` of columns takes 8.0 µs of CPU a row. Encoding has 1.2; Arrow with cells that are encoded, into a
  file, 5.4; the same bytes in plain `write` calls 2.0. One thread that writes bounded the rate. Several files at a time
  were 1.23 × as fast (six rounds, 64,000 rows, busy machine). Two CPUs end at 250,000 rows/s for 8 µs, which is 12 ×
  Petastorm's rows.
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
