"""Petastorm's converter examples: train on a Spark DataFrame of vectors, in this process and in a Spark worker."""

import logging
import sys
from pathlib import Path

import numpy as np
from examples.spark_dataset_converter import pytorch_converter_example, tensorflow_converter_example
from sklearn.datasets import load_digits

folder = Path(sys.argv[1])
digits = load_digits()
with (folder / "digits.libsvm").open("w") as file:
    for image, digit in zip(digits.images[:600], digits.target[:600], strict=True):
        pixels = np.kron(image[:7, :7], np.ones((4, 4))).ravel() / 16
        cells = " ".join(f"{place + 1}:{pixels[place]:.4f}" for place in np.flatnonzero(pixels))
        file.write(f"{digit} {cells}\n")
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
for example in (pytorch_converter_example, tensorflow_converter_example):
    print(f"== {example.__name__}")
    example.run(str(folder))
