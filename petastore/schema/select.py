"""Which fields of a schema are meant: by name, by regular expression, or by the field itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["match_unischema_fields", "select_fields"]


def match_unischema_fields(schema: Iterable[UnischemaField], field_regex: str | Iterable[str]) -> list[UnischemaField]:
    """Fields whose whole name matches one of the regular expressions.

    Args:
        schema: A `Unischema`, or any iterable of fields.
        field_regex: One expression or several, matched against the whole name (`re.fullmatch`).

    Returns:
        The matching fields in the order of `schema`, each once; an empty list where nothing matches.

    Raises:
        InvalidArgumentError: An expression is not valid.

    Example:
        >>> names = [UnischemaField(name, "int32") for name in ("id", "id_user", "age")]
        >>> [field.name for field in match_unischema_fields(names, ["id.*"])]
        ['id', 'id_user']
    """
    compiled = [_compiled(pattern) for pattern in ([field_regex] if isinstance(field_regex, str) else field_regex)]
    return [field for field in schema if any(pattern.fullmatch(field.name) for pattern in compiled)]


def select_fields(
    fields: Iterable[UnischemaField], wanted: Iterable[str | UnischemaField], *, among: str
) -> tuple[UnischemaField, ...]:
    """Fields that were asked for, in schema order.

    Args:
        fields: All there are.
        wanted: Names, regular expressions over whole names, or fields. A name that exists is taken literally, so
            columns such as `a.b` and `f(x)` need no escaping. A field is looked up by name: the stored definition wins.
        among: What is being selected from, for messages: `"the dataset"`.

    Raises:
        InvalidArgumentError: Something that was asked for matches no field.
    """
    if isinstance(wanted, (str, UnischemaField)):
        raise InvalidArgumentError(f"schema_fields takes a list, but {wanted!r} was given: put it into brackets")
    fields = tuple(fields)
    by_name = {field.name: field for field in fields}
    chosen: set[str] = set()
    for item in wanted:
        if isinstance(item, UnischemaField):
            matches = [by_name[item.name]] if item.name in by_name else []
        elif isinstance(item, str):
            matches = [by_name[item]] if item in by_name else match_unischema_fields(fields, item)
        else:
            raise InvalidArgumentError(
                f"schema_fields takes names, regular expressions and fields, but {item!r} was given"
            )
        if not matches:
            asked = item.name if isinstance(item, UnischemaField) else item
            raise InvalidArgumentError(
                f"no field of {among} is or matches {asked!r}; it has {', '.join(map(repr, by_name))}"
            )
        chosen.update(match.name for match in matches)
    if not chosen:
        raise InvalidArgumentError(
            f"schema_fields is empty; name at least one field of {among}, or leave it out for all"
        )
    return tuple(field for field in fields if field.name in chosen)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as problem:
        raise InvalidArgumentError(f"{pattern!r} is no valid regular expression: {problem}") from None
