"""Who called petastore: how far up a warning belongs."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["frames_inside_petastore", "is_called_by_lightning"]

_LIGHTNING = ("lightning.pytorch.", "lightning.fabric.utilities.", "pytorch_lightning.", "lightning_fabric.utilities.")
_BETWEEN = ("petastore.", "torch.utils.data.", "torchdata.")


def frames_inside_petastore() -> int:
    """How many calls up the caller outside petastore is, seen from the function that calls this one.

    A warning belongs to that line: `warnings.warn(…, stacklevel=frames_inside_petastore() + 1)`.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `warnings` itself counts
    depth = 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "petastore":
        frame = frame.f_back
        depth += 1
    return depth


def is_called_by_lightning() -> bool:
    """Return whether Lightning's own loop called petastore, directly or through torch's DataLoader.

    Lightning takes `len(loader)` for the batches of a whole epoch, after a resume too: it counts on from its own number
    of batches.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - what `warnings` itself counts
    while frame is not None and _module(frame).startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and _module(frame).startswith(_LIGHTNING)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
