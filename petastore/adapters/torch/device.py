"""Batches on a device: the next one is copied there while the current one trains.

With CUDA, tensors are put into page-locked memory, and a stream of the loader's own copies them from there, so that the
copy runs beside the kernels of the trainer. Three rules keep memory from being used again too early:

* the trainer's stream waits for the copy before it gets the batch (an event, on the device; nobody waits on the host);
* the memory of a batch on the device is noted to be in use by the trainer's stream (`record_stream`);
* page-locked memory is held until the event of its copy has come.

Other devices have no streams; all else is the same, so that what does not depend on streams is tested without a GPU.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from petastore.adapters.passes import Passes, taken_over
from petastore.adapters.runs import Handed
from petastore.errors import RequestError
from petastore.plan.cursor import Cursor
from petastore.plan.state import dump_state

__all__ = ["BatchesOnDevice", "Carrier", "device_of"]

_ALONE = 64 * 1024
"""Bytes from which a tensor has memory of its own; smaller ones of a batch share some, and are copied in one go."""

_ALIGNMENT = 256


def device_of(asked: Any) -> torch.device | None:
    """The device that `device=` means, with its index; None where batches stay where they are.

    Raises:
        RequestError: There is no such device, or it is neither the CPU nor a CUDA device.

    Example:
        >>> device_of(None), device_of("cpu")
        (None, device(type='cpu'))
    """
    if asked is None:
        return None
    try:
        device = torch.device(asked)
    except (RuntimeError, TypeError, ValueError) as problem:
        raise RequestError(f"device={asked!r} is no device: {str(problem).splitlines()[0]}") from None
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise RequestError(
            f"device={asked!r} cannot be: batches are copied ahead to CUDA devices only; leave device out, and move "
            "tensors in the loop"
        )
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not found:
        raise RequestError(f"device={asked!r} cannot be: torch finds no CUDA device here (torch {torch.__version__})")
    if device.index is not None and device.index >= found:
        raise RequestError(f"device={asked!r} cannot be: torch finds CUDA devices 0 to {found - 1} here")
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


class BatchesOnDevice:
    """The passes of a loader whose batches are on a device.

    One batch is on its way while the trainer has another, so the reader is one batch further on than the trainer. How
    many the trainer received is known here, and from the cursors of those that were handed over where it stands:
    `state_dict` says it, and a new pass begins after it.

    Args:
        reader: The reader.
        passes: The passes over it.
        make: Makes of a reader's batch what the trainer gets, on the host.
        device: Where to.
    """

    def __init__(self, reader: Any, passes: Passes, make: Callable[[Any], Any], device: torch.device) -> None:
        self._reader = reader
        self._passes = passes
        self._make = make
        self._carrier = Carrier(device)
        self._handed = Handed(most=2)
        self._received = 0
        self._plan: Any = None  # of the pass; whoever moves a reader on purpose gives it another one

    def start(self, batch_size: int) -> Iterator[Any]:
        """The batches of a new pass; the pass begins with the first `next`.

        An error in the batch that is on its way is raised when that batch is asked for, after the one before it.

        Raises:
            RequestError: By `next`: a newer pass has taken the reader over.
        """
        self._step_back()
        batches = self._handed.noted(self._passes.start(batch_size))
        following = self._begin(batches)
        ours, plan = self._passes.newest, self._reader.plan
        self._plan, received = plan, 0
        while following is not None:
            batch, following = following, None
            if batch.problem is None:
                following = self._begin(batches)
            if self._passes.newest != ours or self._reader.plan is not plan:
                raise taken_over()
            if batch.problem is not None:
                raise batch.problem
            carried = batch.arrive()
            self._received = received = received + 1
            del batch
            yield carried
            del carried
        self._received = 0  # all that the reader gave was received

    def state_dict(self) -> dict[str, Any]:
        """Where the trainer stands: after the last batch that it received."""
        cursor = self._cursor
        state: dict[str, Any] = self._reader.state_dict() if cursor is None else dump_state(self._plan, cursor)
        return state

    def _begin(self, batches: Iterator[Any]) -> _Coming | None:
        """The next batch, on its way; None at the end."""
        try:
            batch = next(batches, None)
            if batch is None:
                return None
            return _Coming(self._carrier.begin(self._make(batch)).arrive)
        except Exception as problem:  # noqa: BLE001 (whatever it is, it belongs to that batch, and is raised there)
            return _Coming(lambda: None, problem)

    @property
    def _cursor(self) -> Cursor | None:
        """After the last batch that the trainer received; None where the reader stands there, or somebody moved it."""
        if not self._received or self._reader.plan is not self._plan or self._reader.cursor != self._handed.newest:
            return None
        return self._handed.cursor_after(self._received)

    def _step_back(self) -> None:
        """Has a pass that was left early end where the trainer left it, so that the next one is the one after it."""
        cursor = self._cursor
        if cursor is not None and cursor != self._handed.newest:
            self._reader.load_state_dict(self.state_dict())
            self._reader.reset()
        self._received = 0


@dataclasses.dataclass(frozen=True, slots=True)
class _Coming:
    """A batch on its way."""

    arrive: Callable[[], Any]
    problem: Exception | None = None
    """Why there is none."""


class Carrier:
    """Copies batches to a device. For one thread at a time.

    Tensors are copied wherever dicts and tuples lead to them; lists, text and all else stay on the host. Small tensors
    of a batch share memory there, so that many columns cost one copy; those of 64 KiB or more have their own, so that
    keeping labels does not keep images.

    Example:
        >>> carrier = Carrier(torch.device("cpu"))
        >>> carrier.begin({"id": torch.arange(3), "name": ["a", "b", "c"]}).arrive()
        {'id': tensor([0, 1, 2]), 'name': ['a', 'b', 'c']}
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._in_use: collections.deque[tuple[Any, list[torch.Tensor]]] = collections.deque()

    def begin(self, batch: Any) -> Carried:
        """Starts to copy a batch; its tensors are not looked at again after the return."""
        tensors: list[torch.Tensor] = []

        def taken(tensor: torch.Tensor) -> torch.Tensor:
            tensors.append(tensor)
            return _TAKEN

        without_tensors = _replaced(batch, taken)
        staged = _staged(tensors, pinned=self._stream is not None)
        if self._stream is None:
            return Carried(without_tensors, [part.moved(self._device) for part in staged], self._device, None)
        with torch.cuda.stream(self._stream):
            parts = [part.moved(self._device) for part in staged]
            event = self._stream.record_event()
        while self._in_use and self._in_use[0][0].query():
            self._in_use.popleft()
        self._in_use.append((event, [part.memory for part in staged]))
        return Carried(without_tensors, parts, self._device, event)


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Carried:
    """A batch whose copy has begun."""

    batch: Any
    parts: list[_Part]
    device: torch.device
    event: Any
    """Comes when the copies are done; None where there are no streams."""

    def arrive(self) -> Any:
        """The batch on the device, for use on the stream that is current in the calling thread."""
        if self.event is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(self.event)
            for part in self.parts:
                if part.is_plain:
                    part.memory.record_stream(stream)
        found = dict(found for part in self.parts for found in part.tensors(self.device))
        places = iter(range(len(found)))
        return _replaced(self.batch, lambda _: found[next(places)])


