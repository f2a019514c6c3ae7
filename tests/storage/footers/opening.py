"""Process that opens a dataset with a disk cache on request: `python -m tests.storage.footers.opening`.

Arguments: the URL, its options as JSON, and the folder of the cache. The process prints a line when it is ready, and
begins when its standard input ends. It prints the row groups and the cache counters as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from petastore.readers.options import DatasetOptions


def main(url: str, options: str, folder: str) -> None:
    given = json.loads(options)
    import obstore

    print(f"ready with {obstore.__name__}", flush=True)
    sys.stdin.read()
    limit = 1 << 26
    dataset = DatasetOptions(
        url, storage_options=given, cache_type="local-disk", cache_location=folder, cache_size_limit=limit
    ).opened()
    cache = dataset.kept.footers
    assert cache is not None
    print(json.dumps({"rows": dataset.inventory.rows.tolist(), **dataclasses.asdict(cache.metrics)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
