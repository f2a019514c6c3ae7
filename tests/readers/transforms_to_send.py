"""Transform functions, valid and failing ones, that worker processes import by name.

This module imports no framework: a worker that imports a test module with torch takes three seconds of CPU to start.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

seen: list[Any] = []


def unchanged(row: dict[str, Any]) -> dict[str, Any]:
    return row


def id_alone(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"]}


def in_place(row: dict[str, Any]) -> dict[str, Any]:
    """Change the image in place, as image functions do."""
    row["image"] *= 2
    return row


def more(row: dict[str, Any]) -> dict[str, Any]:
    """Return text, missing values, variable-shape arrays and fixed-shape arrays derived from the id."""
    number = int(row["id"])
    return {
        "id": row["id"],
        "text": None if number % 7 == 3 else f"row {number}",
        "half": None if number % 5 == 2 else np.float32(number / 2),
        "track": np.full((number % 4, 2), number, np.int16),
        "image": np.full((40, 40), number % 256, np.uint8),
    }


def hours(frame: Any) -> Any:
    """Return the local hour of each instant, and the instant in another time zone."""
    return frame.assign(hour=frame["at"].dt.hour.astype("Int32"), at=frame["at"].dt.tz_convert("Asia/Tokyo"))


def frame_of_halves(frame: Any) -> Any:
    frame["half"] = frame["id"].astype("float32") / 2
    frame["rows"] = np.int64(len(frame))
    return frame


def columns_of_halves(columns: dict[str, Any]) -> dict[str, Any]:
    """Change the images in place, and add a column."""
    columns["image"] *= 2
    return columns | {"half": columns["id"].astype(np.float32) / 2}


def before(row: dict[str, Any]) -> dict[str, Any]:
    """Return each row with the image of the previous row, which the function holds in memory."""
    seen.append(row["image"])
    return {"id": row["id"], "image": seen[-2] if len(seen) > 1 else np.zeros_like(row["image"])}


def worker_of(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "pid": os.getpid()}


def modules_of(row: dict[str, Any]) -> dict[str, Any]:
    known = ("pyarrow", "torch", "tensorflow", "pandas", "petastore.readers.reader")
    return {"id": row["id"], "modules": ",".join(name for name in known if name in sys.modules)}


def fails_from_30(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] >= 30:
        raise KeyError(f"row {row['id']}")
    return row


class Unpicklable(Exception):  # noqa: N818 - as a user may name it
    """An exception that pickle cannot recreate from its arguments."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def raises_what_cannot_be_pickled(row: dict[str, Any]) -> dict[str, Any]:
    raise Unpicklable(1, 2)


def makes_what_cannot_be_pickled(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "thing": threading.Lock()}


def exits(row: dict[str, Any]) -> dict[str, Any]:
    os._exit(3)


def exits_politely(row: dict[str, Any]) -> dict[str, Any]:
    sys.exit(4)


def crashes(row: dict[str, Any]) -> dict[str, Any]:
    ctypes.string_at(0)
    return row


def exits_once(row: dict[str, Any]) -> dict[str, Any]:
    """Exit the process at the first call, which a file records."""
    try:
        Path(os.environ["PETASTORE_TEST_MARK"]).touch(exist_ok=False)
    except FileExistsError:
        return row
    os._exit(3)


def sleeps(row: dict[str, Any]) -> dict[str, Any]:
    """Sleep for long, after creating a file that says so."""
    Path(os.environ["PETASTORE_TEST_MARK"]).with_suffix(f".{os.getpid()}").touch()
    time.sleep(600)
    return row


def scaled(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"picture": (row["picture"] / 255).astype(np.float32)[np.newaxis]}


def text_from_row_five(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"id": float(row["id"]) if row["id"] < 5 else "five"}


def meets_another_worker(row: dict[str, Any]) -> dict[str, Any]:
    """Return once two workers have started a call, which files record."""
    mark = Path(os.environ["PETASTORE_TEST_MARK"])
    mark.with_suffix(f".{os.getpid()}").touch()
    while len(list(mark.parent.glob(f"{mark.name}.*"))) < 2:
        time.sleep(0.001)
    return {"id": row["id"], "pid": os.getpid()}


def draws_of_row(row: dict[str, Any], *, rng: np.random.Generator) -> dict[str, Any]:
    return row | {"drawn": rng.integers(0, 2**62)}


def draws_of_columns(columns: dict[str, Any], rng: Any) -> dict[str, Any]:
    return columns | {"drawn": np.array([of_one.integers(0, 2**62) for of_one in rng])}


def draws_of_frame(frame: Any, rng: Any) -> Any:
    return frame.assign(drawn=[of_one.integers(0, 2**62) for of_one in rng])


class Adds:
    """A callable with a state."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"] + self.number}
