"""Tests of the images in the documentation: each SVG file is up to date with `docs/images/draw.py`."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree as ET


def test_images_of_the_docs_are_up_to_date(repository: Path) -> None:
    folder = repository / "docs" / "images"
    pictures = runpy.run_path(str(folder / "draw.py"))["PICTURES"]
    assert pictures
    for name, draw in pictures.items():
        drawn = draw().svg()
        ET.fromstring(drawn)  # noqa: S314 - our own
        assert (folder / f"{name}.svg").read_text(encoding="utf-8") == drawn, f"run docs/images/draw.py: {name}"
