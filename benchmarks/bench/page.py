"""The page `docs/explanation/benchmarks.md`, from the results that are kept beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.bench.tables import failures, markdown, restlessness, rows_of_workload
from benchmarks.bench.workloads import WORKLOADS

__all__ = ["page_of"]

_HEAD = """\
# Benchmarks

<!-- Written by `make bench`; edit benchmarks/bench/page.py instead. -->

petastore beside other loaders, and beside what the machine can do: the same values, the same machine, in turns.
`make bench` makes the data, installs every contender into a virtual environment of its own, runs all of it and writes
this page; `make bench-quick` takes minutes and prints only. Both keep data and environments in `.bench`.

![Rows a second of each contender, as a share of the limit](../images/benchmarks.svg)

## How it is measured

* **Each contender reads its own best format** of the same values. petastore and Petastorm read the same Parquet files,
  written by `petastore.write_dataset`; only the schema beside them differs.
* **Everyone shuffles, gets two workers and hands over torch tensors**, `tf.data` its own. Who shuffles less than row by
  row says so in the column "order", which is what a check saw: that check reads one epoch before the first round,
  counts distinct rows, and sees how many still follow each other as in the data.
* **TensorFlow takes its batches as `fit` and `tf.function` do**, in a loop that it compiled: a loop in Python pays some
  microseconds for each tensor. "Python loop" says what `for batch in dataset` gives. A compiled loop hands nothing out
  that could be checked, so "order" is in the line of the Python loop.
* **A round is a fresh process for each contender**, one after another, and the turn moves by one each round. Ratios
  are taken within a round, against whoever ran in the same minutes; figures are medians over rounds.
* **The rate is the steady state**: the first epoch warms up, then whole epochs are counted, their start-up included.
  An epoch that takes too long is cut; such a contender has no "first epoch".
* **/ limit, / Petastorm, / best peer** are ratios of rates; Petastorm is the faster of its ways, and the best peer may
  be it. A loop of our own around a peer's random access is shown, but is no peer: one cannot install it.
* **First batch** (seconds) is from the start of the process, imports included; **from import** is from the call that
  makes the reader; **first epoch** is from there, too. Files are in the page cache.
* **Peak memory** is the sum of the proportional set sizes (PSS) of the process and all its children, sampled five times
  a second.
* **The limit** does on two threads only what cannot be left out, with no batches and no order: `tabular`, `wide` and
  `text` are decoded by pyarrow from the same files, row group by row group; `images` are JPEG cells in memory, decoded
  by simplejpeg; `tensors` are read as a fixed-size list column from a Parquet file of its own; `compressed` is
  Python's `zlib.decompress` on cells in memory (petastore inflates by zlib-ng, its extra `deflate`, and verifies
  checksums, which the limit does not); `hello_world` is read by pyarrow and its PNG cells decoded by OpenCV. Files of
  petastore's decode faster than those that pyarrow writes by its default settings (nullable columns, dictionaries for
  everything, snappy); "limit, pyarrow's file" says how much. Ratios are against the stricter one.
"""


def page_of(results: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        results: `machine` (facts by name) and `workloads` (result by name), as the JSON file holds them.
    """
    found = results["workloads"]
    parts = [_HEAD, _machine(results["machine"])]
    parts += [_section(found[name]) for name in WORKLOADS if name in found]
    parts += [_contenders(found.values())]
    return "\n".join(parts)


def _machine(facts: Mapping[str, str]) -> str:
    return "## The machine\n\n" + "\n".join(f"* {name}: {fact}" for name, fact in facts.items()) + "\n"


def _section(result: Mapping[str, Any]) -> str:
    what = WORKLOADS[result["workload"]].what
    measured = (
        f"Measured on {result['date']}, {result['rounds']} rounds of {result['seconds']:g} s and more; load of the "
        f"machine before {result['load_before']:.1f}, after {result['load_after']:.1f} (the contenders' own included)."
    )
    failed = "".join(f"\n* {line.replace('<', '&lt;')}" for line in failures(result))
    table = markdown(rows_of_workload(result))
    measured = " ".join(filter(None, [measured, restlessness(result)]))
    return f"## {result['workload']}\n\n{what}.\n\n{table}\n\n{measured}\n{failed and failed + chr(10)}"


def _contenders(results: Iterable[Mapping[str, Any]]) -> str:
    """Settings and versions, once for each way in which somebody took part."""
    seen: dict[tuple[str, str], tuple[list[str], str]] = {}
    for result in results:
        for name, found in result["contenders"].items():
            versions = ", ".join(f"{package} {version}" for package, version in found.get("versions", {}).items())
            places, _ = seen.setdefault((name, found["settings"]), ([], versions))
            places.append(result["workload"])
    lines = ["## Contenders and their settings\n", "| | read | settings | versions |", "|:--|:--|:--|:--|"]
    lines += [
        f"| {name} | {', '.join(places)} | {settings} | {versions or '–'} |"
        for (name, settings), (places, versions) in seen.items()
    ]
    return "\n".join(lines) + "\n"
