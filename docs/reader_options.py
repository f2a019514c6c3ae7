"""Functions that take reader options get, on the site, the signature and description that they have at run time."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from griffe import Docstring, Extension, Function, Object, Parameter, ParameterKind, Parameters

__all__ = ["ReaderOptions"]


class ReaderOptions(Extension):
    """Replace `**options` by the parameters that `petastore.readers.options` declares."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for each object, once it is loaded."""
        if isinstance(obj, Function) and any("PETASTORMS_ORDER" in str(each.value) for each in obj.decorators):
            _expand(obj)


def _expand(func: Function) -> None:
    found = getattr(importlib.import_module(func.module.path), func.name)
    func.parameters = Parameters(*map(_parameter, inspect.signature(found).parameters.values()))
    if func.docstring is not None:
        func.docstring = Docstring(inspect.cleandoc(found.__doc__), lineno=func.docstring.lineno, parent=func)


def _parameter(given: inspect.Parameter) -> Parameter:
    keyword_only = given.kind is given.KEYWORD_ONLY
    return Parameter(
        given.name,
        annotation=None if given.annotation is given.empty else str(given.annotation),
        kind=ParameterKind.keyword_only if keyword_only else ParameterKind.positional_or_keyword,
        default=None if given.default is given.empty else repr(given.default),
    )
