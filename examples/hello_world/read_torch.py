"""Read the hello world dataset with PyTorch: batches of tensors."""

from __future__ import annotations

import sys

from examples.hello_world.schema import DEFAULT_URL
from petastore import make_reader
from petastore.adapters.torch import DataLoader


def main(url: str = DEFAULT_URL) -> None:
    """Print what each batch of four rows holds; arrays of different shapes are a list."""
    with make_reader(url) as reader:
        loader = DataLoader(reader, batch_size=4)
        print(f"{len(loader)} batches")
        for batch in loader:
            print(batch["id"].tolist(), batch["image1"].shape, [array.shape for array in batch["array_4d"]])


if __name__ == "__main__":
    main(*sys.argv[1:2])
