"""A process that reads a throttled dataset when it is told to, and shares with others what it learns of that, or not.

Given how it shares that, and URLs, it opens a reader, says so by a line, reads when its standard input ends, and prints
as JSON the sum of the rows, their number and how often it asked.
"""

from __future__ import annotations

import json
import sys
from typing import Literal

import petastore
from petastore.storage.ranges import open_fetcher
from petastore.storage.ranges.pacing.host_pace import HostPace

Sharing = Literal["shared", "alone", "no pace"]


def main(sharing: Sharing, *urls: str) -> None:
    if sharing != "shared":
        setattr(open_fetcher, "pace_file", lambda *_: None)  # noqa: B010 - it is no name of that module's
    if sharing == "no pace":
        setattr(HostPace, "refused", lambda _: None)  # noqa: B010 - types cannot say it
    with petastore.make_batch_reader(list(urls), seed=0, shuffle_row_groups=False) as reader:
        print("ready", flush=True)
        sys.stdin.read()
        rows, total = 0, 0
        for batch in reader:
            rows, total = rows + len(batch.id), total + int(batch.id.sum())
        found = reader.diagnostics
    print(json.dumps({"rows": rows, "sum": total, "requests": found["storage_requests"]}))


if __name__ == "__main__":
    main(sys.argv[1], *sys.argv[2:])  # type: ignore[arg-type]
