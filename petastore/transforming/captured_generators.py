"""Find random generators that a function captures: global variables, closures, attributes, module state.

Random numbers from a captured generator are not reproducible: threads share the generator, and each worker process has
a copy that draws the same numbers. With `TransformSpec(rng=…)`, random numbers depend only on seed, epoch and row.
"""

from __future__ import annotations

import dis
import functools
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from petastore.callers import frames_inside_petastore
from petastore.transforming.results import function_name

__all__ = ["captured_generators", "captured_values", "package_of", "warn_of_captured_generators"]

_MOST_THINGS = 10_000
"""Maximum values to inspect, because an object that a function references may contain millions."""

_MOST_ENTRIES = 256
"""Maximum entries of a container to inspect."""

_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_SHARED_STATES = {
    id(np.random.rand.__self__): "the global state of numpy.random",  # type: ignore[attr-defined]
    id(random.random.__self__): "the global state of the module random",  # type: ignore[attr-defined]
}
_SEEDS = (np.random.seed, random.seed)


def warn_of_captured_generators(func: Callable[..., Any]) -> None:
    """Warn about random generators that a transform's function captures.

    Warns:
        UserWarning: The function captures a generator; the warning names it.
    """
    if found := captured_generators(func):
        warnings.warn(
            f"the transform {function_name(func)} draws random numbers from {', '.join(found)}: the numbers depend on "
            "the worker and on timing, and worker processes draw the same numbers. Use a generator that is seeded by "
            "seed, epoch and row instead: TransformSpec(func, rng='rng') calls func(row, rng=generator)",
            UserWarning,
            stacklevel=frames_inside_petastore() + 1,
        )


def captured_generators(func: Callable[..., Any]) -> list[str]:
    """Return descriptions of the random generators that a function captures.

    A global random state that the function seeds itself is omitted.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> captured_generators(lambda row: {"x": row["x"] + rng.normal()})
        ["the global variable 'rng' (Generator)"]
        >>> captured_generators(lambda row: {"x": row["x"] + np.random.normal()})
        ['the global state of numpy.random']
        >>> captured_generators(lambda row, rng: {"x": row["x"] + rng.normal()})
        []
    """
    home = package_of(func)
    waiting: list[tuple[str, Any]] = [("the function", func)]
    seen: dict[int, Any] = {}
    found: dict[str, None] = {}
    seeds = False
    while waiting and len(seen) < _MOST_THINGS:
        name, thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # keep the object alive, so that its id is not reused
        seeds = seeds or any(thing == seed for seed in _SEEDS if type(thing) is type(seed))
        owner = getattr(thing, "__self__", None) if isinstance(thing, types.BuiltinMethodType) else thing
        if id(owner) in _SHARED_STATES:
            found[_SHARED_STATES[id(owner)]] = None
        elif isinstance(owner, _GENERATORS) and not isinstance(owner, random.SystemRandom):
            found[f"{name} ({type(owner).__name__})"] = None
        else:
            waiting += [(part_name or name, part) for part_name, part in captured_values(thing, home)]
    return [what for what in found if not (seeds and what in _SHARED_STATES.values())]


def captured_values(thing: Any, home: str) -> Iterator[tuple[str | None, Any]]:
    """Yield (description, object) for each object that a value refers to, such as variables of a function.

    The description is text for a message, such as `the attribute 'rng'`. None means that the description of `thing`
    itself fits, for example for the items of a list.

    Args:
        thing: Value whose references are returned; references of types and modules are not.
        home: Name of a top-level package; functions of other packages are not searched.

    Example:
        >>> list(captured_values(functools.partial(round, 3.14), home="builtins"))
        [(None, <built-in function round>), (None, (3.14,)), (None, {})]
    """
    if isinstance(thing, types.MethodType):
        yield from ((None, part) for part in (thing.__self__, thing.__func__))
    elif isinstance(thing, functools.partial):
        yield from ((None, part) for part in (thing.func, thing.args, thing.keywords))
    elif isinstance(thing, types.FunctionType):
        if package_of(thing) == home:
            yield from _parts_of_function(thing)
    elif isinstance(thing, dict):
        yield from ((None, part) for part in list(thing.values())[:_MOST_ENTRIES])
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from ((None, part) for part in list(thing)[:_MOST_ENTRIES])
    elif not isinstance(thing, (type, types.ModuleType)):
        yield from ((f"the attribute {name!r}", part) for name, part in getattr(thing, "__dict__", {}).items())
        if callable(thing):
            yield None, type(thing).__call__


def _parts_of_function(func: types.FunctionType) -> Iterator[tuple[str | None, Any]]:
    closure = dict(zip(func.__code__.co_freevars, func.__closure__ or (), strict=True))
    variables = {name: cell.cell_contents for name, cell in closure.items() if _has_value(cell)}
    yield from ((f"the variable {name!r} of the function around it", value) for name, value in variables.items())
    yield from (("the default of an argument", value) for value in (func.__defaults__, func.__kwdefaults__))
    yield None, func.__dict__
    yield from ((f"the global variable {name!r}", value) for name, value in _named(func.__code__, func.__globals__))


def _has_value(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # the closure variable has no value
        return False


def _named(code: types.CodeType, variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of the global variables and module attributes that bytecode loads.

    Modules that the function itself imports and the bytecode of inner functions are included.
    """
    imported: dict[str, Any] = {}
    name, value = "", None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM") and isinstance(value, types.ModuleType):
            name, value = step.argval, vars(value).get(step.argval)
            continue
        if step.opname.startswith("STORE_FAST") and value is not None:
            imported[step.argval] = value
        elif value is not None and not isinstance(value, types.ModuleType):
            yield name, value
        name, value = str(step.argval), None
        if "GLOBAL" in step.opname or step.opname == "LOAD_NAME":
            value = variables.get(name)
        elif step.opname.startswith("LOAD_FAST"):
            value = imported.get(name)
        elif step.opname == "IMPORT_NAME":
            value = sys.modules.get(name)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named(constant, variables)


def package_of(func: Any) -> str:
    """Return the name of the top-level package that a function belongs to; empty if it has none.

    Example:
        >>> package_of(np.linalg.norm)
        'numpy'
    """
    while isinstance(func, functools.partial):
        func = func.func
    return str(getattr(func, "__module__", None) or "").partition(".")[0]
