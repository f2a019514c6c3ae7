"""CPU time of decoding images at a requested size: `python -m benchmarks.image_sizes [--rounds 15] [--images 512]`.

The images are those of the benchmark `images`: crops of 256 × 256 × 3 of scikit-learn's two photographs, JPEG quality
90, and the same as PNG. The *limit* decodes the JPEGs at their full size with simplejpeg and does nothing else.
Batches are decoded into memory that is used again, as readers do; "new memory" takes it anew for each batch, as the
limits of `benchmarks.bench` do, which costs page faults. Everything runs in one thread. Candidates take turns within a
round, in another order each time, so that a busy moment of the machine, or what ran before, meets all of them. What is
printed is the processor time of an image, the median over rounds with the lowest and the highest, and how many times as
quick as the limit that is, the median of the ratios of each round. Exits with 1 if a reader that decodes to 128 × 128
is not 1.3 times as quick as the limit.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from benchmarks.bench.values import crops_of
from benchmarks.bench.workloads import workload_named
from petastore import Unischema, UnischemaField, make_reader, write_dataset
from petastore.codecs import CompressedImageCodec, ImageDecode
from petastore.codecs.images.image import hinted_field
from petastore.codecs.registry import codec_of

BATCH = 64
BOUND = 1.3
THE_BOUND_IS_OF = "reader, 128 × 128"
JPEG, PNG = CompressedImageCodec("jpeg", 90), CompressedImageCodec("png")

Cells = list[NDArray[np.uint8]]


@dataclasses.dataclass
class Candidate:
    """One way to decode all images."""

    name: str
    run: Callable[[], object]
    took: list[float] = dataclasses.field(default_factory=list)
    """Microseconds of processor time of an image, one a round."""


def field_of(codec: CompressedImageCodec) -> UnischemaField:
    """The field of the images."""
    return UnischemaField("image", "uint8", (256, 256, 3), codec)


def batches(cells: Cells) -> list[Cells]:
    """The cells in batches."""
    return [cells[first : first + BATCH] for first in range(0, len(cells), BATCH)]


def library(cells: Cells, side: int, *, anew: bool = False) -> Callable[[], None]:
    """The library alone; `anew` takes new memory for each batch."""
    least = {} if side == 256 else {"min_height": side, "min_width": side}
    memory = np.empty((BATCH, side, side, 3), np.uint8)

    def run() -> None:
        for part in batches(cells):
            out = np.empty_like(memory) if anew else memory
            for cell, place in zip(part, out, strict=False):
                simplejpeg.decode_jpeg(cell, "RGB", buffer=place, **least)

    return run


def whole_then_resized(cells: Cells, side: int) -> Callable[[], None]:
    """What one does without hints."""
    out = np.empty((BATCH, side, side, 3), np.uint8)

    def run() -> None:
        for part in batches(cells):
            for cell, place in zip(part, out, strict=False):
                cv2.resize(simplejpeg.decode_jpeg(cell, "RGB"), (side, side), dst=place, interpolation=cv2.INTER_AREA)

    return run


def codec(cells: Cells, stored: UnischemaField, hint: ImageDecode | None = None) -> Callable[[], None]:
    """The codec that readers use."""
    field = stored if hint is None else hinted_field(stored, hint)
    decoder: Any = codec_of(field)
    shape: Any = field.shape
    out = np.empty((BATCH, *shape), np.uint8)

    def run() -> None:
        for part in batches(cells):
            decoder.decode_bytes(part, field, out[: len(part)])

    return run


def reader(url: str, hint: ImageDecode | None = None) -> Callable[[], None]:
    """A shuffled epoch of a reader without threads of its own; reading the file is part of it."""
    decode = None if hint is None else {"image": hint}
    opened = make_reader(url, reader_pool_type="dummy", shuffle_rows=True, seed=7, decode=decode)

    def run() -> None:
        opened.reset()
        for _ in opened.iter_batches(BATCH):
            pass

    return run


def candidates(images: Sequence[NDArray[np.uint8]], url: str) -> list[Candidate]:
    """All that is measured; the limit comes first."""
    jpeg, png = field_of(JPEG), field_of(PNG)
    cells, others = (
        [np.frombuffer(one.codec.encode(one, image), np.uint8) for image in images] for one in (jpeg, png) if one.codec
    )
    small = ImageDecode(size=(128, 128))
    found = {
        "the limit: simplejpeg, full size": library(cells, 256),
        "simplejpeg, full size, new memory": library(cells, 256, anew=True),
        "simplejpeg, 128 × 128": library(cells, 128),
        "simplejpeg, 32 × 32: hardly more than reading the bits": library(cells, 32),
        "simplejpeg, full size, then OpenCV to 128 × 128": whole_then_resized(cells, 128),
        "codec, full size": codec(cells, jpeg),
        "codec, 128 × 128": codec(cells, jpeg, small),
        "codec, 128 × 128, gray": codec(cells, jpeg, ImageDecode(size=(128, 128), mode="gray")),
        "codec, 64 × 64": codec(cells, jpeg, ImageDecode(size=(64, 64))),
        "codec, 100 × 100": codec(cells, jpeg, ImageDecode(size=(100, 100))),
        "codec, 224 × 224": codec(cells, jpeg, ImageDecode(size=(224, 224))),
        "codec, a region of 224 × 224 as 112 × 112": codec(cells, jpeg, ImageDecode((112, 112), (16, 16, 224, 224))),
        "codec, a region of 128 × 128": codec(cells, jpeg, ImageDecode(region=(64, 64, 128, 128))),
        "codec, PNG, full size": codec(others, png),
        "codec, PNG, 128 × 128": codec(others, png, small),
        "reader, full size": reader(url),
        THE_BOUND_IS_OF: reader(url, small),
    }
    return [Candidate(name, run) for name, run in found.items()]


def measure(tried: Sequence[Candidate], rounds: int, images: int) -> None:
    """Rounds in which all take turns, each in another order; one more, which warms up, is left out."""
    order = np.random.RandomState(7)
    for number in range(rounds + 1):
        for candidate in order.permutation(np.array(tried, dtype=object)):
            began = time.process_time()
            candidate.run()
            if number:
                candidate.took.append((time.process_time() - began) / images * 1e6)


def ratio(candidate: Candidate, limit: Candidate) -> float:
    """How many times as quick as the limit."""
    return statistics.median(theirs / ours for ours, theirs in zip(candidate.took, limit.took, strict=True))


def main() -> int:
    """Measure and print everything as Markdown."""
    parser = argparse.ArgumentParser(description="What images cost at the size that is wanted.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--images", type=int, default=512)
    asked = parser.parse_args()
    images = list(crops_of("image", dataclasses.replace(workload_named("images"), rows=asked.images)))
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {asked.rounds} rounds")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}\n")
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder:
        schema = Unischema("images", [field_of(JPEG)])
        write_dataset(folder + "/images", schema, ({"image": image} for image in images), rows_per_row_group=128)
        tried = candidates(images, folder + "/images")
        measure(tried, asked.rounds, len(images))
    print("| what | CPU µs an image | lowest to highest | times as quick as the limit |")
    print("| --- | ---: | ---: | ---: |")
    for candidate in tried:
        print(
            f"| {candidate.name} | {statistics.median(candidate.took):.0f} | {min(candidate.took):.0f} to "
            f"{max(candidate.took):.0f} | {ratio(candidate, tried[0]):.2f} |"
        )
    reached = next(ratio(candidate, tried[0]) for candidate in tried if candidate.name == THE_BOUND_IS_OF)
    print(f"\nload of the machine after: {os.getloadavg()[0]:.1f}")
    kept = "kept" if reached >= BOUND else "NOT KEPT"
    print(f"{THE_BOUND_IS_OF}: {reached:.2f} times as quick as the limit, at least {BOUND}: {kept}")
    return int(reached < BOUND)


if __name__ == "__main__":
    sys.exit(main())
