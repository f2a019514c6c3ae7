"""Call-stack inspection: the stack level of warnings, and calls by Lightning."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["frames_inside_petastore", "is_called_by_lightning"]

_LIGHTNING = ("lightning.pytorch.", "lightning.fabric.utilities.", "pytorch_lightning.", "lightning_fabric.utilities.")
_BETWEEN = ("petastore.", "torch.utils.data.", "torchdata.")


def frames_inside_petastore() -> int:
    """Return the number of petastore's frames at the top of the call stack.

    These are the frames from the calling function up to, but not including, the first caller outside petastore.

    Use it for warnings: `warnings.warn(…, stacklevel=frames_inside_petastore() + 1)`.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - `warnings` counts the same frames
    depth = 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "petastore":
        frame = frame.f_back
        depth += 1
    return depth


def is_called_by_lightning() -> bool:
    """Return whether Lightning's own loop called petastore.

    The call may be direct or through torch's DataLoader.

    Lightning expects `len(loader)` to be the number of batches of a whole epoch, also after a resume, because it
    continues its own count.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as in `frames_inside_petastore`
    while frame is not None and _module(frame).startswith(_BETWEEN):
        frame = frame.f_back
    return frame is not None and _module(frame).startswith(_LIGHTNING)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
