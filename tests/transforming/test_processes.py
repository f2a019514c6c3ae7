"""Tests of transforms in a process pool: same results as threads, errors, crashes, shutdown, shared memory."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import petastore
from petastore import TransformSpec, Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded
from petastore.errors import InvalidArgumentError, ReaderClosedError, TransformError, WorkerError
from petastore.readers.mixed_sources import MixedReader
from petastore.transforming.processes import TransformProcesses
from petastore.transforming.transform import Transform, transform_columns, transform_schema
from petastore.work.pools import PoolType, Workers
from tests.pace import LONG
from tests.readers import transforms_to_send as sent
from tests.tier import examples, sized
from tests.warm_interpreters import WarmInterpreter

SCHEMA = Unischema(
    "thing",
    [
        UnischemaField("id", np.int64),
        UnischemaField("when", np.dtype("M8[us]"), nullable=True),
        UnischemaField("name", str, nullable=True),
        UnischemaField("image", np.uint8, (20, 30), NdarrayCodec()),
        UnischemaField("track", np.float32, (None, 2), NdarrayCodec(), nullable=True),
    ],
)
global_lock = threading.Lock()
SIZES: dict[str, tuple[int, ...]] = {"id": (), "when": (), "image": (20, 30)}
MORE = [
    UnischemaField("text", str, nullable=True),
    UnischemaField("half", np.float32, nullable=True),
    UnischemaField("track", np.int16, (None, 2)),
    UnischemaField("image", np.uint8, (40, 40)),
]
MORE_SPEC = TransformSpec(sent.more, edit_fields=MORE, selected_fields=["id", *(field.name for field in MORE)])
FRAME_SPEC = TransformSpec(
    sent.frame_of_halves, edit_fields=[("half", np.float32, (), False), ("rows", np.int64, (), False)]
)
COLUMN_SPEC = TransformSpec(sent.columns_of_halves, edit_fields=[("half", np.float32, (), False)], takes="columns")
SPECS: dict[str, tuple[TransformSpec, bool]] = {
    "unchanged": (TransformSpec(sent.unchanged), False),
    "in place": (TransformSpec(sent.in_place), False),
    "more": (MORE_SPEC, False),
    "frames": (FRAME_SPEC, True),
    "columns": (COLUMN_SPEC, False),
    "columns of batches": (COLUMN_SPEC, True),
    "rows of batches": (dataclasses.replace(MORE_SPEC, takes="row"), True),
}


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "when": None if number % 3 == 1 else np.datetime64(number, "us"),
        "name": None if number % 4 == 1 else f"thing {number}",
        "image": np.full((20, 30), number % 100, np.uint8),
        "track": None if number % 6 == 1 else np.full((number % 5, 2), number, np.float32),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("things") / "data")
    petastore.write_dataset(url, SCHEMA, map(row, range(301)), rows_per_row_group=70)
    return url


def columns_of(numbers: list[int]) -> dict[str, Decoded]:
    rows = [row(number) for number in numbers]
    columns = {}
    for field in SCHEMA:
        values = np.empty(len(rows), object)
        values[:] = [one[field.name] for one in rows]
        missing = np.array([value is None for value in values], bool)
        if field.is_fixed and not field.dtype.hasobject:
            filled = np.zeros((len(rows), *SIZES[field.name]), field.dtype)
            for place in np.flatnonzero(~missing):
                filled[place] = values[place]
            columns[field.name] = Decoded(filled, missing if missing.any() else None)
        else:
            columns[field.name] = Decoded(values, None)
    return columns


def same(here: Any, there: Any) -> bool:
    """Return whether two columns are equal in every value, mask and dtype."""
    if isinstance(here, np.ma.MaskedArray) or isinstance(there, np.ma.MaskedArray):
        mask, other = np.ma.getmaskarray(here), np.ma.getmaskarray(there)
        return bool((mask == other).all()) and same(np.asarray(here)[~mask], np.asarray(there)[~mask])
    if here.dtype != there.dtype or here.shape != there.shape:
        return False
    if here.dtype != object:
        return bool((here == there).all())
    return all(map(_same_object, here, there))


def _same_object(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return same(one, other)
    is_nan = one != one and other != other
    return type(one) is type(other) and (is_nan or one == other)


class _Processes:
    """Two worker processes that know all functions, shared by a module."""

    def __init__(self) -> None:
        self.processes = TransformProcesses(2)
        self.schemas = {name: transform_schema(SCHEMA, spec) for name, (spec, _) in SPECS.items()}
        self.transforms: dict[str, Transform] = {
            name: self.processes.add(spec, self.schemas[name], batched=batched, buffers=Buffers())
            for name, (spec, batched) in SPECS.items()
        }


@pytest.fixture
def two_workers() -> Iterator[_Processes]:
    made = _Processes()
    pool = made.processes.pool()
    yield made
    pool.close()
    pool.join()
    made.processes.close()
    made.processes.join()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(list(SPECS)),
    numbers=st.lists(st.integers(0, 10_000), min_size=1, max_size=300),
    cuts=st.lists(st.integers(0, 300), max_size=8),
)
def test_process_pool_equals_thread_pool(
    two_workers: _Processes, name: str, numbers: list[int], cuts: list[int]
) -> None:
    offsets = np.array(sorted({0, len(numbers)} | {cut for cut in cuts if cut < len(numbers)}))
    spec, batched = SPECS[name]
    expected = transform_columns(columns_of(numbers), offsets, two_workers.schemas[name], spec, batched=batched)
    made = two_workers.transforms[name](columns_of(numbers), offsets)
    found = made.result(LONG) if not isinstance(made, dict) else made
    assert list(found) == list(expected)
    for column, one in found.items():
        assert same(one.rows(0, len(numbers)), expected[column].rows(0, len(numbers))), column
        assert (one.missing is None) == (expected[column].missing is None)


READERS: dict[str, Callable[[str, PoolType], Any]] = {
    "rows": lambda url, pool: petastore.make_reader(
        url, reader_pool_type=pool, workers_count=2, shuffle_rows=True, seed=3, num_epochs=2, transform_spec=MORE_SPEC
    ),
    "frames": lambda url, pool: petastore.make_batch_reader(
        url, reader_pool_type=pool, workers_count=2, shuffle_rows=True, seed=3, transform_spec=FRAME_SPEC
    ),
    "columns": lambda url, pool: petastore.make_reader(
        url, reader_pool_type=pool, workers_count=2, shuffle_rows=True, seed=3, transform_spec=COLUMN_SPEC
    ),
    "columns of batches": lambda url, pool: petastore.make_batch_reader(
        url, reader_pool_type=pool, workers_count=2, seed=3, transform_spec=COLUMN_SPEC
    ),
    "columns of a mixture": lambda url, pool: petastore.make_mixed_reader(
        [url, url], [2, 1], reader_pool_type=pool, workers_count=2, seed=1, transform_spec=COLUMN_SPEC
    ),
    "padded shards": lambda url, pool: petastore.make_reader(
        url,
        reader_pool_type=pool,
        workers_count=2,
        cur_shard=1,
        shard_count=2,
        last_batch="pad",
        transform_spec=TransformSpec(sent.in_place),
    ),
    "a mixture": lambda url, pool: petastore.make_mixed_reader(
        [url, url],
        [2, 1],
        reader_pool_type=pool,
        workers_count=2,
        seed=1,
        source_column="of",
        transform_spec=TransformSpec(sent.in_place),
    ),
}


@pytest.mark.parametrize("kind", READERS)
def test_all_pool_types_return_the_same_batches(url: str, kind: str) -> None:
    read = []
    for pool in ("dummy", "thread", "process"):
        with READERS[kind](url, pool) as reader:
            read.append([dict(batch) for batch in reader.iter_batches(17)])
    assert len(read[0]) > 5
    for others in read[1:]:
        assert len(others) == len(read[0])
        for batch, other in zip(read[0], others, strict=True):
            assert list(batch) == list(other)
            assert all(same(batch[name], other[name]) for name in batch)


def test_mixture_sources_may_have_their_own_functions_in_processes(url: str) -> None:
    dataset = petastore.open_dataset(url)
    specs = [
        TransformSpec(sent.Adds(0), selected_fields=["id"]),
        TransformSpec(sent.Adds(1000), selected_fields=["id"]),
    ]
    read = []
    for pool in ("thread", "process"):
        with petastore.make_mixed_reader([url, url], [1, 1], ["id"], seed=1, stop="all_exhausted") as planned:
            mixture = planned.plan
        with MixedReader([dataset, dataset], mixture, workers=Workers(pool, 2), transforms=specs) as reader:  # type: ignore[arg-type]
            read.append([batch["id"].tolist() for batch in reader.iter_batches(50)])
    assert read[0] == read[1]
    assert {number >= 1000 for batch in read[0] for number in batch} == {True, False}


def read_all(url: str, func: Any) -> list[Any]:
    with petastore.make_reader(
        url,
        ["id", "image"],
        reader_pool_type="process",
        workers_count=2,
        shuffle_row_groups=False,
        transform_spec=TransformSpec(func),
    ) as reader:
        return list(reader.iter_batches(10))


def test_transform_error_in_a_worker_process_has_the_worker_traceback(url: str) -> None:
    errors = []
    for pool in ("thread", "process"):
        with (
            petastore.make_reader(
                url,
                reader_pool_type=pool,
                shuffle_row_groups=False,
                transform_spec=TransformSpec(sent.fails_from_30, edit_fields=[]),
            ) as reader,
            pytest.raises(TransformError) as caught,
        ):
            list(reader)
        errors.append(caught.value)
    in_thread, in_process = errors
    assert str(in_process) == str(in_thread)
    assert "row 30" in str(in_process)
    assert isinstance(in_process.__cause__, KeyError)
    (note,) = in_process.__notes__
    assert "in fails_from_30" in note
    assert "transforms_to_send.py" in note
    assert "worker process" in note


def test_unpicklable_process_error_is_raised_as_text(url: str) -> None:
    with pytest.raises(TransformError, match="Unpicklable: 1 and 2") as caught:
        read_all(url, sent.raises_what_cannot_be_pickled)
    assert "in raises_what_cannot_be_pickled" in caught.value.__notes__[0]


def test_unpicklable_process_result_raises(url: str) -> None:
    spec = TransformSpec(
        sent.makes_what_cannot_be_pickled,
        edit_fields=[("thing", np.object_, (), False)],
        selected_fields=["id", "thing"],
    )
    with (
        petastore.make_reader(url, reader_pool_type="process", workers_count=1, transform_spec=spec) as reader,
        pytest.raises(Exception, match=r"cannot pickle '_thread.lock' object") as caught,
    ):
        next(reader)
    # Python 3.14 adds its own notes before it.
    assert any("worker process" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("func", "how"),
    [
        (sent.exits, "ended with exit code 3"),
        (sent.crashes, "was killed by signal 11 (SIGSEGV)"),
    ],
)
def test_worker_process_that_exits_raises_worker_error(
    url: str, func: Any, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkerError) as caught:
        read_all(url, func)
    said = str(caught.value)
    assert how in said
    found = re.search(
        rf"while it ran the transform {func.__module__}\.{func.__name__} on rows (\d+) to (\d+) of (\d+)", said
    )
    assert found, said
    # Batches are assembled in several threads, one, two, four and more together, and any of these may come first. Each
    # of two workers has half of the rows, or as many as a first call has, and either may end first.
    first, last, rows = map(int, found.groups())
    assert 10 <= rows <= 301
    of_call = min(-(-rows // 2), 64)
    assert first % of_call == 0
    assert last == min(first + of_call, rows) - 1
    assert ("in crashes" in capfd.readouterr().err) == (func is sent.crashes)  # faulthandler prints the line


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll for a change in another process, without a limit except that of the test."""
    while not condition():
        time.sleep(0.01)


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file through which functions in workers report; the fixture must run before a reader opens."""
    path = tmp_path / "mark"
    monkeypatch.setenv("PETASTORE_TEST_MARK", str(path))
    return path


def busy_workers(mark: Path) -> list[int]:
    return [int(file.suffix[1:]) for file in mark.parent.glob(f"{mark.name}.*")]


def begin_to_sleep(url: str, mark: Path) -> tuple[Any, Any]:
    """Return a reader whose two workers are in a call of ten minutes, and the thread that waits for it."""
    raised: list[BaseException] = []
    reader = petastore.make_reader(
        url, reader_pool_type="process", workers_count=2, transform_spec=TransformSpec(sent.sleeps, edit_fields=[])
    )

    def consume() -> None:
        try:
            next(reader)
        except BaseException as problem:  # noqa: BLE001 - it is looked at by the test
            raised.append(problem)

    consumer = threading.Thread(target=consume)
    consumer.start()
    wait_until(lambda: len(busy_workers(mark)) == 2)
    return reader, (consumer, raised)


def test_killed_worker_process_raises_at_once(url: str, mark: Path) -> None:
    reader, (consumer, raised) = begin_to_sleep(url, mark)
    victim = busy_workers(mark)[0]
    os.kill(victim, signal.SIGKILL)
    consumer.join(LONG)
    assert not consumer.is_alive()
    assert isinstance(raised[0], WorkerError)
    assert f"(pid {victim}) was killed by signal 9 (SIGKILL)" in str(raised[0])
    reader.stop()
    reader.join()
    assert not any(psutil.pid_exists(pid) for pid in busy_workers(mark))
    assert "/memfd:petastore" not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_reader_stop_wakes_a_consumer_that_waits_for_worker_processes(url: str, mark: Path) -> None:
    reader, (consumer, raised) = begin_to_sleep(url, mark)
    reader.stop()
    consumer.join(LONG)
    assert isinstance(raised[0], ReaderClosedError)
    reader.join()  # must not wait for the calls, which take ten minutes
    assert not any(psutil.pid_exists(pid) for pid in busy_workers(mark))


@pytest.mark.parametrize("pool", ["thread", "process", "dummy"])
def test_transform_that_calls_sys_exit_raises_transform_error(url: str, pool: PoolType) -> None:
    spec = TransformSpec(sent.exits_politely, edit_fields=[])
    with (
        petastore.make_reader(url, reader_pool_type=pool, workers_count=2, transform_spec=spec) as reader,
        pytest.raises(TransformError, match="exits_politely raised SystemExit: 4"),
    ):
        list(reader)


@pytest.mark.parametrize("pool", ["thread", "process", "dummy"])
def test_predicate_that_calls_sys_exit_raises_transform_error(url: str, pool: PoolType) -> None:
    with pytest.raises(TransformError, match="the predicate raised SystemExit: 4"):
        petastore.make_reader(url, reader_pool_type=pool, predicate=lambda _: sys.exit(4), filter_cache=False)


def test_process_pool_restarts_workers_after_a_death(url: str, mark: Path) -> None:
    spec = TransformSpec(sent.exits_once, edit_fields=[])
    with petastore.make_reader(url, reader_pool_type="process", workers_count=2, transform_spec=spec) as reader:
        with pytest.raises(WorkerError):
            list(reader)
        reader.reset()
        assert len(list(reader)) == 301


def test_worker_processes_persist_until_the_reader_closes(url: str) -> None:
    spec = TransformSpec(sent.worker_of, edit_fields=[("pid", np.int64, (), False)], selected_fields=["id", "pid"])
    with petastore.make_reader(url, reader_pool_type="process", workers_count=1, transform_spec=spec) as reader:
        pids = {int(one.pid) for one in reader}
        for batch in reader.iter_batches(10):
            pids.update(batch["pid"].tolist())
            break  # leaves the iteration early
        reader.reset()
        pids |= {int(one.pid) for one in reader}
    assert len(pids) == 1
    assert os.getpid() not in pids
    assert not psutil.pid_exists(pids.pop())


@pytest.mark.usefixtures("mark")
def test_all_worker_processes_are_used(url: str) -> None:
    """Neither worker returns a row before the other has begun its first."""
    fields = [("pid", np.int64, (), False)]
    spec = TransformSpec(sent.meets_another_worker, edit_fields=fields, selected_fields=["id", "pid"])
    with petastore.make_reader(url, reader_pool_type="process", workers_count=2, transform_spec=spec) as reader:
        pids = {number for batch in reader.iter_batches(50) for number in batch["pid"].tolist()}
    assert len(pids) == 2


def test_worker_processes_import_no_framework(url: str) -> None:
    spec = TransformSpec(sent.modules_of, edit_fields=[("modules", str, (), False)], selected_fields=["id", "modules"])
    with petastore.make_reader(url, reader_pool_type="process", workers_count=1, transform_spec=spec) as reader:
        assert next(reader).modules == ""


def test_transform_in_a_worker_process_may_keep_references_to_arguments() -> None:
    """`before` returns each row with the image of the previous row, which must not have changed."""
    schema = Unischema("image", [UnischemaField("id", np.int64), UnischemaField("image", np.uint8, (20, 30))])
    processes = TransformProcesses(1)
    transform = processes.add(TransformSpec(sent.before), schema, batched=False, buffers=Buffers())
    pool = processes.pool()
    images = np.repeat(np.arange(1000) % 251, 600).astype(np.uint8).reshape(1000, 20, 30)
    made = transform({"id": Decoded(np.arange(1000), None), "image": Decoded(images, None)}, np.array([0, 1000]))
    assert not isinstance(made, dict)
    np.testing.assert_array_equal(made.result(LONG)["image"].values[1:], images[:-1])
    pool.close()
    pool.join()
    processes.close()
    processes.join()


def test_batches_from_worker_processes_do_not_change_when_kept(url: str) -> None:
    def arenas() -> int:
        return Path("/proc/self/maps").read_text(encoding="utf-8").count("/memfd:petastore")

    most, kept = 0, []
    with petastore.make_reader(
        url,
        reader_pool_type="process",
        workers_count=2,
        shuffle_row_groups=False,
        num_epochs=4,
        transform_spec=TransformSpec(sent.in_place),
    ) as reader:
        for batch in reader.iter_batches(20):
            kept.append((batch["id"], batch["image"], batch["track"]))
            most = max(most, arenas())
    assert 0 < most <= 2 * 2 * 2  # workers × slots × directions
    assert arenas() == 0
    for ids, images, tracks in kept:
        assert (images[:, 0, 0] == ids % 100 * 2).all()
        assert [None if track is None else track.tolist() for track in tracks] == [
            None if one["track"] is None else one["track"].tolist() for one in map(row, ids.tolist())
        ]


def test_lambdas_and_nested_functions_are_sent_to_processes(url: str) -> None:
    table = np.arange(1000) * 2

    def nested(values: dict[str, Any]) -> dict[str, Any]:
        return {"id": table[values["id"]]}

    for func in (nested, lambda values: nested(values), functools.partial(nested)):
        spec = TransformSpec(func, selected_fields=["id"])
        with petastore.make_reader(
            url, reader_pool_type="process", workers_count=2, transform_spec=spec, shuffle_row_groups=False
        ) as reader:
            assert [int(one.id) for one in reader] == list(range(0, 602, 2))


def test_closure_arrays_are_private_to_a_worker_process(url: str) -> None:
    """The array is so large that it is sent in shared memory, where later messages do not overwrite it."""
    seen = np.zeros(100_000, np.int64)

    def first_time(values: dict[str, Any]) -> dict[str, Any]:
        seen[values["id"]] += 1
        return {"id": values["id"], "times": seen[values["id"]], "others": seen.sum() - seen[:301].sum()}

    fields = [(name, np.int64, (), False) for name in ("times", "others")]
    spec = TransformSpec(first_time, edit_fields=fields, selected_fields=["id", "times", "others"])
    with petastore.make_reader(url, reader_pool_type="process", workers_count=1, transform_spec=spec) as reader:
        for times in (1, 2, 3):
            assert {(int(one.times), int(one.others)) for one in reader} == {(times, 0)}
            reader.reset()
    assert seen.sum() == 0


class HoldsLock:
    def __init__(self) -> None:
        self.lock = global_lock

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


def closure_of_lock() -> Callable[[dict[str, Any]], dict[str, Any]]:
    held = threading.Lock()
    return lambda row: row | {"id": held.locked()}


def closure_of_function() -> Callable[[dict[str, Any]], dict[str, Any]]:
    def inner(row: dict[str, Any]) -> dict[str, Any]:
        return outer(row) if global_lock.locked() else row

    def outer(row: dict[str, Any]) -> dict[str, Any]:
        return inner(row)

    return outer


@pytest.mark.parametrize(
    ("func", "variable"),
    [
        (lambda row: row | {"id": global_lock.locked()}, "the global variable 'global_lock'"),
        (lambda row: (lambda: row | {"id": global_lock.locked()})(), "the global variable 'global_lock'"),
        (functools.partial(lambda row: row | {"id": global_lock.locked()}), "the global variable 'global_lock'"),
        (closure_of_lock(), "the variable 'held' of the function around it"),
        (closure_of_function(), "the variable 'inner' of the function around it, the global variable 'global_lock'"),
        (HoldsLock(), "the attribute 'lock'"),
        (HoldsLock().__call__, "the attribute 'lock'"),
    ],
)
def test_function_with_an_unpicklable_variable_raises_and_names_it(url: str, func: Any, variable: str) -> None:
    said = "transform_spec must have a picklable function for reader_pool_type='process', got"
    with pytest.raises(InvalidArgumentError, match=said) as raised:
        petastore.make_reader(url, reader_pool_type="process", transform_spec=TransformSpec(func))
    assert f": {variable} cannot be sent (cannot pickle '_thread.lock' object). Create that object inside" in str(
        raised.value
    )


WITHOUT_A_FUNCTION = """
import sys
import psutil
import petastore

