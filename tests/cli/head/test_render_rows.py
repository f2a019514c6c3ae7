"""Tests of rows rendered as a table that fits the terminal, or as one block per row."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from petastore import UnischemaField
from petastore.cli.head import render_rows, shows_pictures
from petastore.codecs import CompressedImageCodec, NdarrayCodec

FIELDS = (
    UnischemaField("id", "int64"),
    UnischemaField("[name]", "str", nullable=True),
    UnischemaField("pose", "float32", (None,), NdarrayCodec(), nullable=True),
)
ROWS: list[dict[str, Any]] = [
    {"id": np.int64(7), "[name]": "Ada [red]\x1b[31m", "pose": np.array([0.5, 1.5], "float32")},
    {"id": np.int64(1200), "[name]": None, "pose": None},
    {"id": np.int64(3), "[name]": "word " * 40, "pose": np.arange(40, dtype="float32")},
]


def screen(
    rows: Sequence[dict[str, Any]], fields: Sequence[UnischemaField], *, width: int, images: bool = True
) -> list[str]:
    out = io.StringIO()
    count = render_rows(fields, rows, Console(file=out, width=width), images=images)
    assert count == len(rows)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_rows_render_as_a_table() -> None:
    assert screen(ROWS, FIELDS, width=75) == [
        "row    id  [name]                            pose",
        "───────────────────────────────────────────────────────────────────────────",
        r"  0     7  Ada [red]\x1b[31m                 float32 2 [0.5 1.5]",
        "  1  1200  missing                           missing",
        "  2     3  word word word word word word w…  float32 40 [0 1 2 3 4 5 6 7 …]",
    ]


def test_rows_render_as_blocks_on_narrow_terminals() -> None:
    assert screen(ROWS, FIELDS, width=50) == [
        "row 0",
        "id      7",
        r"[name]  Ada [red]\x1b[31m",
        "pose    float32 2 [0.5 1.5]",
        "",
        "row 1",
        "id      1200",
        "[name]  missing",
        "pose    missing",
        "",
        "row 2",
        "id      3",
        "[name]  word word word word word word word word w…",
        "pose    float32 40 [0 1 2 3 4 5 6 7 …]",
        "",
    ]


@pytest.mark.parametrize("width", range(20, 130, 7))
def test_rendered_lines_fit_the_terminal(width: int) -> None:
    wide = {"id": np.int64(1), "[name]": "深い" * 60, "pose": np.zeros(3, "float32")}
    lines = screen([*ROWS, wide], FIELDS, width=width)
    assert max(len(line) + line.count("深") + line.count("い") for line in lines) <= width


def test_rendering_without_rows_is_empty() -> None:
    assert screen([], FIELDS, width=75) == []


IMAGE = UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("png"), nullable=True)


def test_images_render_as_dtype_and_shape_without_colors() -> None:
    row = {"photo": np.zeros((1200, 800, 3), "uint8")}
    assert screen([row, {"photo": None}], [IMAGE], width=60)[2:] == ["  0  uint8 1,200×800×3", "  1  missing"]
    as_array = screen([row], [IMAGE], width=60, images=False)[-1]
    assert as_array == "  0  uint8 1,200×800×3 [0 0 0 0 0 0 0 0 …]"


@pytest.mark.parametrize("columns", [0, 9])
def test_images_render_as_half_blocks_on_request(columns: int) -> None:
    more = [UnischemaField(f"x{number}", "str") for number in range(columns)]
    out = io.StringIO()
    console = Console(file=out, width=60, force_terminal=True, color_system="truecolor", _environ={})
    row = {"photo": np.full((60, 90, 3), 9, "uint8"), **{field.name: "some text" for field in more}}
    render_rows([IMAGE, *more], [row], console, images=True)
    lines = [line for line in out.getvalue().splitlines() if "▀" in line]
    assert [line.count("\x1b[38;2;9;9;9;48;2;9;9;9m▀\x1b[0m") for line in lines] == [30] * 10
    assert "uint8 60×90×3" in out.getvalue()


def test_image_rendering_needs_colors_and_unicode() -> None:
    def console(encoding: str = "utf-8", environment: dict[str, str] | None = None, **settings: Any) -> Console:
        file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        return Console(file=file, _environ=environment or {}, **settings)

    colours: dict[str, Any] = {"force_terminal": True, "color_system": "256"}
    assert shows_pictures(console(**colours))
    assert not shows_pictures(console(environment={"NO_COLOR": "1"}, **colours))
    assert not shows_pictures(console(encoding="latin-1", **colours))
    assert not shows_pictures(console())
    assert not shows_pictures(console(force_terminal=True, environment={"TERM": "dumb"}))
