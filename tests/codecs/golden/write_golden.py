"""Write the missing golden cells. Run it by hand for a new case, check the file, and commit it.

    python tests/codecs/golden/write_golden.py

The cases are those of subclasses of `CodecLaws` in the test modules of the parent folder. JPEG is lossy, so the
expected pixels are those that OpenCV decodes, written as `<case>.npy`.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from petastore.testing.codec_laws import CodecLaws, read_golden, write_golden

HERE = Path(__file__).parent


def suites() -> Iterator[CodecLaws]:
    """Yield an instance of each subclass of `CodecLaws` in the test modules."""
    for path in sorted(HERE.parent.rglob("test_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for _, member in inspect.getmembers(module, inspect.isclass):
            if issubclass(member, CodecLaws) and not inspect.isabstract(member) and member.__module__ == path.stem:
                yield member()


def write_jpeg_pixels(path: Path) -> None:
    """Write the pixels that OpenCV, as a reference decoder, decodes from the golden cells."""
    import cv2

    cells = [np.frombuffer(cell, np.uint8) for cell in read_golden(path).to_pylist()]
    images = [np.asarray(cv2.imdecode(cell, cv2.IMREAD_UNCHANGED)) for cell in cells]
    np.save(path.with_suffix(".npy"), np.stack([image if image.ndim == 2 else image[..., ::-1] for image in images]))


def main() -> None:
    """Write all golden files that are missing."""
    for suite in suites():
        for name, case in suite.cases().items():
            path = suite.golden_folder() / f"{name}.arrow"
            if path.exists():
                continue
            lossy: Any = getattr(suite, "golden_images", suite.golden_values)
            write_golden(path, case.field, lossy(name))
            print("wrote", path)
            if hasattr(suite, "golden_images"):
                write_jpeg_pixels(path)


if __name__ == "__main__":
    main()
