"""Lightning starts the second rank itself, after the first one has opened a reader of all rows."""

from __future__ import annotations

import os
import sys
import warnings

import torch
from lightning.pytorch.plugins.environments import LightningEnvironment

from neighbours.torch.programs.driven_by_lightning import Noting, trainer
from petastore import make_reader
from petastore.adapters.torch import DataLoader


def main(url: str) -> None:
    """Print the warnings of the first rank."""
    with make_reader(url) as reader, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Without a named environment, Lightning checks whether MPI, which dlio-benchmark needs, launched the process.
        trainer(epochs=1, plugins=[LightningEnvironment()]).fit(Noting(), DataLoader(reader, batch_size=16))
    if os.environ["LOCAL_RANK"] == "0":
        print(*(warning.message for warning in caught if "reads all rows" in str(warning.message)), sep="\n")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
