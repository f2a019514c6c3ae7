"""Rows as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from petastore.cli.head.pictures import holds_images
from petastore.cli.head.saved_images import SavedImages
from petastore.cli.head.values import as_json
from petastore.schema.field import UnischemaField

__all__ = ["rows_as_json"]


def rows_as_json(
    fields: Sequence[UnischemaField], rows: Iterable[Mapping[str, Any]], saved: SavedImages | None, *, images: bool
) -> Iterator[dict[str, Any]]:
    """Rows as JSON objects, one by one.

    Args:
        fields: What a row has.
        rows: Field name to value; None where it is missing.
        saved: Where images were saved, which then is said of each; None is nowhere.
        images: Whether images are told by dtype and shape, or are arrays like all others.

    Example:
        >>> from petastore.codecs import NdarrayCodec
        >>> image = UnischemaField("x", "uint8", (2, 3), NdarrayCodec())
        >>> rows = [{"x": np.zeros((2, 3), "uint8")}]
        >>> [*rows_as_json([image], rows, None, images=True), *rows_as_json([image], rows, None, images=False)]
        [{'x': {'dtype': 'uint8', 'shape': [2, 3]}}, {'x': [[0, 0, 0], [0, 0, 0]]}]
    """
    told = {field.name for field in fields if images and holds_images(field)}
    for number, row in enumerate(rows):
        line: dict[str, Any] = {}
        for name, value in row.items():
            if name in told and isinstance(value, np.ndarray):
                line[name] = {"dtype": str(value.dtype), "shape": list(value.shape)}
                if saved is not None and (number, name) in saved.files:
                    line[name]["file"] = str(saved.files[number, name])
            else:
                line[name] = as_json(value)
        yield line
