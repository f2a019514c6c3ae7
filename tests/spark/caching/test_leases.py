"""Tests of leases on converter directories: those of dead processes may be removed, those in use never."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.spark.caching.leases import Lease, Leases, abandoned_directories, has_lease, is_directory_name
from petastore.storage.files.location import Location, open_location

HOUR = 3600.0


def new_name() -> str:
    return f"20260102030405-appid-local-1-{uuid.uuid4()}"


@pytest.fixture
def parent(tmp_path: Path) -> Location:
    return open_location(tmp_path / "parent")


def found(parent: Location) -> list[str]:
    return list(abandoned_directories(parent))


def plant(parent: Location, lease: Lease) -> str:
    """Write a lease in the form of another process."""
    name = new_name()
    Path(parent.root).mkdir(exist_ok=True)
    Path(parent.root, f"_{name}.lease").write_bytes(lease.to_json())
    return name


def lease_of(parent: Location, name: str) -> Lease:
    """Return the lease in a file that may be rewritten concurrently."""
    while (lease := Lease.from_json(Path(parent.root, f"_{name}.lease").read_bytes())) is None:
        pass
    return lease


def test_lease_is_abandoned_when_its_process_is_killed(parent: Location, repository: Path) -> None:
    name = new_name()
    code = f"""if True:
        from petastore.spark.caching.leases import Leases
        from petastore.storage.files.location import open_location
        Leases().take(open_location({parent.root!r}), {name!r})
        print("taken", flush=True)
        input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=repository, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "taken\n"
        assert has_lease(parent, name)
        assert found(parent) == []
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert found(parent) == [name]


def test_lease_exists_until_released(parent: Location) -> None:
    mine, name = Leases(), new_name()
    assert not has_lease(parent, name)
    mine.take(parent, name)
    assert has_lease(parent, name)
    assert found(parent) == []
    mine.give_back(parent, name)
    assert not has_lease(parent, name)
    mine.give_back(parent, name)  # another process may already have removed it


def test_lease_works_in_any_storage() -> None:
    parent, mine, name, gone = open_location(f"memory://{uuid.uuid4()}/cache"), Leases(), new_name(), new_name()
    mine.take(parent, name)
    with parent.filesystem.open_output_stream(parent.join(f"_{gone}.lease")) as file:
        file.write(dataclasses.replace(Lease.of_this_process(), start=-1).to_json())
    assert found(parent) == [gone]
    mine.give_back(parent, gone)
    mine.give_back(parent, name)
    assert [has_lease(parent, left) for left in (name, gone)] == [False, False]
    assert found(parent) == []


def test_lease_is_renewed_while_held(parent: Location) -> None:
    mine, names = Leases(renewed_every=0.01), [new_name(), new_name()]
    for name in names:
        mine.take(parent, name)
    try:
        first = [Path(parent.root, f"_{name}.lease").read_bytes() for name in names]
        for name, old in zip(names, first, strict=True):
            while (now := Path(parent.root, f"_{name}.lease").read_bytes()) in (old, b""):
                time.sleep(0.005)  # without a deadline, because the test has a time limit
            before, after = Lease.from_json(old), Lease.from_json(now)
            assert before is not None
            assert after is None or after.renewed > before.renewed
    finally:
        for name in names:
            mine.give_back(parent, name)


def test_lease_distinguishes_processes_of_the_same_pid(parent: Location) -> None:
    mine = Lease.of_this_process()
    plant(parent, mine)
    earlier = plant(parent, dataclasses.replace(mine, start=mine.start - 1))
    assert found(parent) == [earlier]


def test_lease_of_another_host_expires_after_three_days(parent: Location) -> None:
    mine = Lease.of_this_process()
    far = dataclasses.replace(mine, place="elsewhere/boot/pid:[1]", pid=1, start=-1)
    plant(parent, dataclasses.replace(far, renewed=mine.renewed - 71 * HOUR))
    late = plant(parent, dataclasses.replace(far, renewed=mine.renewed - 73 * HOUR))
    assert found(parent) == [late]


def test_lease_of_a_running_process_never_expires(parent: Location) -> None:
    mine = Lease.of_this_process()
    plant(parent, dataclasses.replace(mine, renewed=mine.renewed - 10_000 * HOUR))
    assert found(parent) == []


def test_lease_expires_by_time_when_the_host_is_unknown(parent: Location) -> None:
    mine = dataclasses.replace(Lease.of_this_process(), place="", start=-1)
    plant(parent, mine)
    late = plant(parent, dataclasses.replace(mine, renewed=mine.renewed - 73 * HOUR))
    assert found(parent) == [late]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": "petastore.lease", "version": 2, "place": "a", "pid": 1, "start": 1, "renewed": 0}',
        b'{"format": "petastore.lease", "version": 1, "place": "a", "pid": true, "start": 1, "renewed": 0}',
        b'{"format": "petastore.lease", "version": 1, "place": 5, "pid": 1, "start": 1, "renewed": 0}',
        b'{"format": "petastore.lease", "version": 1, "place": "a", "pid": 1, "start": 1, "renewed": "0"}',
        b'{"format": "petastore.lease", "version": 1, "place": "a", "pid": 1, "start": 1, "renewed": 0}' + b" " * 9999,
        b"[" * 4096,
    ],
)
def test_unreadable_lease_counts_as_used(parent: Location, content: bytes) -> None:
    name = plant(parent, Lease.of_this_process())
    Path(parent.root, f"_{name}.lease").write_bytes(content)
    usual = content.endswith(b" ")  # longer than a lease may be, but its beginning is a valid lease
    assert found(parent) == ([name] if usual else [])


def test_lease_cleanup_ignores_other_files(parent: Location) -> None:
    Path(parent.root).mkdir()
    gone = dataclasses.replace(Lease.of_this_process(), start=-1).to_json()
    for name in ("_x.lease", "_..lease", "_../20260102030405.lease".replace("/", ""), new_name() + ".lease"):
        Path(parent.root, name).write_bytes(gone)
    assert found(parent) == []
    assert found(open_location(Path(parent.root, "not there"))) == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_holds_no_leases(parent: Location) -> None:
    mine, name, of_child = Leases(renewed_every=0.01), new_name(), new_name()
    mine.take(parent, name)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(60)  # without renewal, the child would wait forever
            mine.take(parent, of_child)
            first, renewed, holders = lease_of(parent, of_child), set[float](), set[int]()
            while len(renewed) < 5:
                holders.add(lease_of(parent, name).pid)
                renewed.add(lease_of(parent, of_child).renewed)
            mine.give_back(parent, of_child)
            code = 0 if has_lease(parent, name) and (holders, first.pid) == ({os.getppid()}, os.getpid()) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    mine.give_back(parent, name)


@given(st.text(max_size=60), st.integers(), st.integers(), st.floats(allow_nan=False))
def test_lease_file_round_trips(place: str, pid: int, start: int, renewed: float) -> None:
    lease = Lease(place, pid, start, renewed)
    assert Lease.from_json(lease.to_json()) == lease


@given(st.binary(max_size=200))
def test_lease_from_any_bytes_is_valid_or_none(data: bytes) -> None:
    assert Lease.from_json(data) is None


def test_lease_directory_name_cannot_leave_its_parent() -> None:
    assert is_directory_name(new_name())
    for name in ("", "..", new_name() + "/..", "../" + new_name(), new_name().replace("local", "lo/cal")):
        assert not is_directory_name(name)
