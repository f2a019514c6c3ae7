"""Functions by value: what workers need to run a function that they cannot import, as a pickle.

A worker finds a function or class by its name if its module can be imported there. Those of the program's main module,
of a notebook and of `exec`, lambdas and functions inside functions travel as what they are made of: their code, the
global variables that the code names, what closures hold, defaults and attributes; classes as bases and attributes. What
is referred to travels by the same rule, and a module as its name: it is imported where a function names it, and nowhere
else.

Functions that share global variables, or a closure, share them in the worker, too, if they travel in one pickle. What
code does not name does not travel: variables that are looked up by `globals()` or `eval`, and annotations of functions.

Such a pickle is for a process that this one starts, of the same interpreter, and for nobody else: it holds byte code.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import dis
import enum
import functools
import importlib
import io
import marshal
import pickle
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["dumps", "what_cannot_travel"]

_HEAP_TYPE = 1 << 9
"""Of `__flags__`: the class was made by a `class` statement, or as one; others are C's."""

_OF_THE_SKELETON = ("__module__", "__qualname__", "__slots__", "__orig_bases__")
"""Attributes with which a class begins; the others are set afterwards, as they may refer to the class."""

_MADE_AGAIN = ("__dict__", "__weakref__", "_abc_impl")
"""Attributes that each class makes for itself."""

_COMPUTES_ANNOTATIONS = ("__annotate_func__", "__annotations_cache__")
"""Where a class has its annotations from Python 3.14 on: a function gives them, and what it gives travels."""

_OF_FUNCTIONS = ("__defaults__", "__kwdefaults__", "__dict__", "__doc__", "__module__", "__qualname__")

_DATACLASSES_OWN = {
    id(value): name for name, value in vars(dataclasses).items() if type(value).__module__ == "dataclasses"
}
"""Values by whose identity dataclasses know something, such as `MISSING`."""


def dumps(thing: object, buffers: list[pickle.PickleBuffer]) -> bytes:
    """The pickle of a thing; `pickle.loads(…, buffers=buffers)` undoes it in a worker.

    Args:
        thing: Anything that pickle takes, and what this module adds to it.
        buffers: Where the memory of arrays is put, which is not in the pickle; it is theirs, and not copied.

    Raises:
        Exception: What pickle raises of values that it does not take; `what_cannot_travel` names them.

    Example:
        >>> step = 3
        >>> travels = dumps(lambda number: number + step, [])
        >>> pickle.loads(travels)(4)
        7
    """
    file = io.BytesIO()
    _Pickler(file, buffers).dump(thing)
    return file.getvalue()


def what_cannot_travel(thing: object) -> str:
    """The way from a thing that `dumps` does not take to the value that is why, in words, and what is said of it.

    Example:
        >>> import threading
        >>> lock = threading.Lock()
        >>> what_cannot_travel(lambda row: lock.locked())
        "global variable 'lock' (cannot pickle '_thread.lock' object)"
    """
    way: list[str] = []
    seen = {id(thing)}
    while True:
        for name, part in _parts(thing):
            problem = _problem(part)
            if problem is not None and id(part) not in seen:
                way.append(name)
                thing = part
                seen.add(id(part))
                break
        else:
            return f"{', '.join(way) or 'the function itself'} ({_problem(thing)})"


def _problem(thing: object) -> Exception | None:
    try:
        dumps(thing, [])
    except Exception as problem:  # noqa: BLE001 - a value of the user's may raise anything here
        return problem
    return None


