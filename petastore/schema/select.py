"""Select fields of a schema by name, regular expression or field object. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["match_unischema_fields", "member_field", "select_fields", "similar_name_advice"]


def match_unischema_fields(schema: Iterable[UnischemaField], field_regex: str | Iterable[str]) -> list[UnischemaField]:
    """Return the fields whose whole name matches one of the regular expressions.

    Args:
        schema: A `Unischema`, or an iterable of fields.
        field_regex: One or several expressions, matched against the whole name (`re.fullmatch`).

    Returns:
        The matching fields in the order of `schema`, each once; possibly empty.

    Raises:
        InvalidArgumentError: An expression is not valid.

    Example:
        >>> names = [UnischemaField(name, "int32") for name in ("id", "id_user", "age")]
        >>> [field.name for field in match_unischema_fields(names, ["id.*"])]
        ['id', 'id_user']
    """
    compiled = [_compiled(pattern) for pattern in ([field_regex] if isinstance(field_regex, str) else field_regex)]
    return [field for field in schema if any(pattern.fullmatch(field.name) for pattern in compiled)]


def member_field(fields: Mapping[str, UnischemaField], name: str) -> UnischemaField | None:
    """Return the field of a struct member, such as `geo.lat`.

    Return None if no struct among the fields has this member.

    Args:
        fields: Fields by name.
        name: Names of a struct and its members, joined by dots.

    Example:
        >>> import pyarrow as pa
        >>> from petastore.codecs import ArrowCodec
        >>> geo = UnischemaField("geo", object, (), ArrowCodec(pa.struct({"lat": pa.float64()})))
        >>> member_field({"geo": geo}, "geo.lat")
        UnischemaField('geo.lat', float64, nullable=True)
    """
    for parent in fields.values() if "." in name else ():
        member = getattr(parent.codec, "member", None) if name.startswith(f"{parent.name}.") else None
        found: UnischemaField | None = None if member is None else member(parent, name.removeprefix(f"{parent.name}."))
        if found is not None:
            return found
    return None


def select_fields(
    fields: Iterable[UnischemaField], wanted: Iterable[str | UnischemaField], *, among: str
) -> tuple[UnischemaField, ...]:
    """Return the selected fields, in schema order.

    Args:
        fields: All fields of the schema.
        wanted: Names, regular expressions over whole names, or fields. A name of an existing column is used literally,
            so columns such as `a.b` and `f(x)` need no escaping. Otherwise `geo.lat` is the member `lat` of the struct
            `geo`. For a field, the field of the schema with the same name is used.
        among: Name of the source of the fields, for messages: `"the dataset"`.

    Raises:
        InvalidArgumentError: A name or expression matches no field.
    """
    if isinstance(wanted, (str, UnischemaField)):
        raise InvalidArgumentError(
            f"schema_fields must be a list, got {wanted!r}. Pass [{getattr(wanted, 'name', wanted)!r}]"
        )
    fields = tuple(fields)
    by_name = {field.name: field for field in fields}
    chosen: set[str] = set()
    members: dict[str, UnischemaField] = {}
    for item in wanted:
        if not isinstance(item, (str, UnischemaField)):
            raise InvalidArgumentError(
                f"schema_fields must list field names, regular expressions or UnischemaField objects, got {item!r}"
            )
        name = item.name if isinstance(item, UnischemaField) else item
        member = None if name in by_name else member_field(by_name, name)
        if member is not None:
            members[name] = member
            continue
        if name in by_name:
            matches = [by_name[name]]
        else:
            matches = match_unischema_fields(fields, item) if isinstance(item, str) else []
        if not matches:
            raise InvalidArgumentError(
                f"schema_fields must match fields of {among} ({', '.join(map(repr, by_name))}), got {name!r}"
                f"{similar_name_advice(name, by_name)}"
            )
        chosen.update(match.name for match in matches)
    if not chosen and not members:
        raise InvalidArgumentError(
            f"schema_fields must name at least one field of {among}, got an empty list. Leave it out for all fields"
        )
    return (*(field for field in fields if field.name in chosen), *members.values())


def similar_name_advice(name: str, names: Iterable[str]) -> str:
    """Return a suggestion of a similar name, for an error message.

    Return an empty text if no name is similar.

    Args:
        name: Unknown name.
        names: Existing names.

    Example:
        >>> similar_name_advice("lable", ["id", "label"]), similar_name_advice("ID", ["id"])
        (". Did you mean 'label'?", ". Did you mean 'id'?")
        >>> similar_name_advice("color", ["id", "label"])
        ''
    """
    import difflib  # imported late, because only errors need it

    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f". Did you mean {by_lower[near[0]]!r}?" if near else ""


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as problem:
        raise InvalidArgumentError(
            f"schema_fields must have valid regular expressions, got {pattern!r}: {problem}"
        ) from None