for spec in (None, petastore.TransformSpec(selected_fields=["id"])):
    with petastore.make_reader(sys.argv[1], reader_pool_type="process", transform_spec=spec) as reader:
        print(len(list(reader)), psutil.Process().children())
"""


def test_process_pool_without_a_function_uses_threads(url: str, warm_python: WarmInterpreter) -> None:
    ran = warm_python.run(WITHOUT_A_FUNCTION, url)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["301 []"] * 2


def test_process_pool_leaks_nothing_when_readers_are_opened_and_left_early(url: str) -> None:
    """The fixture of all tests then checks for leaked threads, children, files and shared memory."""
    for number in range(sized(full=10, quick=3)):
        with petastore.make_reader(
            url, reader_pool_type="process", workers_count=2, transform_spec=TransformSpec(sent.unchanged)
        ) as reader:
            for _ in range(number % 3):  # not started, left after one row, left after two
                next(reader)


PROGRAM = """
import os, sys, petastore
from petastore import TransformSpec

def minus(row):
    return {"id": -row["id"]}

def read():
    asked = {"transform_spec": TransformSpec(minus, selected_fields=["id"]), "shuffle_row_groups": False}
    with petastore.make_reader(sys.argv[1], ["id"], "process", 2, **asked) as reader:
        print([int(row.id) for row in reader][:3])