def _parts(thing: object) -> Iterator[tuple[str, object]]:
    """What a function or an object refers to, with a name each."""
    if isinstance(thing, types.MethodType):
        thing = thing.__self__
    if isinstance(thing, types.FunctionType):
        names = _global_names(thing.__code__)
        yield from ((f"global variable {name!r}", thing.__globals__[name]) for name in names & thing.__globals__.keys())
        for name, held in zip(thing.__code__.co_freevars, map(_contents, thing.__closure__ or ()), strict=True):
            yield from ((f"variable {name!r} of the function around it", value) for value in held)
    yield from ((f"attribute {name!r}", value) for name, value in getattr(thing, "__dict__", {}).items())


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self._namespaces: dict[int, dict[str, Any]] = {}
        """Global variables of functions, by the identity of those here: one dict there, too."""
        self._made: dict[int, type] = {}
        """Classes that were made there, by their identity here: bases may know a class before it is made of them."""

    def reducer_override(self, thing: Any) -> Any:
        """How a thing is made there; NotImplemented leaves it to pickle."""
        if id(thing) in _DATACLASSES_OWN:
            return getattr, (dataclasses, _DATACLASSES_OWN[id(thing)])
        if isinstance(thing, types.ModuleType):
            return importlib.import_module, (_importable_name(thing),)
        if isinstance(thing, type):
            return (
                NotImplemented if not thing.__flags__ & _HEAP_TYPE or _is_found(thing) else _of_class(thing, self._made)
            )
        if isinstance(thing, types.FunctionType):
            return NotImplemented if _is_found(thing) else self._of_function(thing)
        reduced = _REDUCED.get(type(thing))
        return NotImplemented if reduced is None or _is_found(thing) else reduced(thing)

    def _of_function(self, func: types.FunctionType) -> tuple[Any, ...]:
        here = func.__globals__
        named = {name: here.get(name) for name in ("__name__", "__package__")}
        there = self._namespaces.setdefault(id(here), named)
        refers = {name: here[name] for name in sorted(_global_names(func.__code__) & here.keys())}
        cells = func.__closure__ or ()
        state = (
            refers,
            [_contents(cell) for cell in cells],
            {name: getattr(func, name) for name in _OF_FUNCTIONS},
            _submodules(func.__code__, refers),
        )
        return _make_function, (func.__code__, there, func.__name__, cells), state, None, None, _fill_function


def _make_function(
    code: types.CodeType, variables: dict[str, Any], name: str, cells: tuple[types.CellType, ...]
) -> types.FunctionType:
    variables.setdefault("__builtins__", builtins)
    return types.FunctionType(code, variables, name, None, cells or None)


def _fill_function(func: types.FunctionType, state: tuple[Any, ...]) -> None:
    refers, cells, attributes, _ = state
    func.__globals__.update(refers)
    for cell, held in zip(func.__closure__ or (), cells, strict=True):
        for value in held:
            cell.cell_contents = value
    for name, value in attributes.items():
        setattr(func, name, value)


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    """None or one: the variable of a closure may have no value yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """That of a function, and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _global_names(code: types.CodeType) -> set[str]:
    steps = (step for each in _codes(code) for step in dis.get_instructions(each))
    return {step.argval for step in steps if "GLOBAL" in step.opname or step.opname == "LOAD_NAME"}


def _submodules(code: types.CodeType, refers: Mapping[str, object]) -> list[types.ModuleType]:
    """Of the packages that code names those modules that it reaches as attributes, as in `xml.etree.ElementTree`."""
    names = {name for each in _codes(code) for name in each.co_names}
    packages = tuple(f"{value.__name__}." for value in refers.values() if isinstance(value, types.ModuleType))
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType)
        and any(name.startswith(package) and names.issuperset(name[len(package) :].split(".")) for package in packages)
    ]


def _of_class(cls: type, made: dict[int, type]) -> tuple[Any, ...]:
    begins = {name: vars(cls)[name] for name in _OF_THE_SKELETON if name in vars(cls)}
    # `__qualname__` is in no class's own variables: the class statement takes it out of them.
    begins["__qualname__"] = cls.__qualname__
    left_out = {*_OF_THE_SKELETON, *_MADE_AGAIN, *_COMPUTES_ANNOTATIONS}
    members: dict[str, dict[str, Any]] = {}
    if isinstance(cls, enum.EnumMeta):
        listed: Mapping[str, Any] = cls.__members__
        members = {name: vars(member) for name, member in listed.items()}
        begins |= {name: variables["_value_"] for name, variables in members.items()}
        # What the metaclass puts there has one underscore at both ends, but for `__new__`.
        left_out |= {"__new__", *members, *(name for name in vars(cls) if name[0] == name[-1] == "_" != name[1])}
    attributes = {
        name: value
        for name, value in vars(cls).items()
        if name not in left_out and not isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))
    }
    if "__annotate_func__" in vars(cls):
        with contextlib.suppress(NameError):  # of a name that there is for type checkers only
            attributes["__annotations__"] = dict(cls.__annotations__)
    is_named = _at(cls) is cls and cls.__name__ == cls.__qualname__
    made_of = (made, id(cls), type(cls), cls.__name__, cls.__bases__, begins, is_named)
    return _make_class, made_of, (attributes, members), None, None, _fill_class


