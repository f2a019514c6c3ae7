"""Tests of `from_folder`: image files are stored unchanged, with labels from the names of subfolders."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import petastore
from petastore import images
from petastore.errors import InvalidArgumentError


def file_of(mode: str, image_format: str, height: int = 6) -> bytes:
    written = io.BytesIO()
    Image.fromarray(np.full((height, 5, 3), 80, np.uint8)).convert(mode).save(written, image_format)
    return written.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "dog/a.JPG": file_of("RGB", "JPEG"),
        "dog/more/b.png": file_of("L", "PNG"),
        "cat/c.jpeg": file_of("CMYK", "JPEG", height=9),
        "cat/notes.txt": b"mine",
        ".hidden/d.jpg": b"nothing",
    }
    for name, content in files.items():
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path / "photos"


def test_from_folder_labels_files_by_their_subfolders(folder: Path, tmp_path: Path) -> None:
    photos = images.from_folder(folder)
    assert photos.classes == ("cat", "dog")
    assert len(photos) == 3
    assert repr(photos).endswith("photos', 3 images, 2 classes)")
    petastore.write_dataset(tmp_path / "dataset", photos.schema, photos)
    with petastore.make_reader(str(tmp_path / "dataset"), shuffle_row_groups=False) as reader:
        found = [(row.path, int(row.label), row.image.shape) for row in reader]
    assert found == [("cat/c.jpeg", 0, (9, 5, 3)), ("dog/a.JPG", 1, (6, 5, 3)), ("dog/more/b.png", 1, (6, 5, 3))]
    assert [row["image"] for row in photos] == [(folder / path).read_bytes() for path in photos.paths]


def test_from_folder_without_subfolders_has_no_labels(folder: Path) -> None:
    photos = images.from_folder(folder / "dog" / "more", mode="gray")
    assert list(photos.schema.fields) == ["image", "path"]
    assert photos.schema["image"].shape == (None, None)
    assert [row["path"] for row in photos] == ["b.png"]


def test_from_folder_shuffles_by_seed(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.jpg").write_bytes(b"")
    orders = [images.from_folder(tmp_path, seed=seed).paths for seed in (7, 7, 8)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(images.from_folder(tmp_path).paths)


def test_from_folder_rejects_folders_without_images(folder: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must hold .png, .jpg or .jpeg files, got none"):
        images.from_folder(folder / "nothing")
    wrong: Any = "hsv"
    with pytest.raises(InvalidArgumentError, match="mode must be 'rgb' or 'gray', got 'hsv'"):
        images.from_folder(folder, mode=wrong)
    (folder / "e.png").write_bytes(b"")
    with pytest.raises(InvalidArgumentError, match="got both in"):
        images.from_folder(folder)
