"""Compare image libraries: read and write JPEG and PNG of real photographs, on one and two threads.

Run it where the candidates are installed; those that are missing are named and left out:

    pip install numpy scikit-learn opencv-python-headless simplejpeg pillow imagecodecs pyspng kornia-rs pyvips[binary]
    python benchmarks/image_libraries.py [--rounds 9]

The photographs are scikit-learn's china.jpg and flower.jpg (427 × 640), whole and as crops of 256 × 256. Candidates
take turns within a round, so that a busy moment of the machine meets all of them. "CPU ms" is the processor time of an
image, the median over rounds, followed by the lowest and the highest round. "two threads" is how many times more images
a second two threads did than one, by the best rounds. "GIL" is the longest time that another Python thread stood still
during a call, as a share of the call: near 1 the GIL is held. The conclusion is in
decisions/0004-image-libraries.md.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import importlib
import importlib.metadata
import io
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUALITY = 80
Image = NDArray[np.uint8]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One way to do one task."""

    name: str
    encode: Callable[[Image], bytes] | None = None
    decode: Callable[[bytes, Image], Image] | None = None


@dataclasses.dataclass
class Timing:
    """What was measured of one candidate at one task and size."""

    own: list[float] = dataclasses.field(default_factory=list)
    """CPU milliseconds an image, one a round."""

    two: list[float] = dataclasses.field(default_factory=list)
    """Wall milliseconds an image with two threads, one a round."""

    one: list[float] = dataclasses.field(default_factory=list)
    """Wall milliseconds an image with one thread, one a round."""


