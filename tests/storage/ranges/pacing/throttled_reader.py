"""A program that reads a throttled dataset when its standard input ends.

It opens a reader for the URLs in its arguments, prints a line, and waits for the end of standard input. Then it reads,
and prints as JSON the number of rows, their sum, and the number of requests.
"""

from __future__ import annotations

import json
import sys

import petastore


def main(*urls: str) -> None:
    with petastore.make_batch_reader(list(urls), seed=0, shuffle_row_groups=False) as reader:
        print("ready", flush=True)
        sys.stdin.read()
        rows, total = 0, 0
        for batch in reader:
            rows, total = rows + len(batch.id), total + int(batch.id.sum())
        found = reader.diagnostics
    print(json.dumps({"rows": rows, "sum": total, "requests": found["storage_requests"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