"""


def run(tmp_path: Path, program: str, *arguments: str, timeout: float = LONG) -> subprocess.CompletedProcess[str]:
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "program.py", *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=timeout)


def in_quick(names: Iterable[str], *quick: str) -> list[Any]:
    """Return parameters of which `make test` runs some, and `make test-all` all."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


WAYS: dict[str, list[str]] = {
    "a script": ["program.py"],
    "standard input": ["-"],
    "a command": ["-c", PROGRAM + "\nread()\n"],
    "a notebook": ["-c", "for cell in open('program.py').read().split('\\n\\n'): exec(compile(cell, 'In', 'exec'))"],
}


@pytest.mark.parametrize("way", in_quick(WAYS, "a script", "a notebook"))
def test_functions_of_main_run_in_worker_processes_without_a_main_guard(url: str, tmp_path: Path, way: str) -> None:
    """No `if __name__ == '__main__'` is needed, because workers do not run the program again."""
    (tmp_path / "program.py").write_text(PROGRAM + "\nread()\n", encoding="utf-8")
    with (tmp_path / "program.py").open() as program:
        ran = subprocess.run(
            [sys.executable, *WAYS[way], url],
            stdin=program,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONG,
        )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[0, -1, -2]\n", "")


def test_module_functions_are_imported_by_worker_processes(url: str, tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text("def minus(row):\n    return {'id': -row['id']}\n", encoding="utf-8")
    program = PROGRAM.replace("def minus", "def other") + "\nfrom functions import minus\nread()\n"
    ran = run(tmp_path, program, url)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "[0, -1, -2]\n", "")