def opencv(cv2: Any, extension: str) -> Candidate:
    """OpenCV: blue comes first, so colours are swapped on the way, straight into the caller's array."""

    def encode(image: Image) -> bytes:
        options = [cv2.IMWRITE_JPEG_QUALITY, QUALITY] if extension == ".jpg" else []
        _, encoded = cv2.imencode(extension, cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
        return bytes(encoded.tobytes())

    def decode(cell: bytes, out: Image) -> Image:
        image: Image = cv2.cvtColor(
            cv2.imdecode(np.frombuffer(cell, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB, dst=out
        )
        return image

    return Candidate("opencv", encode, decode)


def simplejpeg(module: Any) -> Candidate:
    """simplejpeg: libjpeg-turbo alone, straight into the caller's array."""

    def encode(image: Image) -> bytes:
        return bytes(module.encode_jpeg(image, QUALITY, "RGB", "420"))

    def decode(cell: bytes, out: Image) -> Image:
        image: Image = module.decode_jpeg(cell, "RGB", buffer=out)
        return image

    return Candidate("simplejpeg", encode, decode)


def pillow(module: Any, image_format: str, name: str = "pillow", **options: Any) -> Candidate:
    """Pillow; its pixels are copied into the caller's array."""

    def encode(image: Image) -> bytes:
        written = io.BytesIO()
        module.fromarray(image).save(written, image_format, **options)
        return written.getvalue()

    def decode(cell: bytes, out: Image) -> Image:
        with module.open(io.BytesIO(cell)) as opened:
            np.copyto(out, np.asarray(opened))
        return out

    return Candidate(name, encode, None if "," in name else decode)


def imagecodecs(module: Any) -> dict[str, list[Candidate]]:
    """imagecodecs: libjpeg-turbo, libpng and libspng of its own, straight into the caller's array."""
    jpeg = Candidate(
        "imagecodecs",
        lambda image: bytes(module.jpeg8_encode(image, level=QUALITY, subsampling="420")),
        lambda cell, out: module.jpeg8_decode(cell, out=out),
    )
    png = Candidate(
        "imagecodecs (libpng)",
        lambda image: bytes(module.png_encode(image, 1, strategy=3, filter=16)),
        lambda cell, out: module.png_decode(cell, out=out),
    )
    spng = Candidate("imagecodecs (libspng)", None, lambda cell, out: module.spng_decode(cell, out=out))
    return {"jpeg": [jpeg], "png": [png, spng]}


def pyspng(module: Any) -> Candidate:
    """pyspng: libspng alone; its pixels are copied into the caller's array."""

    def decode(cell: bytes, out: Image) -> Image:
        np.copyto(out, module.load(cell))
        return out

    return Candidate("pyspng", None, decode)


def vips(module: Any) -> dict[str, list[Candidate]]:
    """The libvips library through its Python binding."""

    def decode(cell: bytes, out: Image) -> Image:
        np.copyto(out, module.Image.new_from_buffer(cell, "").numpy())
        return out

    jpeg = Candidate(
        "pyvips", lambda image: module.Image.new_from_array(image).write_to_buffer(f".jpg[Q={QUALITY}]"), decode
    )
    png = Candidate(
        "pyvips", lambda image: module.Image.new_from_array(image).write_to_buffer(".png[compression=1]"), decode
    )
    return {"jpeg": [jpeg], "png": [png]}


def kornia(module: Any) -> dict[str, list[Candidate]]:
    """kornia-rs: libjpeg-turbo and a decoder in Rust."""

    def jpeg(cell: bytes, out: Image) -> Image:
        np.copyto(out, np.asarray(module.io.ImageDecoder().decode(cell)))
        return out

    def png(cell: bytes, out: Image) -> Image:
        np.copyto(out, np.asarray(module.io.decode_image_png_u8(cell, out.shape[:2], "rgb")))
        return out

    return {"jpeg": [Candidate("kornia-rs", None, jpeg)], "png": [Candidate("kornia-rs", None, png)]}


def candidates() -> tuple[dict[str, list[Candidate]], list[str]]:
    """All candidates that are installed, by format, and what there is to say about the packages."""
    found: dict[str, list[Candidate]] = {"jpeg": [], "png": []}
    packages = {
        "cv2": "opencv-python-headless", "simplejpeg": "simplejpeg", "PIL.Image": "pillow", "pyspng": "pyspng",
        "imagecodecs": "imagecodecs", "pyvips": "pyvips-binary", "kornia_rs": "kornia-rs",
    }  # fmt: skip
    notes = []
    for name, package in packages.items():
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError):
            notes.append(f"{package}: not installed, left out")
            continue
        notes.append(f"{package} {importlib.metadata.version(package)}, {megabytes(package):.0f} MB installed")
        for image_format, more in offered(name, module).items():
            found[image_format] += more
    return found, notes


def offered(name: str, module: Any) -> dict[str, list[Candidate]]:
    """What one package can do."""
    if name == "cv2":
        module.setNumThreads(1)
        return {"jpeg": [opencv(module, ".jpg")], "png": [opencv(module, ".png")]}
    if name == "simplejpeg":
        return {"jpeg": [simplejpeg(module)]}
    if name == "PIL.Image":
        quick = pillow(module, "PNG", "pillow, level 1", compress_level=1)
        return {"jpeg": [pillow(module, "JPEG", quality=QUALITY)], "png": [pillow(module, "PNG"), quick]}
    if name == "pyspng":
        return {"png": [pyspng(module)]}
    several: Callable[[Any], dict[str, list[Candidate]]] = {
        "imagecodecs": imagecodecs,
        "pyvips": vips,
        "kornia_rs": kornia,
    }[name]
    return several(module)


def megabytes(package: str) -> float:
    """Size on disk of a package with the libraries that its wheel brings."""
    files = importlib.metadata.distribution(package).files or []
    return sum(path.size or 0 for path in files) / 1e6


def photographs() -> dict[str, list[Image]]:
    """Real photographs: whole ones, and crops as a dataset would hold."""
    from sklearn.datasets import load_sample_images

    whole = [np.ascontiguousarray(image) for image in load_sample_images().images]
    corners = [(0, 0), (0, 384), (171, 0), (171, 384)]
    crops = [np.ascontiguousarray(image[y : y + 256, x : x + 256]) for image in whole for y, x in corners]
    return {"427x640": whole, "256x256": crops}


def tasks(image_format: str, images: list[Image]) -> Iterator[tuple[str, list[Any]]]:
    """Decoding, from the cells that OpenCV (as Petastorm does) wrote; and encoding."""
    yield "decode", [reference_cell(image_format, image) for image in images]
    yield "encode", images


def reference_cell(image_format: str, image: Image) -> bytes:
    """The cell that all decoders read: what OpenCV writes, or Pillow where OpenCV is missing."""
    try:
        import cv2
    except ImportError:
        import PIL.Image as Pillow

        encode = pillow(Pillow, image_format.upper()).encode
    else:
        encode = opencv(cv2, ".jpg" if image_format == "jpeg" else ".png").encode
    assert encode is not None
    return encode(image)


def runner(candidate: Candidate, task: str, images: list[Image]) -> Callable[[Any], Any] | None:
    """The call to be timed, on one input; decoders get an output array of their thread's own."""
    if task == "encode":
        return candidate.encode
    decode = candidate.decode
    if decode is None:
        return None
    own = threading.local()

    def run(cell: bytes) -> Image:
        if not hasattr(own, "out"):
            own.out = np.empty(images[0].shape, np.uint8)
        return decode(cell, own.out)

    return run


def time_one_round(run: Callable[[Any], Any], inputs: list[Any], timing: Timing, pool: Any) -> None:
    """Add one round: one thread, then two threads that share twice the work."""
    repeats = max(1, 16 // len(inputs))
    work = inputs * repeats
    began, own = time.perf_counter(), time.process_time()
    for item in work:
        run(item)
    timing.own.append((time.process_time() - own) / len(work) * 1e3)
    timing.one.append((time.perf_counter() - began) / len(work) * 1e3)
    began = time.perf_counter()
    list(pool.map(lambda items: [run(item) for item in items], [work, work]))
    timing.two.append((time.perf_counter() - began) / (2 * len(work)) * 1e3)


def longest_stop(run: Callable[[Any], Any], item: Any) -> float:
    """Longest time that another thread stood still during one call, as a share of the call; the best of some tries."""
    alone, stops = [], []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # a thread that wants the GIL, and could have it, gets it at once
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        until = time.perf_counter() + 1.0  # long enough that a busy machine leaves us both CPUs for some of the tries
        while time.perf_counter() < until:
            began = time.perf_counter()
            run(item)
            last = time.perf_counter()
            alone.append(last - began)
            longest = 0.0
            call = pool.submit(run, item)
            running = True
            while running:
                running = not call.done()
                now = time.perf_counter()
                longest, last = max(longest, now - last), now
            stops.append(longest)
    sys.setswitchinterval(interval)
    return min(1.0, min(stops) / min(alone))


def measure(image_format: str, offered: list[Candidate], rounds: int) -> None:
    """Print one table for one format."""
    for size, images in photographs().items():
        for task, inputs in tasks(image_format, images):
            runs = {candidate.name: runner(candidate, task, images) for candidate in offered}
            able = {name: run for name, run in runs.items() if run is not None}
            timings = {name: Timing() for name in able}
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                for _ in range(rounds):
                    for name, run in able.items():
                        time_one_round(run, inputs, timings[name], pool)
            report(image_format, size, task, timings, able, images, inputs)


def report(
    image_format: str,
    size: str,
    task: str,
    timings: dict[str, Timing],
    able: dict[str, Callable[[Any], Any]],
    images: list[Image],
    inputs: list[Any],
) -> None:
    """Print the rows of one task; ratios are to OpenCV's median, below 1 is faster."""
    print(f"\n### {image_format} {task}, {size}\n")
    last = "result" if task == "decode" else "bytes"
    print(f"| library | CPU ms | lowest to highest | to opencv | two threads | GIL | {last} |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    reference = statistics.median(timings["opencv"].own) if "opencv" in timings else float("nan")
    for name, timing in timings.items():
        own = statistics.median(timing.own)
        gain = min(timing.one) / min(timing.two)
        stop = longest_stop(able[name], inputs[0])
        print(
            f"| {name} | {own:.2f} | {min(timing.own):.2f} to {max(timing.own):.2f} | {own / reference:.2f} | "
            f"×{gain:.1f} | {stop:.1f} | {outcome(able, name, task, images, inputs)} |"
        )


def outcome(able: dict[str, Callable[[Any], Any]], name: str, task: str, images: list[Image], inputs: list[Any]) -> str:
    """What came out: whether pixels equal OpenCV's, or how many bytes were written."""
    if task == "encode":
        return f"{statistics.mean(len(able[name](image)) for image in images):,.0f}"
    if "opencv" not in able:
        return "not compared"
    equal = all(np.array_equal(able["opencv"](cell).copy(), able[name](cell)) for cell in inputs)
    return "same pixels" if equal else "other pixels"


def main() -> None:
    """Measure everything and print it as Markdown."""
    parser = argparse.ArgumentParser(description="Compare image libraries on real photographs.")
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    found, notes = candidates()
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}; {rounds} rounds\n")
    print("\n".join(f"* {note}" for note in notes))
    for image_format, offered_here in found.items():
        measure(image_format, offered_here, rounds)
    print(f"\nload of the machine after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
