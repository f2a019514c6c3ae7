"""What a reader takes it gives back: memory is flat however long it runs, and closed readers leave nothing."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from tests.pace import patience

SCHEMA = Unischema(
    "mixed",
    [
        UnischemaField("id", np.int64),
        UnischemaField("word", str),
        UnischemaField("x", np.float32, (16, 32), NdarrayCodec()),
        UnischemaField("image", np.uint8, (32, 32, 3), CompressedImageCodec("jpeg", 90)),
        UnischemaField("free", np.uint8, (None,), NdarrayCodec(), True),
    ],
)

# What both programs have: how a pass is read, by the name of its way.
WAYS = """
import json, os, re, sys, threading
import psutil
from petastore import TransformSpec, make_batch_reader, make_reader
from tests.readers.transforms_to_send import unchanged

url, way, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
pool, form = way.split(",")
options = {"reader_pool_type": pool, "workers_count": 2, "shuffle_rows": True}
if pool == "process":
    options["transform_spec"] = TransformSpec(unchanged)

def children():
    return [child.pid for child in psutil.Process().children()]

def batches_of(reader):
    if form == "plain":
        return reader.batches(64)
    from petastore.adapters.torch import DataLoader
    return iter(DataLoader(reader, batch_size=64, nulls="mask"))
"""

EPOCHS = """
import ctypes, gc
import pyarrow

def give_back_what_is_unused():
    gc.collect()
    pyarrow.default_memory_pool().release_unused()
    # Only the C library of GNU has it; others keep less.
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)

def resident(process):
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", open(f"/proc/{process}/status").read()).group(1))

sizes = []
with make_reader(url, seed=5, num_epochs=1, **options) as reader:
    for epoch in range(times):
        rows = [len(batch["id"]) for batch in batches_of(reader)]
        assert (len(rows), sum(rows)) == (reader.steps_per_epoch(64), 3000), rows
        reader.reset()
        give_back_what_is_unused()
        sizes.append(sum(map(resident, [os.getpid(), *children()])))
print(json.dumps(sizes))
"""

CYCLES = """
def held():
    return {"threads": threading.active_count(), "files": len(os.listdir("/proc/self/fd")), "children": children(),
            "shared memory": [name for name in os.listdir("/dev/shm") if name.startswith(("petastore", "psm_"))]}

def cycle(number):
    open_reader = make_batch_reader if number % 2 and pool == "thread" else make_reader
    with open_reader(url, seed=number, num_epochs=None, **options) as reader:
        batches = batches_of(reader)
        for _ in range(number % 5):
            next(batches)

cycle(1)
before = held()
for number in range(times):
    cycle(number)
print(json.dumps([before, held()]))
"""


TIMES = int(os.environ.get("PETASTORE_ENDURANCE", "0"))
"""How many times as long as usual, by `make endurance`, which also tries what takes long; 0 is neither."""

MOST_CLIMBED = 8 * 2**20
"""Bytes. What allocators keep for later goes up and down by 15 MiB; once they gave it back, the rest does by 4 MiB."""

SLOW = ["process,torch"] if TIMES else []


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("mixed")
    random = np.random.RandomState(0)
    image = random.randint(0, 256, (32, 32, 3)).astype(np.uint8)
    rows = (
        {
            "id": number,
            "word": f"w{number}",
            "x": random.rand(16, 32).astype(np.float32),
            "image": image,
            "free": None if number % 7 == 0 else np.zeros(number % 50, np.uint8),
        }
        for number in range(3000)
    )
    petastore.write_dataset(str(folder / "mixed"), SCHEMA, rows, rows_per_row_group=100)
    return str(folder / "mixed")


def said_by(program: str, url: str, way: str, times: int) -> Any:
    run = subprocess.run(
        [sys.executable, "-c", WAYS + program, url, way, str(times)],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
        timeout=None if TIMES else patience(110),
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("way", ["thread,plain", "thread,torch", "process,plain", *SLOW])
def test_memory_stays_flat_over_a_hundred_epochs(url: str, way: str) -> None:
    sizes = said_by(EPOCHS, url, way, 100 * max(TIMES, 1))
    early, late = statistics.median(sizes[5:25]), statistics.median(sizes[-20:])
    assert late - early < MOST_CLIMBED, f"{early / 2**20:,.0f} MiB in the first epochs, {late / 2**20:,.0f} in the last"


@pytest.mark.parametrize("way", ["thread,plain", "thread,torch", "process,plain", *SLOW])
def test_readers_leave_nothing_behind(url: str, way: str) -> None:
    # Each reader of a process pool starts processes of its own, which takes a while.
    usual = 6 if way.startswith("process") else 100
    before, after = said_by(CYCLES, url, way, 100 * TIMES or usual)
    assert after == before
