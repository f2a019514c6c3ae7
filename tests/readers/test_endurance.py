"""Tests for memory leaks: memory is flat over many epochs, and closed readers release everything."""

from __future__ import annotations

import itertools
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from tests.pace import LONG
from tests.tier import IS_FULL, sized
from tests.warm_interpreters import WarmInterpreter

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

# Both programs include this code: functions that read one pass, by name.
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
        return reader.iter_batches(64)
    from petastore.adapters.torch import DataLoader
    return iter(DataLoader(reader, batch_size=64, nulls="mask"))
"""

EPOCHS = """
import ctypes, gc, time
import pyarrow
from tests.readers import memory_counters

def give_back_what_is_unused():
    gc.collect()
    pyarrow.default_memory_pool().release_unused()
    # Only the C library of GNU has it; others keep less.
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)

def resident(process):
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", open(f"/proc/{process}/status").read()).group(1))

def objects_of_petastore():
    return sum(str(type(thing).__module__).startswith("petastore") for thing in gc.get_objects())

def count():
    give_back_what_is_unused()
    return {"objects": objects_of_petastore(), "arrow": pyarrow.total_allocated_bytes(),
            "mapped": memory_counters.mapped_bytes(), "blocks": sys.getallocatedblocks()}

def settled_counts(taken):
    # Threads of a pool let go of an epoch a moment after its last batch; what stays for a second is a leak.
    for _ in range(20):
        counts = count()
        if all(counts[name] <= max(taken[name], default=counts[name]) for name in ("objects", "arrow", "mapped")):
            break
        time.sleep(0.05)
    return counts

memory_counters.count_mappings()
taken = {"objects": [], "blocks": [], "arrow": [], "mapped": [], "resident": []}
with make_reader(url, seed=5, num_epochs=1, **options) as reader:
    for epoch in range(times):
        rows = [len(batch["id"]) for batch in batches_of(reader)]
        assert (len(rows), sum(rows)) == (reader.steps_per_epoch(64), int(sys.argv[4])), rows
        reader.reset()
        for name, value in settled_counts(taken).items():
            taken[name].append(value)
        taken["resident"].append(sum(map(resident, [os.getpid(), *children()])))
print(json.dumps(taken))
"""

CYCLES = """
def held():
    return {"threads": threading.active_count(), "files": len(os.listdir("/proc/self/fd")), "children": children(),
            "shared memory": [line for line in open("/proc/self/maps") if "memfd:" in line or "/dev/shm/" in line]}

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
after = held()
print(json.dumps([before, after]))
"""


TIMES = int(os.environ.get("PETASTORE_ENDURANCE", "0"))
"""How many times longer than usual to run, set by `make endurance`, which also runs slow cases; 0 in other runs."""

ROWS = 3000 if TIMES else 1000
EPOCHS_READ = 100 * max(TIMES, 1) if IS_FULL or TIMES else 20

MOST_CLIMBED = 8 * 2**20
"""In bytes. Reserves of allocators vary by 15 MiB; without them, resident memory varies by 4 MiB."""

MOST_BLOCKS = 20 * EPOCHS_READ
"""Python memory blocks: caches of bounded size add about 15 an epoch."""

SLOW = ["process,torch"] if TIMES else []
WAYS_TO_READ = [
    "thread,torch",
    *(pytest.param(way, marks=pytest.mark.slow) for way in ("thread,plain", "process,plain", *SLOW)),
]


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
        for number in range(ROWS)
    )
    petastore.write_dataset(str(folder / "mixed"), SCHEMA, rows, rows_per_row_group=100)
    return str(folder / "mixed")


@pytest.fixture
def printed(warm_python: WarmInterpreter, warm_torch: WarmInterpreter, url: str) -> Callable[..., Any]:
    """Return a function that runs a program in a subprocess and returns its JSON output."""

    def printed(program: str, way: str, times: int) -> Any:
        interpreter = warm_torch if way.endswith("torch") else warm_python
        ran = interpreter.run(WAYS + program, url, way, times, ROWS, timeout=LONG * max(TIMES, 1))
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return printed


def rises(values: list[int]) -> int:
    """Return how many values of the second half are larger than all before; a leak makes most of them so."""
    highest = list(itertools.accumulate(values, max))
    return len(set(highest[len(values) // 2 - 1 :])) - 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", WAYS_TO_READ)
def test_memory_stays_flat_over_many_epochs(printed: Callable[..., Any], way: str) -> None:
    """The test checks counters and, in `make test-all`, resident memory of the program and its workers."""
    taken = printed(EPOCHS, way, EPOCHS_READ)
    assert {len(values) for values in taken.values()} == {EPOCHS_READ}
    assert max(taken["objects"][-5:]) <= max(taken["objects"][:-5])
    assert max(taken["blocks"][-5:]) - max(taken["blocks"][5:10]) < MOST_BLOCKS
    assert max(taken["arrow"][-5:]) <= max(taken["arrow"][:-5])
    if way.startswith("process"):
        # Memory shared with a worker grows when a larger piece than any before is sent, which load may delay.
        assert rises(taken["mapped"]) <= max(1, EPOCHS_READ // 50)
    else:
        assert max(taken["mapped"][-5:]) <= max(taken["mapped"][:-5])
    if IS_FULL or TIMES:
        early, late = (statistics.median(taken["resident"][part]) for part in (slice(5, 25), slice(-20, None)))
        assert late - early < MOST_CLIMBED, f"{early / 2**20:,.0f} MiB in early epochs, {late / 2**20:,.0f} at last"


@pytest.mark.parametrize("way", WAYS_TO_READ)
def test_readers_leave_nothing_behind(printed: Callable[..., Any], way: str) -> None:
    # Each reader with a process pool starts processes, which takes time, so there are fewer cycles.
    usual = sized(full=6, quick=3) if way.startswith("process") else sized(full=40, quick=20)
    before, after = printed(CYCLES, way, 100 * TIMES or usual)
    assert after == before
