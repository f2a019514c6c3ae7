"""Words that other libraries have for what is asked of a reader, and what they are called here.

Who comes from another loader tries its words first. An unknown one is answered with what to write instead.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec, TypeVar

from petastore.errors import UnknownParameterError

__all__ = ["answering_other_words"]

_Asked = ParamSpec("_Asked")
_Given = TypeVar("_Given")

_BATCHES = (
    "a reader gives rows, or row groups, and batches are cut by who takes them: "
    "petastore.adapters.torch.DataLoader(reader, batch_size=…), petastore.adapters.tensorflow.make_tf_dataset(reader, "
    "batch_size=…), or reader.iter_batches(batch_size)"
)
_ORDER = (
    "row groups are shuffled unless shuffle_row_groups=False; shuffle_rows=True shuffles their rows, seed=… says how"
)
_WORKERS = "workers_count=… is how many threads or processes read ahead, and reader_pool_type which of them"
_RANK, _RANKS = "cur_shard=… is the rank, from 0", "shard_count=… is the number of ranks"

_LAST = "last_batch='drop' leaves out the last rows that fill no batch on every rank; last_batch='even' shares them"

_OTHER_WORDS: Final[Mapping[str, str]] = {
    "batch_size": _BATCHES,
    "collate_fn": _BATCHES,
    "shuffle": _ORDER,
    "shuffle_buffer_size": f"{_ORDER}; shuffle_buffer_bytes=… is how far they are mixed",
    "buffer_size": f"{_ORDER}; shuffle_buffer_bytes=… is how far they are mixed",
    "num_workers": _WORKERS,
    "workers": _WORKERS,
    "rank": _RANK,
    "shard_index": _RANK,
    "world_size": _RANKS,
    "num_replicas": _RANKS,
    "num_shards": _RANKS,
    "drop_last": _LAST,
    "tail": _LAST,
    "shuffle_memory": "shuffle_buffer_bytes=… is how far shuffle_rows=True mixes rows",
    "selection_cache": "filter_cache=… is where row counts of filters are kept",
    "columns": "schema_fields=[…] names what is read",
    "fields": "schema_fields=[…] names what is read",
    "transform": "transform_spec=petastore.TransformSpec(…) changes what is read",
    "filter": "filters=petastore.col('x') > 1 keeps rows",
    "epochs": "num_epochs=… is how often all is read; None is without end",
    "repeat": "num_epochs=… is how often all is read; None is without end",
    "prefetch": "a reader reads ahead by itself, as far as memory_budget=… lets it",
    "prefetch_factor": "a reader reads ahead by itself, as far as memory_budget=… lets it",
    "pin_memory": "memory is pinned by who copies: petastore.adapters.torch.DataLoader(reader, device='cuda')",
    "cache_dir": "cache_type='local-disk', cache_location=… keeps what is fetched on the local disk",
}


def answering_other_words(
    function: Callable[_Asked, _Given], further: Callable[..., object] | None = None
) -> Callable[_Asked, _Given]:
    """A function of which each unknown parameter is refused with the name that it has here, or the nearest one.

    Args:
        function: The function.
        further: The function that takes what `function` has as `**`, behind a first argument; None takes nothing.

    Raises:
        UnknownParameterError: By the function, before anything is done.

    Example:
        >>> answering_other_words(lambda *, workers_count: None)(num_workers=4)
        Traceback (most recent call last):
        petastore.errors.UnknownParameterError: <lambda> has no parameter num_workers: workers_count=… is how many
        threads or processes read ahead, and reader_pool_type which of them
    """
    own = _names_of(function)
    known = own if further is None else own.union(list(inspect.signature(further).parameters)[1:])

    @functools.wraps(function)
    def answering(*args: _Asked.args, **kwargs: _Asked.kwargs) -> _Given:
        for name in kwargs:
            if name not in known:
                raise UnknownParameterError(f"{function.__name__} has no parameter {name}: {_advice(name, own, known)}")
        return function(*args, **kwargs)

    return answering


def _names_of(function: Callable[..., object]) -> frozenset[str]:
    """Return the names of parameters that can be passed by keyword."""
    return frozenset(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    )


def _advice(name: str, own: frozenset[str], known: frozenset[str]) -> str:
    if name in _OTHER_WORDS:
        return _OTHER_WORDS[name]
    import difflib  # which only a wrong name needs

    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"its parameters are {', '.join(sorted(own))}"
