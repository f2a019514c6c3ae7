"""The other side of `petastore.transforming.processes`: what runs in a worker process.

It imports NumPy and what the user's functions need, and of petastore the little that a transform needs: no pyarrow, no
framework, and never the program's main module, whose functions arrive by value. Its messages are

```text
parent → worker   Setup                                                          once
worker → parent   None, or a Failure: why it cannot begin                        once
parent → worker   Call                                                           any number of times …
worker → parent   Made, or a Failure: what the function raised                   … each with an answer
```

The worker ends when its connection does, and at the latest when its parent does, also in the middle of a call.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import os
import pickle
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decoded import Decoded
from petastore.errors import TransformError
from petastore.schema.unischema import Unischema
from petastore.transforming.by_value import dumps
from petastore.transforming.transform import Takes, TransformSpec, transform_columns
from petastore.transforming.transport import Channel

__all__ = ["Call", "Failure", "Function", "Made", "Setup", "main"]


@dataclasses.dataclass(frozen=True, slots=True)
class Function:
    """A transform, as it travels."""

    func: Callable[[Any], Any]
    """The user's function."""

    schema: Unischema
    """The schema after it."""

    batched: bool
    """Whether it is called once a batch, or else with as many rows as are sent."""

    takes: Takes | None = None
    """What it takes; see `TransformSpec`."""

    zones: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Time zones that instants have in DataFrames."""

    rng: str | None = None
    """The keyword argument by which it is given random generators; see `TransformSpec`."""

    removed_fields: tuple[str, ...] = ()
    """Columns that may be in its results and are left out."""

    selected_fields: tuple[str, ...] | None = None
    """The columns that stay of whatever is in its results; None where `removed_fields` says that."""

    def spec(self) -> TransformSpec:
        """The transform that calls it."""
        return TransformSpec(
            self.func,
            removed_fields=self.removed_fields,
            selected_fields=self.selected_fields,
            takes=self.takes,
            rng=self.rng,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Setup:
    """All that a worker needs to know before its first call."""

    pickled: bytes
    """The functions, in one pickle: what they share here they share there."""

    buffers: Sequence[Any]
    """The memory of the arrays that they refer to."""

    @classmethod
    def of(cls, functions: Sequence[Function]) -> Self:
        """Functions, ready to travel; `petastore.transforming.by_value` tells how, and what is raised where not."""
        buffers: list[pickle.PickleBuffer] = []
        return cls(dumps(list(functions), buffers), buffers)

    def functions(self) -> list[Function]:
        """The functions, once they have arrived; raises whatever the import of a module raises that they need."""
        made: list[Function] = pickle.loads(self.pickled, buffers=self.buffers)  # noqa: S301 - of our own parent
        return made


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Some rows to transform."""

    function: int
    """Number of the function."""

    columns: Mapping[str, Decoded]
    offsets: NDArray[np.int64]
    """Where batches begin, shape (batches + 1,)."""

    keys: NDArray[np.uint64] | None = None
    """The random keys of the rows, shape (rows, 2), where the function is given random generators."""


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """Rows that were transformed."""

    columns: Mapping[str, Decoded]
    """Columns of one dtype and shape."""

    objects: Any
    """The pickle of the others: it is undone into memory of its own, and the arrays in it are nobody else's."""

    seconds: float
    """What the call took."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Something that was raised."""

    problem: bytes | None
    """What was raised, pickled; None where it cannot be."""

    cause: bytes | None
    """Its cause, pickled; None where there is none, or it cannot be."""

    text: str
    """What was raised, in words."""

    trace: str
    """Its traceback, printed."""

    @classmethod
    def of(cls, problem: BaseException) -> Self:
        """Whatever it is, in a form that arrives."""
        cause = problem.__cause__
        return cls(
            _pickled(problem),
            None if cause is None else _pickled(cause),
            f"{type(problem).__name__}: {problem}",
            "".join(traceback.format_exception(problem)),
        )

    def error(self, worker: str) -> BaseException:
        """What was raised, once more, with the worker's traceback as a note."""
        problem = _unpickled(self.problem) or TransformError(self.text)
        problem.__cause__ = _unpickled(self.cause)
        problem.add_note(f"In {worker}:\n{self.trace}")
        return problem


def _pickled(problem: BaseException) -> bytes | None:
    """None for exceptions that cannot be made again of their arguments."""
    try:
        pickled = pickle.dumps(problem)
        return None if _unpickled(pickled) is None else pickled
    except Exception:  # noqa: BLE001 - an exception of the user's may do anything here
        return None


def _unpickled(problem: bytes | None) -> BaseException | None:
    try:
        made = None if problem is None else pickle.loads(problem)  # noqa: S301 - of our own worker
    except Exception:  # noqa: BLE001 - an exception of the user's may do anything here
        return None
    return made if isinstance(made, BaseException) else None


def main(connection: int, parent: int) -> None:
    """The program of a worker.

    Args:
        connection: Descriptor of the socket to the parent.
        parent: The parent's process id.
    """
    faulthandler.enable()
    # Ctrl-C in a terminal goes to all processes of the program; the parent decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the parent blocked it, for the time until here
    threading.Thread(target=_end_with, args=(parent,), daemon=True, name="end with the parent").start()
    channel = Channel(socket.socket(fileno=connection))
    try:
        _serve(channel)
    except EOFError:
        channel.close()


def _end_with(parent: int) -> None:
    try:
        descriptor = os.pidfd_open(parent)  # type: ignore[attr-defined, unused-ignore]
        if os.getppid() == parent:
            watched = select.poll()
            watched.register(descriptor, select.POLLIN)
            watched.poll()
    except (AttributeError, OSError):  # not Linux, or not allowed here
        while os.getppid() == parent:
            time.sleep(1)
    os._exit(1)


def _serve(channel: Channel) -> None:
    slot, setup = channel.receive()
    try:
        transforms = [(one.spec(), one) for one in setup.functions()]
    except BaseException as problem:  # noqa: BLE001 - a module that is imported may also call sys.exit
        channel.send(slot, Failure.of(problem))
        return
    del setup
    channel.send(slot, None)
    while True:
        slot, call = channel.receive()
        answer = _answer(call, *transforms[call.function])
        # What was received is let go of before the answer, which says whether somebody still holds it.
        del call
        try:
            channel.send(slot, answer)
        except EOFError:
            raise
        except Exception as problem:  # noqa: BLE001 - what the function made cannot be pickled
            channel.send(slot, Failure.of(problem))
        del answer


def _answer(call: Call, spec: TransformSpec, sent: Function) -> Made | Failure:
    began = time.perf_counter()
    try:
        made = transform_columns(
            dict(call.columns),
            call.offsets,
            sent.schema,
            spec,
            batched=sent.batched,
            zones=sent.zones,
            keys=call.keys,
        )
        objects = {name: column for name, column in made.items() if column.values.dtype.hasobject}
        return Made(
            {name: column for name, column in made.items() if name not in objects},
            pickle.PickleBuffer(pickle.dumps(objects, protocol=5)) if objects else None,
            time.perf_counter() - began,
        )
    except Exception as problem:  # noqa: BLE001 - it belongs to whoever asks for the rows
        return Failure.of(problem)
