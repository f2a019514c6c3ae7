"""List of contenders: one entry for each library, or for each way of using it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.bench.venvs import OWN

__all__ = ["CONTENDERS", "FORMATS", "Contender", "Format", "contenders_for"]

OURS, PEER, HAND_MADE, LIMIT = "ours", "peer", "hand-made", "limit"


@dataclasses.dataclass(frozen=True)
class Format:
    """Files that some contenders read."""

    module: str
    """Its `write` makes them, in the folder of the format's name."""

    environment: str = OWN
    needs: tuple[str, ...] = ()
    """Formats that must be there before."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """One way of reading a workload."""

    name: str
    role: str
    """`"ours"`, `"peer"`, `"hand-made"` (a loop of ours around a peer: shown, but nobody's product) or `"limit"`."""

    module: str
    format: str
    environment: str = OWN
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Keyword arguments of the module's `batches`."""

    only: tuple[str, ...] = ()
    """Workloads that it reads; empty is all but `rows`."""

    settings: str = ""
    """What was chosen, for the page."""

    def reads(self, workload: str) -> bool:
        """Whether it takes part there."""
        return workload in self.only if self.only else workload != "rows"


FORMATS: Final = {
    "petastore": Format("petastore_files"),
    "petastorm": Format("petastorm_files", "petastorm", needs=("petastore",)),
    "lance": Format("lance_torch", "lance"),
    "litdata": Format("litdata_torch", "litdata"),
    "mosaic": Format("mosaic_torch", "mosaic"),
    "webdataset": Format("webdataset_torch", "webdataset"),
    "datasets": Format("datasets_torch", "datasets"),
    "tensorflow": Format("tensorflow_data", "tensorflow"),
    "limits": Format("limits", needs=("petastore",)),
}

_CELLS: Final = ("images", "tensors", "compressed", "hello_world", "text")
_PEERS: Final = ("tabular", "images", "tensors", "wide", "text")
_NUMBERS: Final = ("tabular", "tensors", "wide", "text")
_COLUMNS: Final = ("tabular", "wide")

CONTENDERS: Final = (
    Contender("limit", LIMIT, "limits", "limits", settings="see above"),
    Contender(
        "limit, pyarrow's file", LIMIT, "limits", "limits", only=_NUMBERS, options={"defaults": True},
        settings="the same decode of a file that pyarrow wrote by its default settings",
    ),
    Contender(
        "petastore", OURS, "petastore_torch", "petastore",
        settings="make_reader(shuffle_rows=True, workers_count=2), torch DataLoader",
    ),
    Contender(
        "petastore, 64 MB", OURS, "petastore_torch", "petastore", options={"shuffle_buffer_bytes": 64 * 2**20},
        settings="the same with shuffle_buffer_bytes of 64 MB instead of 256, which mixes less",
    ),
    Contender(
        "petastore, unshuffled", OURS, "petastore_torch", "petastore", options={"shuffled": False},
        settings="the same without shuffling",
    ),
    Contender(
        "petastore, tf.data", OURS, "petastore_tf", "petastore", options={"loop": "compiled"},
        settings="make_reader(shuffle_rows=True, workers_count=2), make_tf_dataset; TensorFlow's tensors, taken in a "
        "compiled loop",
    ),
    Contender(
        "petastore, tf.data, Python loop", OURS, "petastore_tf", "petastore",
        settings="the same, taken by `for batch in dataset` in Python",
    ),
    Contender(
        "petastore, rows", OURS, "petastore_rows", "petastore", only=("rows",),
        settings="for row in make_reader(shuffle_rows=True, workers_count=2)",
    ),
    Contender(
        "Petastorm", PEER, "petastorm_torch", "petastorm", "petastorm", only=_COLUMNS,
        options={"reader": "make_batch_reader", "loader": "BatchedDataLoader", "convert_early_to_numpy": True},
        settings="make_batch_reader(shuffle_rows=True, convert_early_to_numpy=True, workers_count=2), "
        "BatchedDataLoader",
    ),
    Contender(
        "Petastorm, row groups only", PEER, "petastorm_torch", "petastorm", "petastorm", only=_COLUMNS,
        options={"reader": "make_batch_reader", "loader": "BatchedDataLoader", "shuffle_rows": False},
        settings="make_batch_reader(workers_count=2), which shuffles row groups and not rows, BatchedDataLoader",
    ),
    Contender(
        "Petastorm", PEER, "petastorm_torch", "petastorm", "petastorm", only=_CELLS,
        options={"reader": "make_reader", "loader": "DataLoader"},
        settings="make_reader(shuffle_rows=True, workers_count=2), DataLoader",
    ),
    Contender(
        "Petastorm, tf.data", PEER, "petastorm_tf", "petastorm", "petastorm-tensorflow", only=_COLUMNS,
        options={"reader": "make_batch_reader", "loop": "compiled", "convert_early_to_numpy": True},
        settings="make_batch_reader(shuffle_rows=True, convert_early_to_numpy=True, workers_count=2), "
        "make_petastorm_dataset, rebatch; TensorFlow's tensors, taken in a compiled loop",
    ),
    Contender(
        "Petastorm, tf.data", PEER, "petastorm_tf", "petastorm", "petastorm-tensorflow", only=_CELLS,
        options={"reader": "make_reader", "loop": "compiled"},
        settings="make_reader(shuffle_rows=True, workers_count=2), make_petastorm_dataset, batch; TensorFlow's "
        "tensors, taken in a compiled loop",
    ),
    Contender(
        "Petastorm, rows", PEER, "petastorm_rows", "petastorm", "petastorm", only=("rows",),
        settings="for row in make_reader(shuffle_rows=True, workers_count=2)",
    ),
    Contender(
        "Lance", PEER, "lance_torch", "lance", "lance", only=_PEERS, options={"way": "workers"},
        settings="take of random rows in two DataLoader workers, started by forkserver as it asks",
    ),
    Contender(
        "Lance, our own threads", HAND_MADE, "lance_torch", "lance", "lance", only=_PEERS, options={"way": "threads"},
        settings="take of random rows in two Python threads that this benchmark brings",
    ),
    Contender(
        "Lance, batches shuffled", PEER, "lance_torch", "lance", "lance", only=_NUMBERS, options={"way": "batches"},
        settings="lance.torch.data.LanceDataset with ShardedBatchSampler(randomize=True)",
    ),
    Contender(
        "Lance, unshuffled", PEER, "lance_torch", "lance", "lance", only=_NUMBERS, options={"way": "scan"},
        settings="lance.torch.data.LanceDataset, in order",
    ),
    Contender(
        "LitData", PEER, "litdata_torch", "litdata", "litdata", only=_PEERS,
        settings="optimize, StreamingDataset(shuffle=True), StreamingDataLoader with two workers; numbers of a row as "
        "two arrays",
    ),
    Contender(
        "Mosaic", PEER, "mosaic_torch", "mosaic", "mosaic", only=_PEERS,
        settings="MDS, StreamingDataset(shuffle=True), DataLoader with two workers; numbers of a row as two arrays",
    ),
    Contender(
        "WebDataset", PEER, "webdataset_torch", "webdataset", "webdataset", only=_PEERS,
        settings="tar shards, shards shuffled and rows in a buffer of 1,000, batched in two WebLoader workers; numbers "
        "of a row as two arrays",
    ),
    Contender(
        "HF datasets", PEER, "datasets_torch", "datasets", "datasets", only=_PEERS,
        settings="Arrow, with_format, a BatchSampler of random rows, DataLoader with two workers",
    ),
    Contender(
        "tf.data", PEER, "tensorflow_data", "tensorflow", "tensorflow", only=_PEERS, options={"loop": "compiled"},
        settings="TFRecord, shuffle(4096), batch, parse_example, decode_jpeg, two threads; TensorFlow's tensors, taken "
        "in a compiled loop; numbers of a row as two arrays",
    ),
    Contender(
        "tf.data, Python loop", PEER, "tensorflow_data", "tensorflow", "tensorflow", only=_PEERS,
        settings="the same, taken by `for batch in dataset` in Python",
    ),
)  # fmt: skip


def contenders_for(workload: str) -> list[Contender]:
    """Those that read a workload, in the order of the table."""
    return [contender for contender in CONTENDERS if contender.reads(workload)]