def _make_class(
    made: dict[int, type],
    identity: int,
    metaclass: type,
    name: str,
    bases: tuple[type, ...],
    begins: dict[str, Any],
    is_named: bool,
) -> type:
    if identity in made:
        return made[identity]

    def begin(variables: dict[str, Any]) -> None:
        for key, value in begins.items():
            variables[key] = value  # noqa: PERF403 - one by one: an enumeration notes its members as they come

    # The program has told its classes of their subclasses; and these have no attributes yet.
    hooks = [(base, vars(base)["__init_subclass__"]) for base in made.values() if "__init_subclass__" in vars(base)]
    for base, _ in hooks:
        type.__delattr__(base, "__init_subclass__")
    made[identity] = cls = types.new_class(name, bases, {"metaclass": metaclass}, begin)
    for base, hook in hooks:
        type.__setattr__(base, "__init_subclass__", hook)
    if is_named:
        # So that its instances, and errors above all, find the way back by its name.
        module = sys.modules.setdefault(cls.__module__, types.ModuleType(cls.__module__))
        setattr(module, name, cls)
    return cls


def _fill_class(cls: type, state: tuple[dict[str, Any], dict[str, dict[str, Any]]]) -> None:
    attributes, members = state
    for name, value in attributes.items():
        type.__setattr__(cls, name, value)
    for name, variables in members.items():
        vars(getattr(cls, name)).update(variables)


def _make_cell() -> types.CellType:
    return types.CellType()


def _make_proxy(mapping: dict[Any, Any]) -> types.MappingProxyType[Any, Any]:
    return types.MappingProxyType(mapping)


def _make_cache(func: Callable[..., Any], maxsize: int | None, typed: bool) -> Callable[..., Any]:
    return functools.lru_cache(maxsize, typed)(func)


_REDUCED: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    # What is in it is the matter of the functions that have it, which may be in it.
    types.CellType: lambda _: (_make_cell, ()),
    types.CodeType: lambda code: (marshal.loads, (marshal.dumps(code),)),
    types.MappingProxyType: lambda proxy: (_make_proxy, (dict(proxy),)),
    property: lambda one: (property, (one.fget, one.fset, one.fdel, one.__doc__)),
    classmethod: lambda method: (classmethod, (method.__func__,)),
    staticmethod: lambda method: (staticmethod, (method.__func__,)),
    functools.cached_property: lambda one: (  # noqa: TID251 - a user's
        functools.cached_property,  # noqa: TID251
        (one.func,),
        {"attrname": one.attrname},
    ),
    type(functools.lru_cache(len)): lambda cache: (
        _make_cache,
        (cache.__wrapped__, *cache.cache_parameters().values()),
    ),
    typing.TypeVar: lambda one: (typing.TypeVar, (one.__name__, *one.__constraints__)),
    typing.NewType: lambda one: (typing.NewType, (one.__name__, one.__supertype__)),
}


def _is_found(thing: Any) -> bool:
    """Whether a worker finds a thing by its name."""
    return _at(thing) is thing and _is_importable(thing.__module__)


def _at(thing: Any) -> object:
    """What is found here by the name of a thing; None where it has none."""
    found: object = sys.modules.get(getattr(thing, "__module__", None) or "")
    name: Any = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", "")
    for part in str(name).split("."):
        found = getattr(found, part, None)
    return found


def _is_importable(name: str) -> bool:
    """Whether a worker, which has the paths of this process, can import a module of this process."""
    if name == "__main__" or (name in sys.modules and getattr(sys.modules[name], "__spec__", None) is None):
        return False
    root = name.partition(".")[0]
    # Not `importlib.util.find_spec`: it says yes to all that is imported here, from wherever.
    return any(finder.find_spec(root, None) is not None for finder in sys.meta_path)


def _importable_name(module: types.ModuleType) -> str:
    name = module.__name__
    if not _is_importable(name):
        raise pickle.PicklingError(f"workers cannot import the module {name!r}")
    return name
