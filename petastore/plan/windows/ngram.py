"""NGram: what a window is, some consecutive rows of sorted data, and which fields are wanted of each of them. Pure."""

from __future__ import annotations

import datetime as dt
import numbers
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Self

import numpy as np

from petastore.errors import InvalidArgumentError
from petastore.plan.windows.timestamps import comparable, most_between
from petastore.plan.windows.window_starts import first_unsorted, stretch_of, window_starts
from petastore.schema.field import UnischemaField
from petastore.schema.select import select_fields
from petastore.schema.unischema import Unischema

__all__ = ["NGram"]


class NGram:
    """Windows of consecutive rows, given to `make_reader` or `make_batch_reader` as `schema_fields`.

    A window is `length` rows that follow each other in the dataset, whose timestamps differ from one row to the next by
    at most `delta_threshold`. The rows of a dataset are one sequence: files sorted by path, row groups in turn; windows
    lie across the borders of both. Where the first timestamp of a row group is less than the last one before it, a new
    sequence begins. Inside a row group rows must be sorted, or the reader is refused.

    Offsets may be negative and have gaps: `{-2: […], 0: […]}` has the length 3; of the row between nothing is given.

    Args:
        fields: Offset to fields: names, regular expressions over whole names, or fields.
        delta_threshold: The most by which the timestamp of a row may exceed that of the row before: a number from 0, or
            `datetime.timedelta` or `numpy.timedelta64` where timestamps are times. Infinity takes any.
        timestamp_field: The scalar field by which rows are sorted: numbers, decimals or times, never missing. It need
            not be among `fields`.
        timestamp_overlap: Whether windows may share timestamps. If not, the first window of a sequence without gaps
            begins with its first row, and each further one with the first row whose timestamp is later than the last
            one of the window before. A gap larger than `delta_threshold` begins a new sequence: what it cuts off before
            a window is whole is left out, and the row after it begins a window.
        group_by: The scalar columns whose values name the series of a row, such as a sensor: one or several, never
            missing. Windows are made of each series by itself, as if there were no other rows, across row groups and
            files; inside a row group the rows of each series must be sorted. None makes all rows one series.

    Raises:
        InvalidArgumentError: Something else was given.

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
            raise InvalidArgumentError(f"NGram takes timestamp_overlap=True or False, not {timestamp_overlap!r:.100}")
        if not isinstance(timestamp_field, (str, UnischemaField)):
            raise InvalidArgumentError(
                f"NGram takes a field or its name as timestamp_field, not {timestamp_field!r:.100}"
            )
        self._fields = _checked_fields(fields)
        self._delta_threshold = _checked_threshold(delta_threshold)
        self._timestamp_field = timestamp_field
        self._timestamp_overlap = bool(timestamp_overlap)
        self._group_by = _checked_series(group_by)

    @property
    def fields(self) -> dict[int, list[UnischemaField | str]]:
        """Offset to fields, ascending, as they were given or resolved; a new dict."""
        return {offset: list(of_offset) for offset, of_offset in self._fields.items()}

    @property
    def length(self) -> int:
        """Rows of a window, those of gaps between offsets included."""
        return max(self._fields) - min(self._fields) + 1

    @property
    def offsets(self) -> range:
        """All offsets of a window, gaps included."""
        return range(min(self._fields), max(self._fields) + 1)

    @property
    def delta_threshold(self) -> Any:
        """The most by which the timestamp of a row may exceed that of the row before."""
        return self._delta_threshold

    @property
    def timestamp_field(self) -> UnischemaField | str:
        """The field by which rows are sorted, as it was given or resolved."""
        return self._timestamp_field

    @property
    def timestamp_overlap(self) -> bool:
        """Whether windows may share timestamps."""
        return self._timestamp_overlap

    @property
    def group_by(self) -> tuple[UnischemaField | str, ...]:
        """The columns that name the series of a row, as they were given or resolved; () where all rows are one."""
        return self._group_by

    def resolved(self, schema: Unischema) -> NGram:
        """The same with names and regular expressions replaced by the fields of a schema, in its order.

        Raises:
            InvalidArgumentError: Something matches no field, or more than one is the timestamp.

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
        """The fields of a schema that name the series of a row.

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
        """The field of a schema by which rows are sorted.

        Raises:
            InvalidArgumentError: None matches, or more than one.
        """
        fields = select_fields(schema, [self._timestamp_field], among=f"schema {schema.name!r}")
        if len(fields) != 1:
            names = ", ".join(repr(field.name) for field in fields)
            raise InvalidArgumentError(
                f"timestamp_field={self._timestamp_field!r} matches {names}, but only one can be it"
            )
        return fields[0]

    def resolve_regex_field_names(self, schema: Unischema) -> None:
        """Replaces names and regular expressions by the fields of a schema, in this object.

        Readers do not change an `NGram`: `reader.ngram` is a resolved copy.

        Raises:
            InvalidArgumentError: As `resolved`.
        """
        resolved = self.resolved(schema)
        self._fields = _checked_fields(resolved.fields)
        self._timestamp_field = resolved.timestamp_field
        self._group_by = resolved.group_by

    def get_field_names_at_timestep(self, timestep: int) -> list[str]:
        """Names of the fields at an offset; none where there is no such offset."""
        return [_name(field) for field in self._fields.get(timestep, ())]

    def offsets_of(self, name: str) -> list[int]:
        """The offsets at which a field is wanted, ascending: what the second axis of its column in batches stands for.

        Example:
            >>> NGram({-2: ["x"], 0: ["x", "y"]}, 1, "time").offsets_of("x")
            [-2, 0]
        """
        return [offset for offset in self._fields if name in self.get_field_names_at_timestep(offset)]

    def get_field_names_at_all_timesteps(self) -> list[UnischemaField | str]:
        """The fields of all offsets as they were given or resolved, each once (fields, as Petastorm has them)."""
        return list(dict.fromkeys(field for of_offset in self._fields.values() for field in of_offset))

    def get_schema_at_timestep(self, schema: Unischema, timestep: int) -> Unischema:
        """The part of a schema that is wanted at an offset, named `<name>_view`; without fields where there is none.

        Example:
            >>> schema = Unischema("s", [UnischemaField(name, "int64") for name in ("time", "x")])
            >>> NGram({-1: ["x"], 1: ["time"]}, 1, "time").get_schema_at_timestep(schema, 1).row_type(7)
            s_view(time=7)
        """
        names = set(self.get_field_names_at_timestep(timestep))
        return Unischema(f"{schema.name}_view", [field for field in schema if field.name in names])

    def make_namedtuple(self, schema: Unischema, ngram_as_dicts: Mapping[int, Mapping[str, Any]]) -> dict[int, Any]:
        """A window of named tuples of one of dicts.

        Args:
            schema: What rows are.
            ngram_as_dicts: Offset to row, with the fields that are wanted there.
        """
        return {
            offset: self.get_schema_at_timestep(schema, offset).make_namedtuple(**row)
            for offset, row in ngram_as_dicts.items()
        }

    def form_ngram(self, data: Sequence[Mapping[str, Any]], schema: Unischema) -> list[dict[int, dict[str, Any]]]:
        """The windows of rows that are at hand already, as Petastorm's workers made them; readers do without.

        Args:
            data: Rows in the order of their timestamps.
            schema: What they are.

        Returns:
            Of each window: offset to row, with the fields that are wanted there.

        Raises:
            InvalidArgumentError: Rows are not sorted, or as `resolved`.

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
        keys = [key.name for key in self.series_in(schema)]
        of_series: dict[tuple[Any, ...], list[int]] = {}
        for number, row in enumerate(data):
            of_series.setdefault(tuple(row[key] for key in keys), []).append(number)
        starts: dict[int, list[int]] = {}
        for rows in of_series.values():
            timestamps = comparable(np.array([data[row][field.name] for row in rows], dtype=field.dtype))
            wrong = first_unsorted(timestamps)
            if wrong is not None:
                raise InvalidArgumentError(
                    f"row {rows[wrong]:,} is earlier by {field.name!r} than the row before; sort the rows by it"
                )
            stretch = stretch_of(timestamps, most)
            (flags,) = window_starts([stretch], most, length=self.length, overlap=self._timestamp_overlap)
            starts |= {rows[first]: rows[first : first + self.length] for first in np.flatnonzero(flags).tolist()}
        return [
            {
                offset: {name: data[row][name] for name in names[offset]}
                for offset, row in zip(names, window, strict=True)
            }
            for _, window in sorted(starts.items())
        ]

    def asks_the_same(self, other: NGram) -> bool:
        """Whether both want windows of the same kind, with fields of the same names; codecs may differ.

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
        fields = tuple((offset, frozenset(of_offset)) for offset, of_offset in self._fields.items())
        return fields, self._delta_threshold, self._timestamp_field, self._timestamp_overlap, self._group_by

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, NGram) else NotImplemented

    def __hash__(self) -> int:
        # What is resolved in place must not be lost in a set: the offsets stay.
        return hash((tuple(self._fields), self._timestamp_overlap))

    def __iter__(self) -> Iterator[Any]:
        # Whoever takes lists of fields and nothing else meets this, in the call that asks.
        raise InvalidArgumentError(
            "an NGram is no list of fields: give it as schema_fields to make_reader or make_batch_reader, whose "
            "readers WeightedSamplingReader mixes; nothing else reads windows"
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
    columns = (group_by,) if isinstance(group_by, (str, UnischemaField)) else group_by
    if columns is None:
        return ()
    if not isinstance(columns, (list, tuple)) or not all(isinstance(each, (str, UnischemaField)) for each in columns):
        raise InvalidArgumentError(
            f"group_by must be a column or a list of columns, got {group_by!r:.100}. Give their names"
        )
    if not columns:
        raise InvalidArgumentError(
            "group_by must name a column at least, got none. Leave it out where all rows are one series"
        )
    return tuple(columns)


def _checked_fields(fields: Any) -> dict[int, tuple[UnischemaField | str, ...]]:
    if not isinstance(fields, Mapping) or not fields:
        raise InvalidArgumentError(f"NGram takes a dict from offset to a list of fields, not {fields!r:.100}")
    checked = {}
    for offset, of_offset in fields.items():
        if isinstance(offset, bool) or not isinstance(offset, (int, np.integer)):
            raise InvalidArgumentError(f"NGram takes whole numbers as offsets, not {offset!r:.100}")
        if not isinstance(of_offset, (list, tuple)):
            raise InvalidArgumentError(
                f"NGram takes a list of fields at each offset, but has {of_offset!r:.100} at {offset}"
            )
        for field in of_offset:
            if not isinstance(field, (str, UnischemaField)):
                raise InvalidArgumentError(
                    f"NGram takes names, regular expressions and fields, but has {field!r:.100} at {offset}"
                )
        checked[int(offset)] = tuple(of_offset)
    if not any(checked.values()):
        raise InvalidArgumentError("NGram names no field at any offset, so there is nothing to read")
    return dict(sorted(checked.items()))


def _checked_threshold(threshold: Any) -> Any:
    # NumPy's timedelta64 is an integer to `numbers`, and a bool is one to Python.
    is_time = isinstance(threshold, (dt.timedelta, np.timedelta64))
    is_number = isinstance(threshold, (numbers.Real, Decimal)) and not isinstance(threshold, (bool, np.bool_))
    nothing = type(threshold)(0) if is_time else 0
    if not (is_time or is_number) or not threshold >= nothing:
        raise InvalidArgumentError(
            f"delta_threshold={threshold!r:.100}, but it is a number from 0, or datetime.timedelta or "
            "numpy.timedelta64 where timestamps are times"
        )
    return threshold
