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

from petastore.errors import InvalidArgumentError

__all__ = ["Carrier", "device_of"]

_ALONE = 64 * 1024
"""Bytes from which a tensor has memory of its own; smaller ones of a batch share some, and are copied in one go."""

_ALIGNMENT = 256


def device_of(asked: Any) -> torch.device | None:
    """The device that `device=` means, with its index; None where batches stay where they are.

    Raises:
        InvalidArgumentError: There is no such device, or it is neither the CPU nor a CUDA device.

    Example:
        >>> device_of(None), device_of("cpu")
        (None, device(type='cpu'))
    """
    if asked is None:
        return None
    try:
        device = torch.device(asked)
    except (RuntimeError, TypeError, ValueError) as problem:
        raise InvalidArgumentError(f"device={asked!r} is no device: {str(problem).splitlines()[0]}") from None
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise InvalidArgumentError(
            f"device={asked!r} cannot be: batches are copied ahead to CUDA devices only; leave device out, and move "
            "tensors in the loop"
        )
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not found:
        raise InvalidArgumentError(
            f"device={asked!r} cannot be: torch finds no CUDA device here (torch {torch.__version__})"
        )
    if device.index is not None and device.index >= found:
        raise InvalidArgumentError(f"device={asked!r} cannot be: torch finds CUDA devices 0 to {found - 1} here")
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


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
