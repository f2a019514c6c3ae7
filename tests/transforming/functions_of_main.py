"""A program whose functions and classes are of its main module, and what becomes of them in another interpreter.

It prints, as JSON, what each of them gives here and there. Started as a script, from standard input, or by `exec`.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import json
import logging
import math
import pickle
import re
import subprocess
import sys
import tempfile
import types
import typing
import xml.dom.minidom
from pathlib import Path
from typing import Any

import numpy as np

from petastore.transforming.by_value import dumps

log = logging.getLogger(__name__)
table = np.arange(10_000.0)
count = 0
Item = typing.TypeVar("Item")
Number = typing.NewType("Number", int)


def bump(_: int) -> int:
    global count
    count += 1
    return count


def counted(_: int) -> int:
    return count


def factorial(number: int, *, one: int = 1) -> int:
    return one if number == 0 else number * factorial(number - 1)


@functools.lru_cache(maxsize=50)
def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


def twice(func: Any) -> Any:
    @functools.wraps(func)
    def wrapped(number: int) -> Any:
        return func(func(number))

    return wrapped


@twice
def decorated(number: int) -> int:
    return number * 3


def closures() -> tuple[Any, Any, Any]:
    state, large = 0, table * 2

    def step(number: int) -> int:
        nonlocal state
        state += number
        return state

    def look(number: int) -> tuple[int, float]:
        return state, float(large[number])

    def inner(number: int) -> Any:
        return 0 if number == 0 else inner(number - 1)

    return step, look, inner


step, look, inner = closures()


class Base(abc.ABC):
    known: typing.ClassVar[dict[str, type]] = {}

    def __init_subclass__(cls) -> None:
        Base.known[cls.__name__] = cls

    @abc.abstractmethod
    def __call__(self, number: int) -> Any: ...


class Strict:
    def __init_subclass__(cls, *, unit: str) -> None:
        cls.unit = cls.factor * unit

    factor: int
    unit: str


class Meters(Strict, unit="m"):
    factor = 2


class Slotted(Base):
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def __call__(self, number: int) -> Any:
        return self.number + number, isinstance(self, Base), self.known["Slotted"] is Slotted, self.double, self.named()

    @property
    def double(self) -> int:
        return self.number * 2

    @classmethod
    def named(cls) -> str:
        return cls.__name__ + cls.static()

    @staticmethod
    def static() -> str:
        return "!"


class Generic(typing.Generic[Item]):
    @functools.cached_property  # noqa: TID251 - as a user may write it
    def kept(self) -> list[int]:
        return [1]

    def method(self, number: int) -> Any:
        return self.kept is self.kept, number, Generic[int]().kept


class Color(enum.Enum):
    RED = (1, 2)
    BLUE = (3, 4)

    def __init__(self, one: int, other: int) -> None:
        self.sum = one + other

    def says(self) -> Any:
        return self.name, self.sum, self is Color.BLUE


class Flags(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Data:
    one: int = 1
    many: list[int] = dataclasses.field(default_factory=list, metadata={"unit": "s"})


Point = collections.namedtuple("Point", "x y", defaults=[5])  # noqa: PYI024 - as a user may write it


class Typed(typing.NamedTuple):
    x: int
    y: str = "why"


def of_data(number: int) -> Any:
    made = Data(number)
    try:
        made.one = 7  # type: ignore[misc]
    except dataclasses.FrozenInstanceError as problem:
        return repr(problem), dataclasses.replace(made, many=[1]), dataclasses.fields(made)[1].metadata["unit"], Data()
    return None


def of_main() -> dict[str, Any]:
    unimportable = types.ModuleType("unimportable")
    exec("half = 0.5\ndef minus(number):\n    return -number * half", unimportable.__dict__)  # noqa: S102
    sys.modules["unimportable"] = unimportable
    return {
        "a lambda": lambda number: number + 1,
        "a function that calls itself": factorial,
        "a function with a cache": fibonacci,
        "a decorated function": decorated,
        "a bound method": Generic[int]().method,
        "an instance with slots and bases": Slotted(4),
        "a class whose base wants to be told of it": lambda _: (
            Meters.unit,
            type("More", (Strict,), {"factor": 3}, unit="n"),
        ),
        "a partial": functools.partial(lambda one, number: one - number, 3),
        "a ufunc of Python": np.vectorize(lambda number: number * 2),
        "global variables that functions share": lambda number: (bump(number), counted(number)),
        "an array of the module": lambda number: float(table[number]),
        "variables that closures share": lambda number: (step(number), look(number), inner(number)),
        "modules of packages": lambda number: xml.dom.minidom.Document().createElement(f"a{number}").tagName,
        "modules and what is in them": lambda number: (math.sqrt(number), re.findall("a", "aa"), np.random.__name__),
        "a logger": lambda number: (number, log.name),
        "enumerations": lambda _: (Color.BLUE.says(), list(Color), Flags.A | Flags.B, Flags["A"].value),
        "dataclasses": of_data,
        "named tuples": lambda number: (Point(number)._asdict(), Typed(number)._replace(y="so"), Typed(1)[1]),
        "new types": lambda number: Number(number),
        "a class in a function": lambda number: type("Made", (Data,), {"__slots__": ()})(number).one,
        "a function of a module that is no file": unimportable.minus,
        "imports in the function": lambda number: __import__("json").dumps(number),
    }


_THERE = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    head, buffers = pickle.load(file)
functions = pickle.loads(head, buffers=buffers)
print({name: repr(func(3)) for name, func in functions.items()})
"""


def main() -> None:
    functions = of_main()
    buffers: list[pickle.PickleBuffer] = []
    head = dumps(functions, buffers)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "functions"
        file.write_bytes(pickle.dumps((head, [bytearray(buffer.raw()) for buffer in buffers])))
        told = subprocess.run([sys.executable, "-c", _THERE, file], check=True, stdout=subprocess.PIPE, text=True)
    there = eval(told.stdout)  # noqa: S307 - a dict of texts
    here = {name: repr(func(3)) for name, func in functions.items()}
    print(json.dumps({name: [here[name], there[name]] for name in functions}))


if __name__ == "__main__":
    main()
