"""Write the report `benchmarks/storage/report.md` from the stored results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.bench.tables import markdown
from benchmarks.storage.figures import HEADER, Figure, line_of
from benchmarks.storage.roster import SHOWN

__all__ = ["page_of"]

_HEAD = """\
# Storage benchmarks

<!-- Written by `make bench-storage`; edit benchmarks/storage/page.py instead. -->

What it costs to read from far away, and what the cache on the local disk saves. `make bench-storage` makes the data,
installs the other loaders into virtual environments of their own, runs all of it and writes this page; it keeps both in
`.bench`. `make bench-storage A='--only hit half'` runs some and keeps what was published of the rest.

## How it is measured

* **The store** is `tests/servers/s3_server.py`, a small server of S3 on loopback, in a process of its own. It hands
  bytes to the system and does little else, so that loaders are measured and not the server. Before it stands the proxy
  of the tests, which makes latency, bandwidth and faults, and counts requests and bytes of answers, metadata included.
* **Each reader is a process of its own.** Its clock starts before the reader is made and after imports. What needs
  comparing runs in turns; ratios are taken within a round, and figures are medians over rounds.
* **Every row is looked at**: an epoch that lacks rows, or has one twice, ends the benchmark. Tables have a value that
  follows from the row's number.
* **Other loaders** read their own best format of the same pictures: Petastorm the same Parquet files by s3fs (which
  reads nothing ahead, else it fetches twelve times as many bytes), LitData and Mosaic Streaming shards of 64 MB, which
  they download whole, into empty folders of their own. All shuffle, take two workers and the same JPEG decoder where
  they leave decoding to their users, and hand over torch tensors.
* **Measurements were taken on several machines**, one of which is named below each: within a table figures can be
  compared, and from one table to the next only ratios.
* "kept" and "not kept" say whether the median is what it has to be; figures without a bound are shown for comparison.
"""


def page_of(results: Mapping[str, Any]) -> str:
    """The whole page.

    Args:
        results: By name of the measurement: machine, date, load and figures, as the JSON file holds them.
    """
    return "\n".join([_HEAD, *(_section(name, results[name]) for name in SHOWN if name in results)])


def _section(name: str, found: Mapping[str, Any]) -> str:
    """A table, with its date and how busy the machine was."""
    title = f"## {name}\n\n{SHOWN[name].what}.\n"
    part = "" if found["scale"] == 1.0 else f", with {found['scale']:.0%} of the rows"
    measured = (
        f"Measured on {found['date']} in {found['rounds']} rounds{part}, which took {found['seconds']:.0f} s; load of "
        f"the machine before {found['load']:.1f}. The machine: {'; '.join(found['machine'].values())}."
    )
    if "error" in found:
        return f"{title}\nIt failed: {found['error'].replace('<', '&lt;')}\n\n{measured}\n"
    table = markdown([HEADER, *(line_of(Figure.parse(figure)) for figure in found["figures"])])
    return f"{title}\n{table}\n\n{measured}\n"
