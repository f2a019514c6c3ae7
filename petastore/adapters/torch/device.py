"""Copies batches to a device, at the same time as training.

The next batch is copied to the GPU while the model trains on the current batch. With CUDA, tensors are copied to
page-locked memory, and from there to the device on a separate stream, so that the copy and the training kernels run at
the same time. Three rules prevent memory from being reused too early:

* the trainer's stream waits for the copy before it uses the batch (by an event on the device, without blocking the
  host);
* the device memory of a batch is recorded as used by the trainer's stream (`record_stream`);
* page-locked memory is kept until its copy has completed.

Other devices have no streams, but use the same code otherwise, so tests without a GPU cover this code.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from petastore.errors import InvalidArgumentError

__all__ = ["Carrier", "device_of"]

_ALONE = 64 * 1024
"""Tensors of at least this many bytes have their own device memory; smaller tensors of a batch are copied together."""

_ALIGNMENT = 256


def device_of(asked: Any) -> torch.device | None:
    """Return the device for `device=`, with its index; None if batches are not moved.

    Raises:
        InvalidArgumentError: The device is missing, or is neither the CPU nor a CUDA device.

    Example:
        >>> device_of(None), device_of("cpu")
        (None, device(type='cpu'))
    """
    if asked is None:
        return None
    try:
        device = torch.device(asked)
    except (RuntimeError, TypeError, ValueError) as problem:
        raise InvalidArgumentError(
            f"device must be a torch device, got {asked!r} ({str(problem).splitlines()[0]})"
        ) from None
    if device.type == "cpu":
        return device
    if device.type != "cuda":
        raise InvalidArgumentError(
            f"device must be a CUDA device or 'cpu', got {asked!r}: a loader copies batches in advance only to these. "
            "Leave device out, and move tensors to the device in the loop"
        )
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not found:
        raise InvalidArgumentError(
            f"device must be available, got {asked!r}, but torch {torch.__version__} finds no CUDA device here. Pass "
            "device='cpu', or install a build of torch with CUDA"
        )
    if device.index is not None and device.index >= found:
        raise InvalidArgumentError(f"device must be one of the CUDA devices 0 to {found - 1}, got {asked!r}")
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)


class Carrier:
    """Copies batches to a device. For one thread at a time.

    Tensors in nested dicts and tuples are copied; lists, text and other objects stay on the host. Small tensors of a
    batch share memory on the device, so that many columns need only one copy. Tensors of 64 KiB or more have their own
    memory, so that keeping labels does not keep images in memory.

    Example:
        >>> carrier = Carrier(torch.device("cpu"))
        >>> carrier.begin({"id": torch.arange(3), "name": ["a", "b", "c"]})()
        {'id': tensor([0, 1, 2]), 'name': ['a', 'b', 'c']}
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._in_use: collections.deque[tuple[Any, list[torch.Tensor]]] = collections.deque()

    def begin(self, batch: Any) -> Callable[[], Any]:
        """Start to copy a batch to the device.

        The caller may overwrite dense CPU tensors of the batch after the return.

        Returns:
            A function that returns the batch on the device, for use on the calling thread's current stream.
        """
        tensors: list[torch.Tensor] = []

        def taken(tensor: torch.Tensor) -> torch.Tensor:
            tensors.append(tensor)
            return _TAKEN

        without_tensors = _replaced(batch, taken)
        staged = _staged(tensors, pinned=self._stream is not None)
        if self._stream is None:
            return functools.partial(self._arrived, without_tensors, [part.moved(self._device) for part in staged])
        with torch.cuda.stream(self._stream):
            parts = [part.moved(self._device) for part in staged]
            event = self._stream.record_event()
        while self._in_use and self._in_use[0][0].query():
            self._in_use.popleft()
        self._in_use.append((event, [part.memory for part in staged]))
        return functools.partial(self._arrived, without_tensors, parts, event)

    def _arrived(self, batch: Any, parts: list[_Part], event: Any = None) -> Any:
        """Return the batch with its tensors on the device.

        Args:
            batch: The batch, with placeholders instead of its tensors.
            parts: Memory that was copied to the device, with all tensors of the batch.
            event: CUDA event that was recorded after the copies; the current stream waits for it. None without streams.
        """
        if event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(event)
            for part in parts:
                if part.is_plain:
                    part.memory.record_stream(stream)
        found = dict(found for part in parts for found in part.tensors(self._device))
        places = iter(range(len(found)))
        return _replaced(batch, lambda _: found[next(places)])


_TAKEN = torch.empty(0)
"""Placeholder for the tensors of a batch that is being copied."""


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Part:
    """Memory that is copied to the device in one transfer, and the tensors in it."""

    memory: torch.Tensor
    """One tensor, or a uint8 tensor with the bytes of several tensors."""
    places: tuple[tuple[int, int, torch.dtype, torch.Size], ...] | int
    """Index in the batch, first byte, dtype and shape of each tensor in `memory`; an int if `memory` is one tensor."""
    is_plain: bool = True
    """Whether the memory is copied in advance. Tensors that are not dense CPU tensors, such as nested tensors, are
    copied when the batch is used."""

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
    """Copy dense CPU tensors to new memory, from which they are copied to the device.

    Small tensors share one block of memory.

    Args:
        tensors: Tensors of a batch; a tensor that is not a dense CPU tensor is returned unchanged.
        pinned: Whether the new memory is pinned, so that the device copies from it asynchronously.

    Returns:
        One part for each block of new memory, and for each unchanged tensor.
    """
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
    """Return a copy of the batch in which each tensor is replaced by the result of `replace`.

    Tensors are found in dicts and tuples at any depth. `replace` is called once per tensor, in the same order for equal
    batches.
    """
    if isinstance(batch, torch.Tensor):
        return replace(batch)
    if isinstance(batch, Mapping):
        return {name: _replaced(value, replace) for name, value in batch.items()}
    if isinstance(batch, tuple):
        values = [_replaced(value, replace) for value in batch]
        return type(batch)(*values) if hasattr(batch, "_fields") else tuple(values)
    return batch
