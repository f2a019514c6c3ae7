"""Worker side of `petastore.transforming.processes`: runs in a worker process.

The worker imports NumPy, the modules that the user's functions need, and the few modules of petastore that a transform
needs. It does not import pyarrow or a framework. It never imports the user's main module, because functions of this
module are sent by value. Messages:

```text
parent → worker   Setup                                                           once
worker → parent   None, or a Failure with the reason why the worker cannot start  once
parent → worker   Call                                                            any number of times …
worker → parent   Made, or a Failure with the error of the function               … each with an answer
```

The worker ends when its connection is closed, and at the latest when its parent ends, also during a call.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from petastore.decoding.decode import Decoded
from petastore.errors import TransformError
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import TransformSpec, transform_columns
from petastore.transforming.transport import Channel

__all__ = ["Call", "Failure", "Function", "Made", "Setup", "main", "packed", "unpacked"]


class Function(NamedTuple):
    """A transform that is sent to workers."""

    spec: TransformSpec
    """The transform, without `edit_fields`."""

    schema: Unischema
    """The schema after the transform."""

    batched: bool
    """Whether the function is called once per batch; otherwise once for all rows of a message, or once per row."""

    zones: Mapping[str, str] = MappingProxyType({})
    """Time zone of timestamp columns in DataFrames, by column name."""


Setup: TypeAlias = tuple[bytes, Sequence[Any]]
"""The pickle of the functions, and the memory of the arrays that they refer to."""


def packed(functions: Sequence[Function]) -> Setup:
    """Return the first message to workers: all functions in one pickle, so that shared objects stay shared.

    Raises:
        Exception: A value cannot be pickled.
    """
    import cloudpickle  # imported here, because the import takes milliseconds and few programs need it

    buffers: list[pickle.PickleBuffer] = []
    return cloudpickle.dumps(list(functions), protocol=5, buffer_callback=buffers.append), buffers


def unpacked(setup: Setup) -> list[Function]:
    """Return the functions of the first message.

    Raises:
        Exception: A function cannot be unpickled, for example because importing its module fails.
    """
    functions: list[Function] = pickle.loads(setup[0], buffers=setup[1])  # noqa: S301 - sent by our own parent
    return functions


class Call(NamedTuple):
    """Message to a worker: rows to transform."""

    function: int
    """Index of the function in `Setup`."""

    columns: Mapping[str, Decoded]
    offsets: NDArray[np.int64]
    """Rows at which batches begin, and the end, shape (batches + 1,)."""

    keys: NDArray[np.uint64] | None = None
    """Random keys of the rows, shape (rows, 2); None if the function takes no random generators."""


class Made(NamedTuple):
    """Answer of a worker: transformed rows."""

    columns: Mapping[str, Decoded]
    """Columns of fixed dtype and shape, whose arrays are in shared memory."""

    objects: Any
    """Pickle of the object columns (text, arrays of different shapes); None without such columns. Unpickled arrays
    have their own memory, so the user may keep them."""

    seconds: float
    """Duration of the call in seconds."""


class Failure(NamedTuple):
    """Answer of a worker: an exception."""

    problem: bytes | None
    """Pickled exception; None if it cannot be pickled."""

    cause: bytes | None
    """Pickled `__cause__` of the exception; None without a cause, or if the cause cannot be pickled."""

    text: str
    """Type and message of the exception."""

    trace: str
    """Traceback as text."""

    @classmethod
    def of(cls, problem: BaseException) -> Self:
        """Return the exception in a picklable form."""
        cause = problem.__cause__
        return cls(
            _pickled(problem),
            None if cause is None else _pickled(cause),
            f"{type(problem).__name__}: {problem}",
            "".join(traceback.format_exception(problem)),
        )

    def error(self, worker: str) -> BaseException:
        """Rebuild the exception in the parent, with the worker's traceback as a note; return it.

        Args:
            worker: Name of the worker, for the note.
        """
        problem = _unpickled(self.problem) or TransformError(self.text)
        problem.__cause__ = _unpickled(self.cause)
        problem.add_note(f"In {worker}:\n{self.trace}")
        return problem


def _dumps(thing: object) -> bytes:
    """Return the pickle of an object; if pickle fails, such as for classes that were sent by value, use cloudpickle."""
    try:
        return pickle.dumps(thing, protocol=5)
    except Exception:  # noqa: BLE001 - pickling may raise anything; cloudpickle raises it again
        import cloudpickle

        pickled: bytes = cloudpickle.dumps(thing, protocol=5)
        return pickled


def _pickled(problem: BaseException) -> bytes | None:
    """Return a pickled exception; None if it cannot be pickled or unpickled."""
    try:
        pickled = _dumps(problem)
        return None if _unpickled(pickled) is None else pickled
    except Exception:  # noqa: BLE001 - an object of the user may raise any exception
        return None


def _unpickled(problem: bytes | None) -> BaseException | None:
    try:
        made = None if problem is None else pickle.loads(problem)  # noqa: S301 - sent by our own worker
    except Exception:  # noqa: BLE001 - an object of the user may raise any exception
        return None
    return made if isinstance(made, BaseException) else None


def main(connection: int, parent: int) -> None:
    """Run the worker process, until the connection is closed or the parent ends.

    Args:
        connection: Descriptor of the socket to the parent.
        parent: The parent's process id.
    """
    faulthandler.enable()
    # Ctrl-C in a terminal goes to all processes of the program; the parent handles it for its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the parent had blocked the signal
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
        functions = unpacked(setup)
    except BaseException as problem:  # noqa: BLE001 - an imported module may also call sys.exit
        channel.send(slot, Failure.of(problem))
        return
    del setup
    channel.send(slot, None)
    while True:
        slot, call = channel.receive()
        answer = _answer(call, functions[call.function])
        # The call is dropped before the result is sent, because `send` reports whether it is still referenced.
        del call
        try:
            channel.send(slot, answer)
        except EOFError:
            raise
        except Exception as problem:  # noqa: BLE001 - the result of the function may not be picklable
            channel.send(slot, Failure.of(problem))
        del answer


def _answer(call: Call, function: Function) -> Made | Failure:
    began = time.perf_counter()
    spec, schema, batched, zones = function
    try:
        made = transform_columns(
            dict(call.columns), call.offsets, schema, spec, batched=batched, zones=zones, keys=call.keys
        )
        objects = {name: column for name, column in made.items() if column.values.dtype.hasobject}
        return Made(
            {name: column for name, column in made.items() if name not in objects},
            pickle.PickleBuffer(_dumps(objects)) if objects else None,
            time.perf_counter() - began,
        )
    except Exception as problem:  # noqa: BLE001 - raised in the parent
        return Failure.of(problem)
