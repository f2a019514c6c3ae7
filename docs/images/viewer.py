"""Save a screenshot of the viewer as `viewer.png`: `python docs/images/viewer.py` needs Chromium and scikit-learn."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import petastore
from petastore.codecs import NdarrayCodec, VectorCodec
from petastore.view import serve

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from look import OPTIONS, find_browser

FIELDS = [
    petastore.UnischemaField("id", "int64"),
    petastore.UnischemaField("digit", "uint8", (8, 8), NdarrayCodec()),
    petastore.UnischemaField("label", "int32"),
    petastore.UnischemaField("spectrum", "float32", (16, 24), NdarrayCodec()),
    petastore.UnischemaField("stroke", "float32", (64,), VectorCodec()),
    petastore.UnischemaField("writer", "str", nullable=True),
]


def main() -> None:
    """Write the digits as a dataset, and save what Chromium shows of it."""
    browser = find_browser()
    if browser is None:
        sys.exit("docs/images/viewer.py: there is no Chromium on PATH: apt install chromium")
    digits = load_digits()
    rows = (
        {
            "id": number,
            "digit": (image * 15.9).astype(np.uint8),
            "label": label,
            "spectrum": np.abs(np.fft.rfft2(image, (16, 46))).astype("f4"),
            "stroke": np.cumsum(image.ravel() - image.mean()).astype("f4"),
            "writer": None if number % 6 == 4 else f"writer {number % 13}",
        }
        for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True))
    )
    schema, url = petastore.Unischema("Digits", FIELDS), str(Path(tempfile.gettempdir(), "digits"))
    petastore.write_dataset(url, schema, rows, rows_per_row_group=100, mode="overwrite")
    with serve(url) as viewer, tempfile.TemporaryDirectory() as profile:
        picture = Path(__file__).with_name("viewer.png")
        size = ["--window-size=1000,600", f"--user-data-dir={profile}", f"--screenshot={picture}"]
        subprocess.run([browser, *OPTIONS, *size, viewer.url], check=True, capture_output=True)  # noqa: S603 - a browser, on a page of ours


if __name__ == "__main__":
    main()
