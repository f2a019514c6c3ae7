"""Tests of rows as JSON: images are summarized, printed as arrays, or named by their saved file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from petastore import UnischemaField
from petastore.cli.head import SavedImages, rows_as_json
from petastore.codecs import CompressedImageCodec, NdarrayCodec

IMAGE = UnischemaField("image", np.uint8, (None, None), CompressedImageCodec("png"), nullable=True)
FIELDS = [UnischemaField("id", np.int64), IMAGE, UnischemaField("pose", np.float32, (2,), NdarrayCodec())]
ROWS: list[dict[str, Any]] = [
    {"id": np.int64(1), "image": np.zeros((2, 3), np.uint8), "pose": np.array([0.5, 2], np.float32)},
    {"id": np.int64(2), "image": None, "pose": np.array([np.nan, 0], np.float32)},
]


def test_json_rows_summarize_images_and_have_null_for_missing() -> None:
    first, second = rows_as_json(FIELDS, ROWS, None, images=True)
    assert first == {"id": 1, "image": {"dtype": "uint8", "shape": [2, 3]}, "pose": [0.5, 2.0]}
    assert (second["id"], second["image"]) == (2, None)
    json.dumps([first, second])


def test_json_rows_have_image_arrays_on_request() -> None:
    (first, _) = rows_as_json(FIELDS, ROWS, None, images=False)
    assert first["image"] == [[0, 0, 0], [0, 0, 0]]


def test_json_rows_name_saved_image_files(tmp_path: Path) -> None:
    saved = SavedImages(tmp_path, FIELDS, rows=2)
    saved.files[0, "image"] = tmp_path / "0.png"
    first, second = rows_as_json(FIELDS, ROWS, saved, images=True)
    assert first["image"]["file"] == str(tmp_path / "0.png")
    assert second["image"] is None


def test_json_rows_are_empty_without_rows() -> None:
    assert list(rows_as_json(FIELDS, [], None, images=True)) == []
