"""Options of the Spark data source `petastore`, which Spark passes as strings."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from petastore.codecs.registry import codec_from_json
from petastore.errors import InvalidArgumentError
from petastore.indexers import SingleFieldIndexer
from petastore.schema import Unischema
from petastore.schema.document import dump_document, parse_document
from petastore.writers.index_builder import checked_indexers
from petastore.writers.parquet import Compression, FileLayout, writer_options

__all__ = ["WriteAsk", "indexers_of", "read_options", "write_options"]


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
    """Check the options of a write, and return them as a dict of strings.

    Use it as `df.write.format("petastore").options(**write_options(schema))`.

    Args:
        schema: Schema of the rows; the DataFrame holds raw values, as in `encode_dataframe`.
        rows_per_row_group: Exact rows per row group; only the last one of a file has fewer. Each Spark partition writes
            its own files.
        row_group_size_mb: Approximate size of a row group in MiB of encoded columns, as in `write_dataset`.
        rows_per_file: Rows per file; only the last one of a partition has fewer.
        compression: As in `write_dataset`.
        storage_options: Keyword arguments for the fsspec filesystem that the URL selects. Spark shows options in query
            plans, so keep secrets in the environment of its workers.
        index_fields: Names of fields for which a row-group index (`SingleFieldIndexer`) of the same name is built after
            the commit. The driver reads these fields of the whole dataset.

    Raises:
        InvalidArgumentError: Arguments cannot be combined, `storage_options` is not JSON, or a field is unknown.
        SchemaError: A field cannot be stored.

    Example:
        >>> from petastore import UnischemaField
        >>> options = write_options(Unischema("user", [UnischemaField("id", "int64")]), rows_per_row_group=100)
        >>> options["rows_per_row_group"], options["compression"]
        ('100', 'auto')
    """
    if not isinstance(schema, Unischema):
        raise InvalidArgumentError(f"schema must be a Unischema, got {schema!r}")
    sizes = {
        "rows_per_row_group": rows_per_row_group,
        "row_group_size_mb": row_group_size_mb,
        "rows_per_file": rows_per_file,
    }
    FileLayout.of(**sizes)
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
            raise InvalidArgumentError(f"storage_options must be JSON values for a data source: {problem}") from None
    return options


def indexers_of(names: Iterable[str]) -> list[SingleFieldIndexer]:
    """Return an indexer for each field, with the name of the field as its index name.

    Raises:
        InvalidArgumentError: A name is not a non-empty str.

    Example:
        >>> indexers_of(["label"])
        [SingleFieldIndexer('label', 'label')]
    """
    return [SingleFieldIndexer(name, name) for name in names]


@dataclasses.dataclass(frozen=True, slots=True)
class WriteAsk:
    """Parsed options of `df.write.format("petastore")`."""

    url: str
    schema: Unischema | None
    """Schema of the rows; None if the option is missing.

    Rows appended to an existing dataset then get the schema of this dataset. Otherwise the schema is inferred from the
    DataFrame.
    """
    layout: FileLayout
    compression: str
    storage_options: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)
    index_fields: tuple[str, ...] = ()
    """Names of the fields for which row-group indexes are built."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteAsk:
        """Parse the options that Spark passes for a write; option names are case-insensitive.

        Field names in `index_fields` are separated by commas.

        Raises:
            InvalidArgumentError: The path is missing or relative, or an option is unknown or invalid.
            MetadataError: The option `schema` is not a schema document.
        """
        sizes = {"rows_per_row_group", "row_group_size_mb", "rows_per_file"}
        given = _known(options, {"schema", "compression", "index_fields", *sizes})
        document = given.get("schema")
        layout = FileLayout.of(
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


def read_options(options: Mapping[str, str]) -> tuple[str, tuple[str, ...] | None, Mapping[str, Any] | None]:
    """Parse the options that Spark passes for a read; option names are case-insensitive.

    Column names in `columns` are separated by commas.

    Returns:
        Three values: the URL; the columns, as names or as regular expressions that match whole names, or None for all;
        and the storage options.

    Raises:
        InvalidArgumentError: The path is missing or relative, or an option is unknown or invalid.

    Example:
        >>> read_options({"path": "/data/frames", "Columns": "id, image_.*"})
        ('/data/frames', ('id', 'image_.*'), None)
    """
    given = _known(options, {"columns"})
    return given["path"], _names(given, "columns"), _storage_options(given)


def _known(options: Mapping[str, str], names: set[str]) -> dict[str, str]:
    given = {name.lower(): value for name, value in options.items()}
    known = names | {"path", "storage_options"}
    unknown = sorted(set(given) - known)
    if unknown:
        raise InvalidArgumentError(
            f"options of the data source petastore must be among {', '.join(map(repr, sorted(known)))}, got "
            f"{', '.join(map(repr, unknown))}"
        )
    if "path" not in given:
        raise InvalidArgumentError("path must be given to the data source petastore. Write save(url) or load(url)")
    if "://" not in given["path"] and not Path(given["path"]).is_absolute():
        raise InvalidArgumentError(
            "path must be a URL or an absolute path, because Spark's processes have other working directories, got "
            f"{given['path']!r}. Write Path(…).absolute()"
        )
    return given


def _names(given: Mapping[str, str], option: str) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in given[option].split(",")) if option in given else None


def _without_comma(name: str) -> str:
    if "," in name or name != name.strip():
        raise InvalidArgumentError(
            f"index_fields must have names without commas, got {name!r}. Build its index with "
            "petastore.indexing.build_rowgroup_index"
        )
    return name


def _parsed(given: Mapping[str, str], name: str, kind: type[int | float]) -> float | None:
    if name not in given:
        return None
    try:
        return kind(given[name])
    except ValueError:
        raise InvalidArgumentError(f"{name} must be a number, got {given[name]!r}") from None


def _storage_options(given: Mapping[str, str]) -> Mapping[str, Any] | None:
    if "storage_options" not in given:
        return None
    try:
        found = json.loads(given["storage_options"])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):  # the message omits the value: it may contain credentials
        raise InvalidArgumentError("storage_options must be a JSON object for the data source petastore")
    return found
