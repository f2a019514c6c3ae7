"""Benchmark pages from recorded results: the docs page `explanation/benchmarks.md`, and the report with all figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.bench.tables import HEADER, failures, markdown, restlessness, rows_of_workload
from benchmarks.bench.workloads import WORKLOADS

__all__ = ["page_of", "report_of"]

_COLUMNS = ("", "rows/s", "/ limit", "/ best peer", "first batch", "peak MB", "order")

_HEAD = """\
# Benchmarks

<!-- Written by `make bench`; edit benchmarks/bench/page.py instead. -->

petastore compared with other loaders and with the limit of the machine. All contenders read the same values on one
machine, one after another.

![Rows per second of each contender, as a share of the limit](../images/benchmarks.svg)

## Method

* **Formats**: the values are the same for all contenders, and each contender reads them in the format that suits it
  best. petastore and Petastorm read the same Parquet files, each with its own schema.
* **Work**: all loaders shuffle and have two workers. They return torch tensors, except `tf.data`, which returns
  TensorFlow's tensors. The column "order" says how a loader really shuffles: a check reads one epoch and counts
  consecutive rows that are also consecutive in the data.
* **Rounds**: contenders run one after another, each in a fresh process, and each round begins with a different
  contender. A ratio divides two rates of the same round. All figures are medians over rounds.
* **rows/s** is the rate of whole epochs after the first one. `tf.data` is iterated in a compiled loop, as `fit` does;
  "Python loop" is the rate of `for batch in dataset`.
* **/ limit** is the rate divided by the rate of the limit, and **/ best peer** by the rate of the fastest other loader.
  If another loader is also measured with random access in a hand-written loop, that row does not count as a peer.
* **First batch** is in seconds from the start of the process, imports included. Files are in the page cache.
* **Peak MB** is the proportional set size of the process and its children, sampled five times per second.
* **The limit** does only the necessary work on two threads, without batching and shuffling: pyarrow decodes the same
  files for `tabular`, `wide` and `text`; simplejpeg decodes JPEG cells in memory for `images`; pyarrow reads a
  fixed-size list column for `tensors`; `zlib.decompress` inflates cells in memory for `compressed`; pyarrow and OpenCV
  read `hello_world`. "Limit, pyarrow's file" is a file written with pyarrow's default settings.

The report in petastore's repository, `benchmarks/report.md`, also has the spread over rounds, the ratios to Petastorm,
the first epochs, and the settings and versions of all contenders.
"""


def page_of(results: Mapping[str, Any]) -> str:
    """Return the docs page: the method and the figures by which users choose.

    Args:
        results: `machine` (facts by name) and `workloads` (result by name), as the JSON file holds them.
    """
    found = results["workloads"]
    parts = [_HEAD, _machine(results["machine"])]
    parts += [_section(found[name], _COLUMNS) for name in WORKLOADS if name in found]
    return "\n".join(parts)


def report_of(results: Mapping[str, Any]) -> str:
    """Return the report: all figures, settings and versions; parameter as in `page_of`."""
    found = results["workloads"]
    parts = ["# Report of the benchmarks\n", "<!-- Written by `make bench`. -->\n", _machine(results["machine"])]
    parts += [_section(found[name], HEADER) for name in WORKLOADS if name in found]
    parts += [_contenders(found.values())]
    return "\n".join(parts)


def _machine(facts: Mapping[str, str]) -> str:
    return "## The machine\n\n" + "\n".join(f"* {name}: {fact}" for name, fact in facts.items()) + "\n"


def _section(result: Mapping[str, Any], columns: Sequence[str]) -> str:
    what = WORKLOADS[result["workload"]].what
    measured = (
        f"Measured on {result['date']} in {result['rounds']} rounds of at least {result['seconds']:g} s. Load "
        f"average of the machine: {result['load_before']:.1f} before the measurement; {result['load_after']:.1f} after "
        "it, which includes the load of the benchmark itself."
    )
    failed = "".join(f"\n* {line.replace('<', '&lt;')}" for line in failures(result))
    header, *rows = rows_of_workload(result)
    shown = [header.index(column) for column in columns]
    table = markdown([[row[number] for number in shown] for row in (header, *rows)])
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
