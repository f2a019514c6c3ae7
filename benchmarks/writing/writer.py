"""Process that writes in one way: `python -m benchmarks.writing.writer WAY RAW TARGET ROWS`.

It writes once for each line that it is sent, and answers with the seconds that it took, as JSON. What Spark's workers
run is in a module that they import, and not here.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

from benchmarks.writing.ways import WAYS

if __name__ == "__main__":
    name, raw_folder, target_folder, number_of_rows = sys.argv[1:]
    write_once = WAYS[name](raw_folder, target_folder, int(number_of_rows))
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        shutil.rmtree(target_folder, ignore_errors=True)
        began = time.perf_counter()
        write_once()
        took = time.perf_counter() - began
        stored = sum(path.stat().st_size for path in Path(target_folder).rglob("*.parquet"))
        print(json.dumps({"seconds": took, "bytes": stored}), flush=True)
