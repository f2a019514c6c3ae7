"""Tests of `once`, a cached property: computed once without a lock, with one value for all threads."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading

from petastore.lazy import once
from tests.pace import patience

_FORK_WHILE_A_THREAD_WORKS_ONE_OUT = """
import os, threading
from petastore.lazy import once

class Slow:
    def __init__(self, began, go_on):
        self.began, self.go_on = began, go_on

    @once
    def value(self):
        self.began.set()
        self.go_on.wait()
        return 7

began, go_on, free = threading.Event(), threading.Event(), threading.Event()
free.set()
thread = threading.Thread(target=lambda: Slow(began, go_on).value)
thread.start()
began.wait()
child = os.fork()
if child == 0:
    os._exit(Slow(threading.Event(), free).value)
go_on.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Squared:
    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0

    @once
    def square(self) -> int:
        """The number times itself."""
        self.calls += 1
        return self.number**2


class Shared:
    def __init__(self, threads: int) -> None:
        self.meet = threading.Barrier(threads)

    @once
    def value(self) -> object:
        self.meet.wait()  # all threads compute the value at the same time
        return object()


def test_cached_attribute_is_computed_once() -> None:
    squared = Squared(3)
    assert squared.calls == 0
    assert (squared.square, squared.square, squared.calls) == (9, 9, 1)


def test_cached_attribute_survives_copy_and_pickle() -> None:
    squared = Squared(3)
    assert squared.square == 9
    for again in (copy.copy(squared), pickle.loads(pickle.dumps(squared))):  # noqa: S301 - our own bytes
        assert (again.square, again.calls) == (9, 1)


def test_cached_attribute_keeps_its_docstring() -> None:
    assert Squared.square.__doc__ == "The number times itself."


def test_cached_attribute_is_thread_safe() -> None:
    shared, found = Shared(4), []
    threads = [threading.Thread(target=lambda: found.append(shared.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


def test_cached_attribute_is_stored_in_the_instance_dict() -> None:
    squared = Squared(3)
    assert squared.square == 9
    assert squared.__dict__["square"] == 9  # found there before the descriptor is used, because `once` has no `__set__`
    assert not hasattr(once, "__set__")


class Cubed(Squared):
    @once
    def square(self) -> int:
        """The square of the base class, times the number."""
        return self.number * super().square


def test_cached_attribute_works_with_super() -> None:
    cubed = Cubed(3)
    assert (cubed.square, cubed.square, cubed.calls) == (27, 27, 1)


def test_cached_attribute_is_computed_again_in_a_forked_child() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK_WHILE_A_THREAD_WORKS_ONE_OUT], capture_output=True, text=True, timeout=patience(60)
    )
    assert (done.stdout.strip(), done.returncode) == ("7", 0), done.stderr