@pytest.mark.parametrize(
    ("import_", "said"),
    [
        ("raise ImportError('not in a worker')", "could not start: ImportError: not in a worker"),
        pytest.param("sys.exit(4)", "could not start: SystemExit: 4", marks=pytest.mark.slow),
        pytest.param("input()", "could not start: EOFError: EOF when reading a line", marks=pytest.mark.slow),
    ],
)
def test_module_that_worker_processes_cannot_import_raises(url: str, tmp_path: Path, import_: str, said: str) -> None:
    module = f"import sys\ndef minus(row): return row\nif 'program.py' not in sys.argv: {import_}\n"
    (tmp_path / "functions.py").write_text(module, encoding="utf-8")
    ran = run(tmp_path, PROGRAM.replace("def minus", "def other") + "\nfrom functions import minus\nread()\n", url)
    assert "petastore.errors.WorkerError: worker process " in ran.stderr
    assert said in ran.stderr
    assert "functions.py" in ran.stderr


HEAVY = """
import os
with open("imported", "a") as file:
    print(os.getpid(), file=file)

def half(number):
    return number / 2
"""

OF_MAIN = """
import dataclasses, os, sys
import numpy as np
import petastore
import heavy, heavy as named
from petastore import TransformSpec, UnischemaField

table = np.arange(10_000)

@dataclasses.dataclass
class Thing:
    number: int

class Adds:
    def __init__(self, thing):
        self.thing = thing

    def __call__(self, row):
        if row["id"] == 5 and self.thing.number == 5:
            raise Unlucky(self.thing)
        thing = dataclasses.replace(self.thing, number=int(table[row["id"]]) + self.thing.number)
        return {"id": thing.number, "thing": thing, "imported": "heavy" in sys.modules}

class Unlucky(Exception):
    pass

def uses(row):
    return {"id": int(named.half(row["id"])), "thing": None, "imported": "heavy" in sys.modules}

fields = [("thing", np.object_, (), True), ("imported", np.bool_, (), False)]

def read(func):
    spec = TransformSpec(func, edit_fields=fields, selected_fields=["id", "thing", "imported"])
    asked = {"transform_spec": spec, "shuffle_row_groups": False, "reader_pool_type": "process", "workers_count": 2}
    with petastore.make_reader(sys.argv[1], ["id"], **asked) as reader:
        rows = list(reader)
    print(sum(row.id for row in rows), rows[2].thing, {bool(row.imported) for row in rows})
    return rows

imports = lambda: len(open("imported").readlines())
assert all(type(row.thing) is Thing for row in read(Adds(Thing(7))))
print(imports())
try:
    read(Adds(Thing(5)))
except petastore.errors.TransformError as problem:
    print(repr(problem.__cause__), "in __call__" in problem.__notes__[0])
read(uses)
print(imports())
"""


