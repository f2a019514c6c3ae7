"""What a reader takes it gives back: fifty epochs need no more memory than ten, and a hundred readers leave nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec

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

EPOCHS = """
import json, re, sys
from petastore import make_reader

def resident():
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read()).group(1))

sizes = []
with make_reader(sys.argv[1], shuffle_rows=True, seed=5, num_epochs=1, workers_count=2) as reader:
    for epoch in range(50):
        assert sum(batch.num_rows for batch in reader.batches(64)) == 3000
        reader.reset()
        sizes.append(resident())
print(json.dumps(sizes))
"""

CYCLES = """
import json, os, sys, threading
from petastore import make_batch_reader, make_reader
from petastore.readers.pools.thread import ThreadPool

def held():
    children = open(f"/proc/self/task/{os.getpid()}/children").read().split()
    return {"threads": threading.active_count(), "files": len(os.listdir("/proc/self/fd")), "children": len(children),
            "shared memory": [name for name in os.listdir("/dev/shm") if name.startswith(("petastore", "psm_"))]}

def cycle(number):
    open_reader = make_batch_reader if number % 2 else make_reader
    with open_reader(sys.argv[1], shuffle_rows=True, seed=number, num_epochs=None, workers_count=2) as reader:
        batches = reader.batches(64)
        for _ in range(number % 5):
            next(batches)

cycle(1)
before = held()
for number in range(100):
    cycle(number)
print(json.dumps([before, held()]))
"""


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


def said_by(program: str, url: str) -> Any:
    run = subprocess.run([sys.executable, "-c", program, url], check=True, capture_output=True, text=True, timeout=110)
    return json.loads(run.stdout)


def test_memory_stays_flat_over_fifty_epochs(url: str) -> None:
    sizes = said_by(EPOCHS, url)
    early, late = max(sizes[5:15]), max(sizes[40:])
    assert late - early < 8 * 2**20, f"{early / 2**20:,.0f} MiB in the first epochs, {late / 2**20:,.0f} in the last"


def test_a_hundred_readers_leave_nothing_behind(url: str) -> None:
    before, after = said_by(CYCLES, url)
    assert after == before
