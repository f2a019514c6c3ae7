"""What all ranks found, printed by the first one as a line of JSON that a test reads."""

from __future__ import annotations

import json
from typing import Any

import torch.distributed as dist

__all__ = ["found", "tell"]

_MARK = "FOUND "


def tell(case: str, what: Any) -> None:
    """Prints what each rank found in a case; every rank calls it."""
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, what)
    if dist.get_rank() == 0:
        print(_MARK + json.dumps([case, gathered]), flush=True)


def found(printed: str) -> dict[str, list[Any]]:
    """By case, what each rank found."""
    return dict(json.loads(line.partition(_MARK)[2]) for line in printed.splitlines() if _MARK in line)
