"""Signatures and docstrings of functions that take reader options as `**options`, and hints for unknown options.

Signatures are built from `readers/options.py`. Users often try the parameter names of another loader first, so the
error for an unknown name suggests the name in petastore. The same holds for misspelled names.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, ParamSpec, TypeVar

from petastore.errors import UnknownParameterError

__all__ = ["names_of", "refuse_other_words", "takes_options"]

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


_Asked = ParamSpec("_Asked")
_Given = TypeVar("_Given")


@functools.cache
def names_of(group: type) -> tuple[str, ...]:
    """Return the parameter names of an option group (a dataclass of `readers/options.py`), in order."""
    return tuple(field.name for field in dataclasses.fields(group) if field.name != "url")


def takes_options(
    *groups: type, without: Collection[str] = (), positional: Collection[str] = ()
) -> Callable[[Callable[_Asked, _Given]], Callable[_Asked, _Given]]:
    """Decorator for a function with `**options`: sets its signature to the parameters of some option groups.

    An unknown parameter raises an error before the function runs; the error suggests petastore's name. The text
    `{options}` in the docstring is replaced with the descriptions, for `help()` and the API reference.

    Args:
        *groups: Groups of options.
        without: Parameters of the groups that the function does not take.
        positional: Parameters that may be given by position, in this order; all others are keyword-only.
    """

    def decorate(function: Callable[_Asked, _Given]) -> Callable[_Asked, _Given]:
        own = inspect.signature(function)
        fields = {
            field.name: field
            for group in groups
            for field in dataclasses.fields(group)
            if field.name != "url" and field.name not in without and field.name not in own.parameters
        }
        ordered = [
            *(name for name in positional if name in fields),
            *(name for name in fields if name not in positional),
        ]
        variable = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        explicit = [each for each in own.parameters.values() if each.kind not in variable]
        further = [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD if name in positional else inspect.Parameter.KEYWORD_ONLY,
                default=fields[name].default,
                annotation=fields[name].type,
            )
            for name in ordered
        ]
        signature = own.replace(parameters=sorted([*explicit, *further], key=lambda each: each.kind))
        known = frozenset(signature.parameters) - {"self"}
        called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @functools.wraps(function)
        def taking(*args: _Asked.args, **given: _Asked.kwargs) -> _Given:
            refuse_other_words(called, given, own=known, known=known)
            return function(**signature.bind(*args, **given).arguments)  # type: ignore[call-arg]

        taking.__signature__ = signature  # type: ignore[attr-defined]
        if function.__doc__ is not None:
            taking.__doc__ = function.__doc__.replace("        {options}\n", _sections(groups, ordered))
        return taking

    return decorate


_SECTION: Final = re.compile(r"^ {4}Args: (.+)\n((?: {8}.*\n)+)", re.MULTILINE)
_DESCRIPTION: Final = re.compile(r"^ {8}(\w+): .*\n(?: {12}.*\n)*", re.MULTILINE)
_TITLES: Final = (
    "Data",
    "Epochs and sharding",
    "Shuffling",
    "Filtering",
    "Bad rows",
    "Workers and memory",
    "Monitoring",
    "Cache",
    "Storage",
    "Deprecated",
)
"""Titles of the sections, in order; the first section follows the function's own parameters."""


def _sections(groups: Iterable[type], names: Collection[str]) -> str:
    """Return the descriptions of parameters as docstring text, in the `Args:` sections of the groups' docstrings."""
    entries: dict[str, list[str]] = {title: [] for title in _TITLES}
    for group in groups:
        for section in _SECTION.finditer(group.__doc__ or ""):
            described = _DESCRIPTION.finditer(section[2])
            entries[section[1]] += [entry[0] for entry in described if entry[1] in names]
    first, *others = _TITLES
    headed = [f"\n    Args: {title}\n{''.join(entries[title])}" for title in others if entries[title]]
    return "".join([*entries[first], *headed])
