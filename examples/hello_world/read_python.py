"""Read the hello world dataset in plain Python: one named tuple a row."""

from __future__ import annotations

import sys

from examples.hello_world.schema import DEFAULT_URL
from petastore import make_reader


def main(url: str = DEFAULT_URL) -> None:
    """Print what each row holds."""
    with make_reader(url) as reader:
        for row in reader:
            print(row.id, row.image1.shape, row.array_4d.shape)


if __name__ == "__main__":
    main(*sys.argv[1:2])
