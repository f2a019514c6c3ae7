"""Transforms that raise for some rows. Worker processes import this module, so it has few imports."""

from __future__ import annotations

from typing import Any

import numpy as np

ROWS = 240

FAILING = {*range(19, ROWS, 20)}
"""5 % of the rows, for which the transforms raise."""


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    if int(row["id"]) in FAILING:
        raise ValueError("no pose")
    return {**row, "twice": np.int64(row["id"] * 2)}


def doubled_frame(frame: Any) -> Any:
    if frame["id"].isin(FAILING).any():
        raise ValueError("no pose")
    return frame.assign(twice=frame["id"] * 2)
