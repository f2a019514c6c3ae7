"""Hints for unknown parameters: misspelled names, and names from other libraries with their petastore equivalents.

Users often try the parameter names of another loader first. The error for an unknown name suggests petastore's name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from petastore.errors import UnknownParameterError

__all__ = ["refuse_other_words"]

_BATCHES = (
    "a reader gives rows, or row groups, and the loader makes the batches: "
    "petastore.adapters.torch.DataLoader(reader, batch_size=…), petastore.adapters.tensorflow.make_tf_dataset(reader, "
    "batch_size=…), or reader.iter_batches(batch_size)"
)
_ORDER = "row groups are shuffled unless shuffle_row_groups=False; shuffle_rows=True also shuffles rows, by seed=…"
_WORKERS = "workers_count=… sets the number of threads or processes, and reader_pool_type=… which of them"
_RANK, _RANKS = "cur_shard=… is the rank, from 0", "shard_count=… is the number of ranks"

_LAST = "last_batch='drop' drops the last rows that do not fill a batch on every rank; last_batch='even' divides them"

_OTHER_WORDS: Final[Mapping[str, str]] = {
    "batch_size": _BATCHES,
    "collate_fn": _BATCHES,
    "shuffle": _ORDER,
    "shuffle_buffer_size": f"{_ORDER}; shuffle_buffer_bytes=… sets the size of the shuffle buffer",
    "buffer_size": f"{_ORDER}; shuffle_buffer_bytes=… sets the size of the shuffle buffer",
    "num_workers": _WORKERS,
    "workers": _WORKERS,
    "rank": _RANK,
    "shard_index": _RANK,
    "world_size": _RANKS,
    "num_replicas": _RANKS,
    "num_shards": _RANKS,
    "drop_last": _LAST,
    "columns": "schema_fields=[…] selects the columns",
    "fields": "schema_fields=[…] selects the columns",
    "ngram": "schema_fields=petastore.NGram(…) reads windows",
    "window": "schema_fields=petastore.NGram(…) reads windows",
    "transform": "transform_spec=petastore.TransformSpec(…) transforms rows",
    "filter": "filters=petastore.col('x') > 1 keeps rows",
    "epochs": "num_epochs=… is the number of epochs; None repeats forever",
    "repeat": "num_epochs=… is the number of epochs; None repeats forever",
    "prefetch": "a reader prefetches automatically, within memory_budget=…",
    "prefetch_factor": "a reader prefetches automatically, within memory_budget=…",
    "pin_memory": "the loader pins memory: petastore.adapters.torch.DataLoader(reader, device='cuda')",
    "cache_dir": "cache_type='local-disk', cache_location=… caches fetched data on the local disk",
}


def refuse_other_words(function: str, given: Iterable[str], *, own: Collection[str], known: Collection[str]) -> None:
    """Raise an error for an unknown parameter; the message suggests the parameter that was probably meant.

    Args:
        function: Name of the function.
        given: Names of the parameters that the caller passed.
        own: Names of the function's own parameters, which the message lists if no known name is similar.
        known: Names of all parameters that the function accepts, including those that it passes to other functions.

    Raises:
        UnknownParameterError: A parameter is unknown.
    """
    for name in given:
        if name not in known:
            raise UnknownParameterError(f"{function} has no parameter {name}: {_advice(name, own, known)}")


def _advice(name: str, own: Collection[str], known: Collection[str]) -> str:
    if name in _OTHER_WORDS:
        return _OTHER_WORDS[name]
    import difflib  # only needed for a wrong name

    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"its parameters are {', '.join(sorted(own))}"