def test_worker_process_imports_only_modules_used_by_functions_of_main(url: str, tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text(HEAVY, encoding="utf-8")
    ran = run(tmp_path, OF_MAIN, url)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        f"{sum(range(301)) + 7 * 301} Thing(number=9) {{False}}",
        "1",  # one import by the program itself
        "Unlucky(Thing(number=5)) True",
        f"{sum(number // 2 for number in range(301))} None {{True}}",
        "3",  # and one by each of two workers
    ]


FIRST_ROW = """
import sys
import torch
import petastore

func = lambda row: row | {"id": len([name for name in sys.modules if name.split(".")[0] in ("torch", "pyarrow")])}
spec = petastore.TransformSpec(func)
with petastore.make_reader(sys.argv[1], ["id"], "process", 2, transform_spec=spec) as reader:
    assert {int(row.id) for row in reader} == {0}, "a worker imported torch"
"""


def test_worker_processes_start_without_torch(url: str, warm_torch: WarmInterpreter) -> None:
    ran = warm_torch.run(FIRST_ROW, url)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_interpreter_exits_with_an_open_process_reader(url: str, tmp_path: Path) -> None:
    program = PROGRAM + (
        "\nif __name__ == '__main__':\n"
        "    spec = TransformSpec(minus, selected_fields=['id'])\n"
        "    reader = petastore.make_reader(sys.argv[1], ['id'], 'process', 2, transform_spec=spec, num_epochs=None)\n"
        "    next(reader)\n"
        "    print('half way')\n"
    )
    ran = run(tmp_path, program, url)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "half way\n", "")


