"""What is asked of the data source, as Spark hands it over: text by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from petastore.codecs.registry import codec_from_json
from petastore.errors import InvalidArgumentError
from petastore.indexers import SingleFieldIndexer
from petastore.schema import Unischema
from petastore.schema.document import dump_document, parse_document
from petastore.writers.layout import Layout
from petastore.writers.parquet import Compression, writer_options
from petastore.writers.row_group_index import checked_indexers

__all__ = ["ReadAsk", "WriteAsk", "write_options"]

_Parsed = TypeVar("_Parsed")


def write_options(
    schema: Unischema,
    *,
    rows_per_row_group: int | None = None,
    row_group_size_mb: float | None = None,
    rows_per_file: int | None = None,
    compression: Compression | None = "auto",
    storage_options: Mapping[str, Any] | None = None,
    index_fields: Iterable[str] = (),
) -> dict[str, str]:
    """The options of `df.write.format("petastore")`, checked here and not in a job.

    Args:
        schema: What the rows are; the DataFrame holds raw values, as `encode_dataframe` takes them.
        rows_per_row_group: Rows of each row group, exactly; only the last of a file has fewer. Each of Spark's
            partitions has files of its own.
        row_group_size_mb: MiB of encoded columns of a row group, about, as in `write_dataset`.
        rows_per_file: Rows of each file; only the last of a partition has fewer.
        compression: As in `write_dataset`.
        storage_options: Keyword arguments of the fsspec filesystem. Spark shows options in its plans: let keys come
            from the environment of its workers.
        index_fields: Names of fields; each gets a row-group index of its name, by `SingleFieldIndexer`, once the rows
            are committed. It is built by the process that commits, which reads these fields of the whole dataset.

    Raises:
        InvalidArgumentError: The parameters contradict each other, storage options are no JSON, or there is no such
            field.
        SchemaError: A field cannot be stored.

    Example:
        >>> from petastore import UnischemaField
        >>> options = write_options(Unischema("user", [UnischemaField("id", "int64")]), rows_per_row_group=100)
        >>> options["rows_per_row_group"], options["compression"]
        ('100', 'auto')
    """
    if not isinstance(schema, Unischema):
        raise InvalidArgumentError(f"write_options takes a Unischema, but {schema!r} was given")
    sizes = {
        "rows_per_row_group": rows_per_row_group,
        "row_group_size_mb": row_group_size_mb,
        "rows_per_file": rows_per_file,
    }
    Layout.of(**sizes)
    writer_options(schema, compression)
    options = {
        "schema": dump_document(schema.name, schema),
        "compression": "none" if compression is None else str(compression),
        **{name: str(size) for name, size in sizes.items() if size is not None},
    }
    names = [index_fields] if isinstance(index_fields, str) else list(index_fields)
    checked_indexers(indexers_of(names), schema, "the schema")
    if names:
        options["index_fields"] = ",".join(_without_comma(name) for name in names)
    if storage_options:
        try:
            options["storage_options"] = json.dumps(dict(storage_options))
        except (TypeError, ValueError) as problem:
            raise InvalidArgumentError(
                f"storage_options of a data source are JSON, and these are not: {problem}"
            ) from None
    return options


def indexers_of(names: Iterable[str]) -> list[SingleFieldIndexer]:
    """What builds the indexes of some fields; each has the name of its field.

    Raises:
        InvalidArgumentError: One of the names is none.

    Example:
        >>> indexers_of(["label"])
        [SingleFieldIndexer('label', 'label')]
    """
    return [SingleFieldIndexer(name, name) for name in names]


@dataclasses.dataclass(frozen=True, slots=True)
class WriteAsk:
    """What is asked of a write."""

    url: str
    schema: Unischema | None
    """None takes that of the dataset that is appended to, or else what the DataFrame's columns are."""
    layout: Layout
    compression: str
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    index_fields: tuple[str, ...] = ()
    """Names of the fields of which row-group indexes are built."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteAsk:
        """Of what Spark hands over; names in any case. `index_fields` are separated by commas.

        Raises:
            InvalidArgumentError: There is no path, or a relative one, or an option cannot be.
            MetadataError: The schema is none.
        """
        sizes = {"rows_per_row_group", "row_group_size_mb", "rows_per_file"}
        given = _known(options, {"schema", "compression", "index_fields", *sizes})
        document = given.get("schema")
        layout = Layout.of(
            rows_per_row_group=_parsed(given, "rows_per_row_group", int),
            row_group_size_mb=_parsed(given, "row_group_size_mb", float),
            rows_per_file=_parsed(given, "rows_per_file", int),
        )
        schema = None
        if document is not None:
            said = parse_document(document, codec_from_json=codec_from_json, source="the option schema")
            schema = Unischema(*said)
        compression, indexed = given.get("compression", "auto"), _names(given, "index_fields") or ()
        return cls(given["path"], schema, layout, compression, _storage_options(given), indexed)


@dataclasses.dataclass(frozen=True, slots=True)
class ReadAsk:
    """What is asked of a read."""

    url: str
    columns: tuple[str, ...] | None = None
    """Names, or regular expressions over whole names; None is all."""
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadAsk:
        """Of what Spark hands over; names in any case. `columns` are separated by commas.

        Raises:
            InvalidArgumentError: There is no path, or a relative one, or an option cannot be.

        Example:
            >>> ReadAsk.parse({"path": "/data/frames", "Columns": "id, image_.*"})
            ReadAsk(url='/data/frames', columns=('id', 'image_.*'))
        """
        given = _known(options, {"columns"})
        return cls(given["path"], _names(given, "columns"), _storage_options(given))


def _known(options: Mapping[str, str], names: set[str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    known = names | {"path", "storage_options"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise InvalidArgumentError(
            f"the data source petastore has no option {', '.join(map(repr, unknown))}; it has "
            f"{', '.join(map(repr, sorted(known)))}"
        )
    if "path" not in given:
        raise InvalidArgumentError("the data source petastore needs a path: save(url) or load(url)")
    if "://" not in given["path"] and not Path(given["path"]).is_absolute():
        raise InvalidArgumentError(
            f"{given['path']!r} is no URL and no absolute path, and the processes of Spark that open it have working "
            "directories of their own; write Path(…).absolute()"
        )
    return given


def _names(given: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in given[option].split(",")) if option in given else None


def _without_comma(name: str) -> str:
    if "," in name or name != name.strip():
        raise InvalidArgumentError(
            f"index_fields of a data source are separated by commas, and the name {name!r} cannot be told so; build "
            "its index with petastore.indexing.build_rowgroup_index"
        )
    return name


def _parsed(given: Mapping[str, str], name: str, kind: type[_Parsed]) -> _Parsed | None:
    if name not in given:
        return None
    try:
        return kind(given[name])  # type: ignore[call-arg]
    except ValueError:
        raise InvalidArgumentError(f"{name}={given[name]!r} is no number") from None


def _storage_options(given: Mapping[str, str]) -> Mapping[str, Any] | None:
    if "storage_options" not in given:
        return None
    try:
        found = json.loads(given["storage_options"])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):  # not shown: it may hold keys
        raise InvalidArgumentError("storage_options of the data source petastore is a JSON object, and this is none")
    return found
