"""Signatures and docstrings of functions that take reader options as `**options`, built from `readers/options.py`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, ParamSpec, TypeVar

from petastore.readers.other_words import refuse_other_words

__all__ = ["names_of", "takes_options"]

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