_TAKEN = torch.empty(0)
"""Stands where a tensor was."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """Memory that is copied in one go, and which tensors lie in it."""

    memory: torch.Tensor
    """A tensor, or the bytes of several."""
    places: tuple[tuple[int, int, torch.dtype, torch.Size], ...] | int
    """Of each tensor in the bytes: its place in the batch, first byte, dtype and shape; or the one tensor's place."""
    is_plain: bool = True
    """Whether it is copied ahead; what has no plain memory, such as nested tensors, is copied when it arrives."""

    def moved(self, device: torch.device) -> _Part:
        if not self.is_plain:
            return self
        return _Part(self.memory.to(device, non_blocking=True), self.places)

    def tensors(self, device: torch.device) -> Iterator[tuple[int, torch.Tensor]]:
        if isinstance(self.places, int):
            yield self.places, self.memory if self.is_plain else self.memory.to(device)
            return
        for place, first, dtype, shape in self.places:
            stop = first + shape.numel() * dtype.itemsize
            yield place, self.memory[first:stop].view(dtype).view(shape)


def _staged(tensors: list[torch.Tensor], *, pinned: bool) -> list[_Part]:
    """The tensors in memory that may be copied while the host goes on; what has no plain memory stays as it is."""
    parts: list[_Part] = []
    together: list[tuple[int, int, torch.dtype, torch.Size]] = []
    size = 0
    for place, tensor in enumerate(tensors):
        if not _is_plain(tensor):
            parts.append(_Part(tensor, place, is_plain=False))
        elif tensor.nbytes >= _ALONE:
            parts.append(_Part(torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned).copy_(tensor), place))
        else:
            together.append((place, size, tensor.dtype, tensor.shape))
            size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    if together:
        shared = _Part(torch.empty(size, dtype=torch.uint8, pin_memory=pinned), tuple(together))
        for place, memory in shared.tensors(shared.memory.device):
            memory.copy_(tensors[place])
        parts.append(shared)
    return parts


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
    )


def _replaced(batch: Any, replace: Callable[[torch.Tensor], Any]) -> Any:
    """The batch with other tensors, in dicts and tuples at any depth; always in the same order."""
    if isinstance(batch, torch.Tensor):
        return replace(batch)
    if isinstance(batch, Mapping):
        return {name: _replaced(value, replace) for name, value in batch.items()}
    if isinstance(batch, tuple):
        values = [_replaced(value, replace) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else tuple(values)
    return batch
