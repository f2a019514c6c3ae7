"""Tests of saved images: one file per image, inside the requested folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import UnischemaField
from petastore.cli.head import SavedImages
from petastore.codecs import NdarrayCodec
from petastore.errors import InvalidArgumentError

GRAY = UnischemaField("gray", np.uint8, (None, None), NdarrayCodec(), nullable=True)


def test_saved_image_names_stay_in_the_folder(tmp_path: Path) -> None:
    names = ["../up", "a/b", "a%2Fb", "..", "深い eye", "x\x1b"]
    fields = [UnischemaField(name, np.uint8, (1, 1), NdarrayCodec()) for name in names]
    saved = SavedImages(tmp_path / "in", fields, 11)
    rows = [{name: np.full((1, 1), number, "uint8") for number, name in enumerate(names)}]
    assert list(saved.saving(rows)) == rows
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == sorted(
        [
            "00-%2E%2E%2Fup.png",
            "00-a%2Fb.png",
            "00-a%252Fb.png",
            "00-%2E%2E.png",
            "00-深い eye.png",
            "00-x%1B.png",
        ]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert saved.in_words == f"6 images saved in {tmp_path / 'in'}"


def test_values_that_are_not_images_are_not_saved(tmp_path: Path) -> None:
    saved = SavedImages(tmp_path / "in", [GRAY], 2)
    rows: list[dict[str, Any]] = [{"gray": None}, {"gray": np.zeros((0, 3), "uint8")}]
    assert list(saved.saving(rows)) == rows
    assert saved.files == {}
    assert not (tmp_path / "in").exists()


def test_saved_images_replace_existing_files(tmp_path: Path) -> None:
    for level in (1, 2):
        saved = SavedImages(tmp_path, [GRAY], 1)
        list(saved.saving([{"gray": np.full((1, 1), level, "uint8")}]))
    assert list(tmp_path.iterdir()) == [saved.files[0, "gray"]]


def test_too_long_image_file_name_raises(tmp_path: Path) -> None:
    field = UnischemaField("x" * 300, np.uint8, (1, 1), NdarrayCodec())
    with pytest.raises(InvalidArgumentError, match=r"--save-images must be .*x\.png cannot be written: "):
        list(SavedImages(tmp_path, [field], 1).saving([{field.name: np.zeros((1, 1), "uint8")}]))
