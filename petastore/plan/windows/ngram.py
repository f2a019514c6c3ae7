"""NGram: windows of consecutive rows, with fields at each offset. No I/O."""

from __future__ import annotations

import datetime as dt
import numbers
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Self

import numpy as np

from petastore.errors import InvalidArgumentError
from petastore.plan.windows.series import SeriesLine, series_of_group
from petastore.plan.windows.window_starts import comparable, most_between
from petastore.schema.field import UnischemaField
from petastore.schema.select import select_fields
from petastore.schema.unischema import Unischema

__all__ = ["NGram"]


class NGram:
    """Windows of consecutive rows for time series.

    Pass the object as `schema_fields` of `make_reader` or `make_batch_reader`. A window has `length` consecutive rows;
    timestamps of neighboring rows differ by at most `delta_threshold`. Rows are taken in file order (files sorted by
    path, row groups in order), and a window may span several row groups and files. A new sequence begins at a row group
    whose first timestamp is less than the last timestamp of the previous row group. Within a row group, rows must be
    sorted by timestamp; otherwise the reader raises `InvalidArgumentError`.

    Offsets may be negative and have gaps: `{-2: […], 0: […]}` has length 3, and no field of the middle row.

    Args:
        fields: Dict from offset (an int) to the fields at that offset: names, regular expressions that match whole
            names, or fields.
        delta_threshold: Maximum difference between the timestamps of neighboring rows (inclusive): a number of at least
            0, or `datetime.timedelta` or `numpy.timedelta64` for time columns. Infinity means no limit.
        timestamp_field: Scalar field by which rows are sorted: numbers, decimals or times, without missing values. It
            need not be among `fields`.
        timestamp_overlap: Whether windows may overlap. If False, each window begins with the first row whose timestamp
            is later than the last timestamp of the previous window. A gap above `delta_threshold` starts a new
            sequence, and an incomplete window before the gap is dropped.
        group_by: Scalar column or columns that identify the series of a row, such as a sensor id; without missing
            values. Each window has rows of one series, also across row groups and files. Within a row group, the rows
            of each series must be sorted by timestamp. None treats all rows as one series.

    Raises:
        InvalidArgumentError: An argument is invalid; the message names it.

    Example:
        >>> lidar, steering = UnischemaField("lidar", "float32", (64,)), UnischemaField("steering", "float32")
        >>> ngram = NGram({-1: [lidar], 0: [lidar, steering]}, delta_threshold=100, timestamp_field="time")
        >>> ngram.length, ngram.get_field_names_at_timestep(0), ngram.get_field_names_at_timestep(7)
        (2, ['lidar', 'steering'], [])
        >>> NGram({0: ["value"], 1: ["value"]}, 1, "time", group_by="sensor").group_by
        ('sensor',)
    """

    def __init__(
        self,
        fields: Mapping[int, Sequence[UnischemaField | str]],
        delta_threshold: Any,
        timestamp_field: UnischemaField | str,
        timestamp_overlap: bool = True,
        *,
        group_by: UnischemaField | str | Sequence[UnischemaField | str] | None = None,
    ) -> None:
        if not isinstance(timestamp_overlap, (bool, np.bool_)):
            raise InvalidArgumentError(f"timestamp_overlap must be True or False, got {timestamp_overlap!r:.100}")
        if not isinstance(timestamp_field, (str, UnischemaField)):
            raise InvalidArgumentError(f"timestamp_field must be a field or its name, got {timestamp_field!r:.100}")
        self._fields = _checked_fields(fields)
        self._delta_threshold = _checked_threshold(delta_threshold)
        self._timestamp_field = timestamp_field
        self._timestamp_overlap = bool(timestamp_overlap)
        self._group_by = _checked_series(group_by)

    @property
    def fields(self) -> dict[int, list[UnischemaField | str]]:
        """Fields at each offset, by ascending offset, in a new dict.

        Fields are in the form in which they were passed, or resolved by a schema.
        """
        return {offset: list(of_offset) for offset, of_offset in self._fields.items()}

    @property
    def length(self) -> int:
        """Number of rows in a window, including offsets without fields."""
        return max(self._fields) - min(self._fields) + 1

    @property
    def offsets(self) -> range:
        """All offsets of a window, including those without fields."""
        return range(min(self._fields), max(self._fields) + 1)

    @property
    def delta_threshold(self) -> Any:
        """Maximum difference between the timestamps of neighboring rows."""
        return self._delta_threshold

    @property
    def timestamp_field(self) -> UnischemaField | str:
        """Field by which rows are sorted: as it was passed, or resolved by a schema."""
        return self._timestamp_field

    @property
    def timestamp_overlap(self) -> bool:
        """Whether windows may overlap and so share timestamps."""
        return self._timestamp_overlap

    @property
    def group_by(self) -> tuple[UnischemaField | str, ...]:
        """Columns that identify a series; () if all rows are one series.

        Columns are in the form in which they were passed, or resolved by a schema.
        """
        return self._group_by

    def resolved(self, schema: Unischema) -> NGram:
        """Return a copy that has the fields of a schema instead of names and patterns.

        Names and regular expressions are replaced by fields in the order of the schema.

        Raises:
            InvalidArgumentError: A name or expression matches no field, or several fields match the timestamp.

        Example:
            >>> schema = Unischema("s", [UnischemaField(name, "int64") for name in ("time", "x1", "x2")])
            >>> NGram({0: ["x.*"]}, 1, "time").resolved(schema).get_field_names_at_timestep(0)
            ['x1', 'x2']
        """
        fields = {
            offset: select_fields(schema, of_offset, among=f"schema {schema.name!r}") if of_offset else ()
            for offset, of_offset in self._fields.items()
        }
        series = self.series_in(schema)
        return NGram(
            fields, self._delta_threshold, self.timestamp_in(schema), self._timestamp_overlap, group_by=series or None
        )

    def series_in(self, schema: Unischema) -> tuple[UnischemaField, ...]:
        """Return the fields of a schema that identify the series of a row.

        Raises:
            InvalidArgumentError: A name matches no field, or a field is not a scalar of numbers, text or times.
        """
        fields = select_fields(schema, self._group_by, among=f"schema {schema.name!r}") if self._group_by else ()
        for field in fields:
            if not field.is_scalar or field.numpy_dtype is np.object_:
                raise InvalidArgumentError(
                    f"group_by must name scalar columns of numbers, text or times, got {field!r}. Name another column"
                )
        return tuple(fields)

    def timestamp_in(self, schema: Unischema) -> UnischemaField:
        """Return the field of a schema by which rows are sorted (the timestamp field).

        Raises:
            InvalidArgumentError: No field matches, or several do.
        """
        fields = select_fields(schema, [self._timestamp_field], among=f"schema {schema.name!r}")
        if len(fields) != 1:
            names = ", ".join(repr(field.name) for field in fields)
            raise InvalidArgumentError(
                f"timestamp_field must match one field, got {self._timestamp_field!r}, which matches {names}. Pass the "
                "name of one field"
            )
        return fields[0]

    def resolve_regex_field_names(self, schema: Unischema) -> None:
        """Replace names and regular expressions in this object by the fields of a schema.

        Raises:
            InvalidArgumentError: As in `resolved`.
        """
        resolved = self.resolved(schema)
        self._fields = _checked_fields(resolved.fields)
        self._timestamp_field = resolved.timestamp_field
        self._group_by = resolved.group_by

    def get_field_names_at_timestep(self, timestep: int) -> list[str]:
        """Return the names of the fields at an offset; empty if the offset does not exist."""
        return [_name(field) for field in self._fields.get(timestep, ())]

    def offsets_of(self, name: str) -> list[int]:
        """Return the offsets that have a field, ascending.

        In batches, the second axis of the field's column has these offsets.

        Example:
            >>> NGram({-2: ["x"], 0: ["x", "y"]}, 1, "time").offsets_of("x")
            [-2, 0]
        """
        return [offset for offset in self._fields if name in self.get_field_names_at_timestep(offset)]

    def get_field_names_at_all_timesteps(self) -> list[UnischemaField | str]:
        """Return the fields of all offsets, each field once.

        As in Petastorm, the result has the fields as they were passed or resolved, although the method's name says
        "names".
        """
        return list(dict.fromkeys(field for of_offset in self._fields.values() for field in of_offset))

    def get_schema_at_timestep(self, schema: Unischema, timestep: int) -> Unischema:
        """Return the schema of the fields at an offset, named `<name>_view`.

        It has no fields if the offset does not exist.

        Example:
            >>> schema = Unischema("s", [UnischemaField(name, "int64") for name in ("time", "x")])
            >>> NGram({-1: ["x"], 1: ["time"]}, 1, "time").get_schema_at_timestep(schema, 1).row_type(7)
            s_view(time=7)
        """
        names = set(self.get_field_names_at_timestep(timestep))
        return Unischema(f"{schema.name}_view", [field for field in schema if field.name in names])

    def make_namedtuple(self, schema: Unischema, ngram_as_dicts: Mapping[int, Mapping[str, Any]]) -> dict[int, Any]:
        """Return a window of named tuples from a window of dicts.

        Args:
            schema: Schema of the rows.
            ngram_as_dicts: Dict from offset to row, with the fields of that offset.
        """
        return {
            offset: self.get_schema_at_timestep(schema, offset).make_namedtuple(**row)
            for offset, row in ngram_as_dicts.items()
        }

    def form_ngram(self, data: Sequence[Mapping[str, Any]], schema: Unischema) -> list[dict[int, dict[str, Any]]]:
        """Return the windows of a list of rows, as in Petastorm; readers do not use it.

        Args:
            data: Rows in the order of their timestamps.
            schema: Schema of the rows.

        Returns:
            For each window a dict from offset to row, with the fields of that offset.

        Raises:
            InvalidArgumentError: Rows are not sorted by timestamp, or an error of `resolved`.

        Example:
            >>> schema = Unischema("s", [UnischemaField(name, "int64") for name in ("time", "x")])
            >>> rows = [{"time": time, "x": 10 * time} for time in (0, 1, 5, 6)]
            >>> NGram({0: ["x"], 1: ["time"]}, 1, "time").form_ngram(rows, schema)
            [{0: {'x': 0}, 1: {'time': 1}}, {0: {'x': 50}, 1: {'time': 6}}]
        """
        field = self.timestamp_in(schema)
        most = most_between(self._delta_threshold, field)
        if not data:
            return []
        resolved = self.resolved(schema)
        names = {offset: resolved.get_field_names_at_timestep(offset) for offset in self.offsets}
        series = [key.name for key in self.series_in(schema)]
        keys: dict[tuple[Any, ...], int] = {}
        codes = np.array([keys.setdefault(tuple(row[key] for key in series), len(keys)) for row in data], np.int32)
        timestamps = comparable(np.array([row[field.name] for row in data], dtype=field.dtype))
        rows = series_of_group(codes, list(keys), timestamps, most)
        if rows.unsorted is not None:
            raise InvalidArgumentError(
                f"rows must be sorted by {field.name!r}, got row {rows.unsorted[0]:,} with a smaller value than the "
                "row before. Sort the rows"
            )
        line = SeriesLine.of(1, {0: rows})
        ((_, flags),) = line.window_starts({0: rows}, most, length=self.length, overlap=self._timestamp_overlap)
        order = np.arange(len(data)) if rows.order is None else rows.order
        windows = sorted(order[first : first + self.length].tolist() for first in np.flatnonzero(flags))
        return [
            {
                offset: {name: data[row][name] for name in names[offset]}
                for offset, row in zip(names, window, strict=True)
            }
            for window in windows
        ]

    def asks_the_same(self, other: NGram) -> bool:
        """Return whether another `NGram` has the same windows with the same field names.

        Other attributes of the fields, such as codecs, may differ.

        Example:
            >>> NGram({0: ["x"]}, 1, "time").asks_the_same(NGram({0: [UnischemaField("x", "int8")]}, 1.0, "time"))
            True
        """
        ours, theirs = (
            (
                {offset: set(ngram.get_field_names_at_timestep(offset)) for offset in ngram.fields},
                ngram.delta_threshold,
                _name(ngram.timestamp_field),
                ngram.timestamp_overlap,
                [_name(field) for field in ngram.group_by],
            )
            for ngram in (self, other)
        )
        return ours == theirs

    def _key(self) -> tuple[Any, ...]:
        """Return the values that `==` compares, as a tuple."""
        fields = tuple((offset, frozenset(of_offset)) for offset, of_offset in self._fields.items())
        return fields, self._delta_threshold, self._timestamp_field, self._timestamp_overlap, self._group_by

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, NGram) else NotImplemented

    def __hash__(self) -> int:
        # Fields are not hashed, because `resolve_regex_field_names` changes them in place, and a hash must not change.
        return hash((tuple(self._fields), self._timestamp_overlap))

    def __iter__(self) -> Iterator[Any]:
        # If a user passes an NGram to a function that expects a list of fields, its loop over the fields raises this.
        raise InvalidArgumentError(
            "an NGram cannot be used as a list of fields. Pass it as schema_fields to make_reader or make_batch_reader"
        )

    def __copy__(self) -> Self:
        return type(self)(
            self._fields,
            self._delta_threshold,
            self._timestamp_field,
            self._timestamp_overlap,
            group_by=self._group_by or None,
        )

    def __repr__(self) -> str:
        names = {offset: self.get_field_names_at_timestep(offset) for offset in self._fields}
        by = _name(self._timestamp_field)
        overlap = "" if self._timestamp_overlap else ", timestamp_overlap=False"
        series = f", group_by={[_name(field) for field in self._group_by]}" if self._group_by else ""
        return f"NGram({names}, delta_threshold={self._delta_threshold!r}, timestamp_field={by!r}{overlap}{series})"


