"""What a process that is gone left behind may be removed; what may be in use never."""

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
    """A lease as another process would have written it."""
    name = new_name()
    Path(parent.root).mkdir(exist_ok=True)
    Path(parent.root, f"_{name}.lease").write_bytes(lease.to_json())
    return name


def test_a_directory_belongs_to_its_process_while_that_lives_and_is_abandoned_when_it_is_killed(
    parent: Location, repository: Path
) -> None:
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


def test_a_lease_is_there_until_it_is_given_back(parent: Location) -> None:
    mine, name = Leases(), new_name()
    assert not has_lease(parent, name)
    mine.take(parent, name)
    assert has_lease(parent, name)
    assert found(parent) == []
    mine.give_back(parent, name)
    assert not has_lease(parent, name)
    mine.give_back(parent, name)  # as another process may have removed it first


def test_leases_lie_in_any_storage() -> None:
    parent, mine, name, gone = open_location(f"memory://{uuid.uuid4()}/cache"), Leases(), new_name(), new_name()
    mine.take(parent, name)
    with parent.filesystem.open_output_stream(parent.join(f"_{gone}.lease")) as file:
        file.write(dataclasses.replace(Lease.of_this_process(), start=-1).to_json())
    assert found(parent) == [gone]
    mine.give_back(parent, gone)
    mine.give_back(parent, name)
    assert [has_lease(parent, left) for left in (name, gone)] == [False, False]
    assert found(parent) == []


def test_leases_are_renewed_while_they_are_held(parent: Location) -> None:
    mine, names = Leases(renewed_every=0.01), [new_name(), new_name()]
    for name in names:
        mine.take(parent, name)
    try:
        first = [Path(parent.root, f"_{name}.lease").read_bytes() for name in names]
        for name, old in zip(names, first, strict=True):
            while (now := Path(parent.root, f"_{name}.lease").read_bytes()) in (old, b""):
                time.sleep(0.005)  # no deadline: the time limit of the test ends it
            before, after = Lease.from_json(old), Lease.from_json(now)
            assert before is not None
            assert after is None or after.renewed > before.renewed
    finally:
        for name in names:
            mine.give_back(parent, name)


def test_another_process_of_the_same_number_is_another_process(parent: Location) -> None:
    mine = Lease.of_this_process()
    plant(parent, mine)
    earlier = plant(parent, dataclasses.replace(mine, start=mine.start - 1))
    assert found(parent) == [earlier]


def test_a_process_of_another_host_is_gone_after_three_days_without_a_word(parent: Location) -> None:
    mine = Lease.of_this_process()
    far = dataclasses.replace(mine, place="elsewhere/boot/pid:[1]", pid=1, start=-1)
    plant(parent, dataclasses.replace(far, renewed=mine.renewed - 71 * HOUR))
    late = plant(parent, dataclasses.replace(far, renewed=mine.renewed - 73 * HOUR))
    assert found(parent) == [late]


def test_a_long_running_process_of_this_host_is_never_abandoned_though_it_did_not_renew(parent: Location) -> None:
    mine = Lease.of_this_process()
    plant(parent, dataclasses.replace(mine, renewed=mine.renewed - 10_000 * HOUR))
    assert found(parent) == []


def test_where_the_place_cannot_be_told_only_time_counts(parent: Location) -> None:
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
def test_a_lease_that_cannot_be_read_counts_as_used(parent: Location, content: bytes) -> None:
    name = plant(parent, Lease.of_this_process())
    Path(parent.root, f"_{name}.lease").write_bytes(content)
    usual = content.endswith(b" ")  # longer than a lease may be, but what is read of it is one
    assert found(parent) == ([name] if usual else [])


def test_files_that_are_no_leases_are_nobodys_business(parent: Location) -> None:
    Path(parent.root).mkdir()
    gone = dataclasses.replace(Lease.of_this_process(), start=-1).to_json()
    for name in ("_x.lease", "_..lease", "_../20260102030405.lease".replace("/", ""), new_name() + ".lease"):
        Path(parent.root, name).write_bytes(gone)
    assert found(parent) == []
    assert found(open_location(Path(parent.root, "not there"))) == []


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_holds_no_leases_of_its_parent(parent: Location) -> None:
    mine, name, of_child = Leases(), new_name(), new_name()
    mine.take(parent, name)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            mine.take(parent, of_child)
            mine.give_back(parent, of_child)
            code = 0 if has_lease(parent, name) and not mine._held else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    mine.give_back(parent, name)


@given(st.text(max_size=60), st.integers(), st.integers(), st.floats(allow_nan=False))
def test_a_lease_comes_back_from_its_file(place: str, pid: int, start: int, renewed: float) -> None:
    lease = Lease(place, pid, start, renewed)
    assert Lease.from_json(lease.to_json()) == lease


@given(st.binary(max_size=200))
def test_any_bytes_are_a_lease_or_none(data: bytes) -> None:
    assert Lease.from_json(data) is None


def test_a_directory_name_has_no_way_out_of_its_parent() -> None:
    assert is_directory_name(new_name())
    for name in ("", "..", new_name() + "/..", "../" + new_name(), new_name().replace("local", "lo/cal")):
        assert not is_directory_name(name)
