"""Who called petastore: how far up a warning belongs."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["frames_inside_petastore"]


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