def test_worker_processes_end_when_their_parent_is_killed(url: str, mark: Path, repository: Path) -> None:
    program = (
        "import sys, petastore\nfrom petastore import TransformSpec\n"
        "from tests.readers.transforms_to_send import sleeps\n"
        "spec = TransformSpec(sleeps, edit_fields=[])\n"
        "next(petastore.make_reader(sys.argv[1], ['id'], 'process', 2, transform_spec=spec))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program, url], cwd=repository)
    wait_until(lambda: len(busy_workers(mark)) == 2)
    workers = [psutil.Process(pid) for pid in busy_workers(mark)]
    # Unnamed memory is freed when the last process that maps it ends.
    shared = [region.path for worker in workers for region in worker.memory_maps() if "petastore" in region.path]
    assert not any(path.startswith("/dev/shm/") for path in shared)  # noqa: S108 - it is looked at
    parent.kill()
    parent.wait()
    gone, alive = psutil.wait_procs(workers, timeout=LONG)
    assert (len(gone), alive) == (2, [])


def test_fork_of_the_parent_does_not_affect_worker_processes(url: str) -> None:
    spec = TransformSpec(sent.worker_of, edit_fields=[("pid", np.int64, (), False)], selected_fields=["id", "pid"])
    with petastore.make_reader(url, reader_pool_type="process", workers_count=1, transform_spec=spec) as reader:
        first = next(reader).pid
        child = os.fork()
        if child == 0:
            reader.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert {int(one.pid) for one in reader} == {int(first)}


def test_process_pool_works_with_partitions_and_plain_parquet(tmp_path: Path) -> None:
    for day in ("a", "b"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": pa.array(range(5))}), tmp_path / f"day={day}" / "part.parquet")
    with petastore.make_reader(
        str(tmp_path), reader_pool_type="process", workers_count=1, transform_spec=TransformSpec(sent.unchanged)
    ) as reader:
        assert sorted((int(one.id), one.day) for one in reader) == sorted((n, day) for n in range(5) for day in "ab")


def test_documented_process_pool_program_runs(tmp_path: Path, repository: Path) -> None:
    page = (repository / "docs" / "how-to" / "run-python-transforms-in-processes.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    ran = run(tmp_path, program)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "3996 vowels\n", "")
    assert "The program prints `3996 vowels`" in page
