"""A process that opens a dataset with a local disk cache when it is told to: `python -m tests.storage.footers.opening`.

Given the URL, its options as JSON and the folder of the cache, it says that it is ready by a line, begins when its
standard input ends, and prints as JSON which row groups there are and what the cache did.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from petastore.readers.asked import CacheAsk, DatasetAsk


def main(url: str, options: str, folder: str) -> None:
    given = json.loads(options)
    import obstore
    import s3fs

    print(f"ready with {s3fs.__name__} and {obstore.__name__}", flush=True)
    sys.stdin.read()
    ask = DatasetAsk(url, given, cache=CacheAsk("local-disk", folder, 1 << 26))
    dataset = ask.opened()
    cache = dataset.kept.footers
    assert cache is not None
    print(json.dumps({"rows": dataset.inventory.rows.tolist(), **dataclasses.asdict(cache.metrics)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
