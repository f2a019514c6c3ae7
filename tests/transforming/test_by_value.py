"""Functions that cannot be imported do elsewhere what they do here, and take along no more than they name."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore.transforming.by_value import dumps, what_cannot_travel
from tests.transforming.functions_of_main import of_main

PROGRAM = Path(__file__).parent / "functions_of_main.py"
WAYS: dict[str, list[str]] = {
    "a script": [str(PROGRAM)],
    "a module": ["-m", "tests.transforming.functions_of_main"],
    "standard input": ["-"],
    "exec, as notebooks do": ["-c", f"exec(compile(open({str(PROGRAM)!r}).read(), 'In [1]', 'exec'))"],
    "exec with variables of its own": [
        "-c", f"exec(compile(open({str(PROGRAM)!r}).read(), 'cell', 'exec'), {{'__name__': '__main__'}})",
    ],
}  # fmt: skip
lock = threading.Lock()
large = np.arange(1_000_000)


QUICK = ("a script", "exec, as notebooks do")
"""Ways in `make test`; each is a program of its own."""


@pytest.fixture(
    scope="module",
    params=[way if way in QUICK else pytest.param(way, marks=pytest.mark.slow) for way in WAYS],
)
def told(request: pytest.FixtureRequest, repository: Path) -> dict[str, list[str]]:
    with PROGRAM.open() as program:
        command = [sys.executable, *WAYS[request.param]]
        ran = subprocess.run(command, stdin=program, cwd=repository, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    said: dict[str, list[str]] = json.loads(ran.stdout)
    return said


def test_functions_and_classes_of_main_do_in_a_worker_what_they_do_here(told: dict[str, list[str]]) -> None:
    assert set(told) == set(of_main())
    assert {what: there for what, (_, there) in told.items()} == {what: here for what, (here, _) in told.items()}


def arrive(thing: Any) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    return pickle.loads(dumps(thing, buffers), buffers=buffers)  # noqa: S301 - made in this line


def test_what_can_be_imported_travels_as_its_name() -> None:
    for thing in (json.dumps, pickle.Pickler, Path, np.float32, len, type(None)):
        assert dumps(thing, []) == pickle.dumps(thing, protocol=5)
        assert arrive(thing) is thing


def test_arrays_are_not_copied_into_the_pickle_and_share_their_memory() -> None:
    buffers: list[pickle.PickleBuffer] = []
    assert len(dumps(lambda row: large[row], buffers)) < 1000
    assert [buffer.raw().nbytes for buffer in buffers] == [large.nbytes]
    assert np.shares_memory(np.frombuffer(buffers[0].raw(), np.int64), large)


def test_only_what_code_names_as_a_global_variable_travels() -> None:
    """`lock` is an attribute here, and a variable of this module that no pickle takes."""

    class Door:
        lock = 3

    made = arrive(lambda door: door.lock)
    assert made(Door()) == 3
    assert set(made.__globals__) == {"__name__", "__package__", "__builtins__"}


@pytest.mark.parametrize("head", ["", "from __future__ import annotations\n"])
def test_a_class_has_its_annotations_there(head: str) -> None:
    """Python 3.14 computes them when they are asked for, in a function that refers to the class."""
    text = "class Thing:\n    number: int\n    other: 'Thing'\n\ndef func():\n    return Thing.__annotations__\n"
    main: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(head + text, "program", "exec", dont_inherit=True), main)  # noqa: S102 - our own text
    assert arrive(main["func"])() == {"number": "int" if head else int, "other": "'Thing'" if head else "Thing"}


def test_annotations_do_not_travel() -> None:
    def annotated(row: int) -> int:
        return row

    annotated.__annotations__["row"] = lock
    assert arrive(annotated)(3) == 3


def nested() -> bool:
    return lock.locked()


class Holds:
    def __init__(self) -> None:
        self.lock = lock

    def __call__(self, row: int) -> int:
        return row


def in_closure() -> Callable[[], bool]:
    held = threading.Lock()
    return lambda: held.locked()


@pytest.mark.parametrize(
    ("thing", "way"),
    [
        (lambda: lock, "global variable 'lock' ("),
        (lambda: lambda: lock, "global variable 'lock' ("),
        (in_closure(), "variable 'held' of the function around it ("),
        (Holds(), "attribute 'lock' ("),
        (Holds().__call__, "attribute 'lock' ("),
        (lock, "the function itself ("),
    ],
)
def test_what_cannot_travel_is_named(thing: Any, way: str) -> None:
    with pytest.raises(TypeError, match=r"cannot pickle '_thread.lock' object"):
        dumps(thing, [])
    assert what_cannot_travel(thing) == f"{way}cannot pickle '_thread.lock' object)"


def test_the_way_to_it_is_told_through_functions_that_call_each_other() -> None:
    def one(number: int) -> object:
        return other(number)

    def other(number: int) -> object:
        return one(number) if number else lock

    assert what_cannot_travel(one) == (
        "variable 'other' of the function around it, global variable 'lock' (cannot pickle '_thread.lock' object)"
    )


def test_a_module_that_nobody_can_import_is_refused() -> None:
    main = sys.modules["__main__"]
    with pytest.raises(pickle.PicklingError, match="workers cannot import the module '__main__'"):
        dumps(lambda: main, [])
