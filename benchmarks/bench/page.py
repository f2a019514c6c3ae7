"""Benchmark pages from recorded results: the docs page `explanation/benchmarks.md`, and the report with all figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.bench.tables import HEADER, failures, markdown, restlessness, rows_of_workload
from benchmarks.bench.workloads import WORKLOADS

__all__ = ["page_of", "report_of"]

_COLUMNS = ("", "rows/s", "/ limit", "peak MB")
_REPORT_ONLY = ("limit, pyarrow's file",)

_HEAD = """\
# Benchmarks

<!-- Written by `make bench`; edit benchmarks/bench/page.py instead. -->

petastore compared with other loaders, and with the limit of the machine.

![Rows per second of each contender, as a share of the limit](../images/benchmarks.svg)

## Method

All contenders return the same values as torch tensors, from the format that suits each best; `tf.data` returns
TensorFlow's tensors. petastore and Petastorm read the same Parquet files. All loaders have two workers, and shuffle
unless their name says otherwise. Contenders run one after another, each in a fresh process, with the files in the page
cache. Figures are medians over rounds.

* **rows/s**: the rate of whole epochs after the first one.
* **/ limit**: the rate divided by the rate of the limit in the same round. The limit only decodes, on two threads,
  without batching and shuffling.
* **peak MB**: memory of the process and its children (proportional set size).

The [full report](https://github.com/petastore/petastore/blob/main/benchmarks/report.md) also has the spread over
rounds, the time to the first batch, the measured row order, and the settings and versions of all contenders.
"""


def page_of(results: Mapping[str, Any]) -> str:
    """Return the docs page: the method and the figures by which users choose.

    Args:
        results: `machine` (facts by name) and `workloads` (result by name), as the JSON file holds them.
    """
    found = results["workloads"]
    parts = [_HEAD, _machine(results["machine"])]
    parts += [_section(found[name], _COLUMNS, brief=True) for name in WORKLOADS if name in found]
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


def _section(result: Mapping[str, Any], columns: Sequence[str], *, brief: bool = False) -> str:
    what = WORKLOADS[result["workload"]].what
    measured = f"Measured on {result['date']} in {result['rounds']} rounds of at least {result['seconds']:g} s."
    if not brief:
        measured += (
            f" Load average of the machine: {result['load_before']:.1f} before the measurement; "
            f"{result['load_after']:.1f} after it, which includes the load of the benchmark itself."
        )
    failed = "".join(f"\n* {line.replace('<', '&lt;')}" for line in failures(result))
    header, *rows = rows_of_workload(result)
    shown = [header.index(column) for column in columns]
    if brief:
        rows = [row for row in rows if row[0] not in _REPORT_ONLY]
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