def _name(field: UnischemaField | str) -> str:
    return field if isinstance(field, str) else field.name


def _checked_series(group_by: Any) -> tuple[UnischemaField | str, ...]:
    """Check `group_by`, and return it as a tuple of columns; () for None."""
    columns = (group_by,) if isinstance(group_by, (str, UnischemaField)) else group_by
    if columns is None:
        return ()
    if not isinstance(columns, (list, tuple)) or not all(isinstance(each, (str, UnischemaField)) for each in columns):
        raise InvalidArgumentError(
            f"group_by must be a column or a list of columns, got {group_by!r:.100}. Give their names"
        )
    if not columns:
        raise InvalidArgumentError(
            "group_by must name at least one column, got none. Leave it out if all rows are one series"
        )
    return tuple(columns)


def _checked_fields(fields: Any) -> dict[int, tuple[UnischemaField | str, ...]]:
    """Check `fields`, and return the fields of each offset, by ascending offset."""
    if not isinstance(fields, Mapping) or not fields:
        raise InvalidArgumentError(
            f"fields of NGram must be a dict such as {{-1: ['x'], 0: ['x', 'y']}}, from offset to a list of fields, "
            f"got {fields!r:.100}"
        )
    checked = {}
    for offset, of_offset in fields.items():
        if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)):
            raise InvalidArgumentError(f"fields of NGram must have ints as offsets, got {offset!r:.100}")
        if not isinstance(of_offset, (list, tuple)):
            raise InvalidArgumentError(
                f"fields of NGram must have a list of fields for each offset, got {of_offset!r:.100} for offset "
                f"{offset}"
            )
        for field in of_offset:
            if not isinstance(field, (str, UnischemaField)):
                raise InvalidArgumentError(
                    "fields of NGram must list field names, regular expressions or UnischemaField objects, got "
                    f"{field!r:.100} for offset {offset}"
                )
        checked[int(offset)] = tuple(of_offset)
    if not any(checked.values()):
        raise InvalidArgumentError("fields of NGram must name at least one field, got an empty list for each offset")
    return dict(sorted(checked.items()))


def _checked_threshold(threshold: Any) -> Any:
    """Check `delta_threshold`, and return it."""
    # NumPy's timedelta64 also counts as a `numbers.Real`, and bool as an int, so both are checked separately.
    is_time = isinstance(threshold, (dt.timedelta, np.timedelta64))
    is_number = isinstance(threshold, (numbers.Real, Decimal)) and not isinstance(threshold, (bool, np.bool_))
    nothing = type(threshold)(0) if is_time else 0
    if not (is_time or is_number) or not threshold >= nothing:
        raise InvalidArgumentError(
            "delta_threshold must be a number of at least 0, or, for a timestamp_field of times, a datetime.timedelta "
            f"or numpy.timedelta64 of at least 0, got {threshold!r:.100}"
        )
    return threshold
