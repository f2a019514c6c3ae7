"""Dataset: one version of the data at a URL, with methods to plan and read it."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias, Unpack

import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers
from petastore.byte_sizes import ByteSize
from petastore.codecs.images.image import hinted_field
from petastore.codecs.images.image_decode import ImageDecode
from petastore.codecs.registry import codec_of
from petastore.dataset.stored_cells import StoredKey, first_columns, first_rows, held_against_directory
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.inventory import DataFile, Inventory, ReadUnit
from petastore.lazy import once
from petastore.plan.plan import Plan
from petastore.plan.request import (
    SHARDED_DEFAULT_SEED,
    Fields,
    LastBatch,
    LastBatchWord,
    Order,
    OrderKwargs,
    OrderOptions,
    PlanOptions,
    ReadRequest,
    Shard,
    in_memory,
    shuffled_lanes,
    whole_number,
)
from petastore.plan.selection import Selection
from petastore.schema.arrow import field_from_arrow
from petastore.schema.field import UnischemaField
from petastore.schema.file_schemas import ColumnDifference
from petastore.schema.select import select_fields
from petastore.schema.unischema import Row, Unischema
from petastore.storage.files.listing import partition_value
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import Footer
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.ranges.pinned_files import KeptFiles, cache_for
from petastore.storage.requests.retries import at_once
from petastore.storage.row_groups.asked_columns import Part, in_one
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.read_together import joined, read_row_groups_together
from petastore.storage.row_groups.row_group import fetch_ahead, read_row_group, read_row_group_in_parts

__all__ = ["Dataset", "ReadInParts"]

ReadInParts: TypeAlias = Callable[[DataFile, int, Sequence[Part]], Iterator[pa.Table]]
"""Function (file, row group number in the file, parts) that reads a row group.

It returns an iterator of tables, at least one for each part (columns that are read together).
"""


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset:
    """An open dataset: one version of its schema and its files.

    `open_dataset` returns it. Immutable, picklable and thread-safe. `plan` and most attributes do not access storage.
    `arrow_schema`, `time_zones` and `first_footer` may read a footer. `head`, `to_pandas`, `to_arrow`, `read`,
    `reading`, `read_together` and `fetch_ahead` read data.
    """

    location: Location
    """Location of the dataset: URL, paths and filesystem."""

    schema: Unischema
    """Schema of the rows, stored by the writer or inferred from plain Parquet."""

    inventory: Inventory
    """Files and row groups."""

    partition_names: tuple[str, ...]
    """Names of the hive partition columns, outermost directory first."""

    writer: str
    """Name and version of the program that wrote the dataset, for display."""

    has_schema_document: bool
    """Whether the dataset has a stored schema.

    Otherwise the schema is inferred from plain Parquet.
    """

    unreadable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Columns of unsupported types, which the schema lacks: dict from name to reason."""

    stored_keys: tuple[str, ...] = ()
    """Partition keys that are also columns of the files.

    The stored values are checked against the directory names.
    """

    unified: pa.Schema | None = None
    """Arrow schema to which all files are cast if they differ; None means no cast."""

    differences: tuple[ColumnDifference, ...] = ()
    """Columns that some files lack or store as another type."""

    footers: FooterCache = dataclasses.field(default_factory=FooterCache, compare=False)
    """Footers read so far, each verified against the inventory."""

    kept: KeptFiles = dataclasses.field(default_factory=KeptFiles, compare=False)
    """File versions and cached column chunks of remote files."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "footers", self.footers.holding_against(self.inventory, self.unified))

    @property
    def url(self) -> str:
        """The URL without credentials, for display."""
        return self.location.url

    def fields_of(self, columns: Fields | None) -> tuple[UnischemaField, ...]:
        """Return the selected fields, in schema order.

        Args:
            columns: Names, regular expressions over whole names, or fields; None means all.

        Raises:
            InvalidArgumentError: A name or expression matches no field.
            SchemaError: A selected column cannot be read; the message has the reason.
        """
        wanted = columns if columns is None or isinstance(columns, (str, UnischemaField)) else list(columns)
        names: Iterable[Any] = self.unreadable
        if wanted is not None:
            names = [item.name if isinstance(item, UnischemaField) else item for item in wanted]
        self.refuse_unreadable(names)
        return tuple(self.schema) if wanted is None else select_fields(self.schema, wanted, among=self.url)

    def refuse_unreadable(self, names: Iterable[str]) -> None:
        """Raise the reason if one of these columns cannot be read. Unknown names are ignored.

        Raises:
            SchemaError: A column cannot be read.
        """
        for name in names:
            if name in self.unreadable:
                known = ", ".join(map(repr, self.schema.fields))
                others = f". Or read other columns: set schema_fields to names among {known}" if known else ""
                raise SchemaError(f"{self.unreadable[name]}{others}")

    @property
    def paths(self) -> list[str]:
        """Paths of the data files in the filesystem, sorted."""
        return [self.location.join(file.path) for file in self.inventory.files]

    @once
    def arrow_schema(self) -> pa.Schema:
        """Arrow schema of the data files, without partition columns.

        Reads one footer if no footer was read yet.
        """
        if self.unified is not None:
            return self.unified
        if not self.inventory.files:
            return pa.schema([])
        return self.first_footer.arrow_schema

    @property
    def first_footer(self) -> Footer:
        """Footer of the first file; reads it if necessary."""
        return self.footers.get(self.location, self.inventory.files[0])

    @once
    def time_zones(self) -> dict[str, str]:
        """Dict from timestamp column to its time zone.

        Reads one footer if no footer was read yet.
        """
        return {field.name: field.type.tz for field in self.arrow_schema if getattr(field.type, "tz", None)}

    def plan(
        self,
        *,
        columns: Fields | None = None,
        shard: Shard | None = None,
        epochs: int | None = 1,
        last_batch: LastBatchWord | LastBatch = LastBatch.EVEN,
        selection: Selection | None = None,
        **order: Unpack[OrderKwargs],
    ) -> Plan:
        """Return a plan: which rows each rank reads, and in which order. No I/O.

        Args:
            columns: Names, regular expressions over whole names, or fields; None means all.
            shard: Shard of this rank; None reads all rows.
            epochs: Number of epochs; None means endless.
            last_batch: Policy for the rows that do not fill a batch on every rank; see `petastore.plan.LastBatch`.
            selection: Selected rows, from `petastore.select_rows`; None means all.
            **order: `seed`, `shuffle_rows`, `shuffle_row_groups`, `shuffle_buffer_bytes`, `interleave`,
                `shuffle_block_rows` and `reshuffle_each_epoch`, as in `petastore.make_reader`.

        Raises:
            InvalidArgumentError: An argument is invalid; the message names it.
            SchemaError: A selected column cannot be read; the message has the reason.
        """
        asked = PlanOptions(columns, OrderOptions(**order), shard or Shard(), epochs, LastBatch.parse(last_batch))
        return self.planned(asked, selection)

    def planned(self, ask: PlanOptions, selection: Selection | None = None) -> Plan:
        """Return a plan from one object with all plan options. No I/O.

        Raises:
            InvalidArgumentError: An option is invalid; the message names it.
            SchemaError: A selected column cannot be read; the message has the reason.
        """
        fields, asked = self.fields_of(ask.columns), ask.order
        lanes, block_rows = asked.interleave, asked.shuffle_block_rows
        if asked.shuffle_rows:
            lanes, block_rows = shuffled_lanes(
                _selected(self.inventory, selection),
                shuffle_buffer_bytes=asked.buffer_bytes,
                lanes=lanes,
                block_rows=block_rows,
            )
        reshuffle = asked.reshuffle or ("epoch" if self.kept.cache is None else "static")
        order = Order(
            seed=_seed(asked.seed, ask.shard, shuffles=asked.shuffle_row_groups or asked.shuffle_rows),
            shuffle_row_groups=asked.shuffle_row_groups,
            shuffle_rows=asked.shuffle_rows,
            lanes=ask.shard.count if lanes is None else lanes,
            block_rows=1 if block_rows is None else block_rows,
            reshuffle=reshuffle,
            dealt_to=ask.shard.count if reshuffle == "static" and asked.shuffle_row_groups else None,
        )
        columns = tuple(field.name for field in fields)
        request = ReadRequest(columns, order, ask.shard, ask.epochs, ask.last_batch, asked.chosen)
        return Plan(self.inventory, request, _fitting(selection, self.inventory))

    def head(self, n: int = 5, columns: Fields | None = None) -> list[Row]:
        """Return the first rows, in the order of an unshuffled reader.

        The rest is not read.

        Args:
            n: Maximum number of rows.
            columns: Names, regular expressions over whole names, or fields; None means all.

        Returns:
            A list of named tuples.

        Raises:
            InvalidArgumentError: `n` is not an int, or `columns` matches no field.
            DecodeError: A cell cannot be decoded.
            StorageError: A file cannot be read.

        Example:
            >>> import tempfile, petastore
            >>> url = tempfile.mkdtemp() + "/words"
            >>> _ = petastore.write_dataset(url, {"id": [1, 2, 3], "word": ["a", None, "b"]})
            >>> dataset = petastore.open_dataset(url)
            >>> [(int(row.id), row.word) for row in dataset.head(2)]
            [(1, 'a'), (2, None)]
            >>> dataset.to_arrow(2).to_pydict()
            {'id': [1, 2], 'word': ['a', None]}
            >>> dataset.to_pandas(columns=["id"])["id"].tolist()
            [1, 2, 3]
        """
        fields = self.fields_of(columns)
        of_row = Unischema(self.schema.name, fields).row_type
        return [
            of_row._make(row[field.name] for field in fields)
            for row in first_rows(self, fields, whole_number(n, name="n", least=0))
        ]

    def to_pandas(self, n: int | None = None, columns: Fields | None = None) -> Any:
        """Return the decoded rows as a `pandas.DataFrame`, in unshuffled order.

        A column of arrays has dtype `object`, with one NumPy array per row.

        Args:
            n: Number of rows, from the first; None means all, which must fit in memory.
            columns: Names, regular expressions over whole names, or fields; None means all.

        Raises:
            MissingExtraError: pandas is not installed.
            InvalidArgumentError, DecodeError, StorageError: As in `head`.
        """
        from petastore.decoding.frame import frame_of

        return frame_of(self._first(n, columns), self.time_zones, needed_by="Dataset.to_pandas")

    def to_arrow(self, n: int | None = None, columns: Fields | None = None) -> pa.Table:
        """Return the decoded rows as a `pyarrow.Table`, in unshuffled order.

        Arrays become nested lists.

        Args:
            n: Number of rows, from the first; None means all, which must fit in memory.
            columns: Names, regular expressions over whole names, or fields; None means all.

        Raises:
            SchemaError: Arrow has no type for a field, such as complex numbers.
            InvalidArgumentError, DecodeError, StorageError: As in `head`.
        """
        from petastore.codecs.arrow.numpy_to_arrow import decoded_to_arrow

        found = self._first(n, columns)
        fields = {field.name: field for field in self.fields_of(columns)}
        return pa.table(
            {
                name: decoded_to_arrow(values, fields[name], self._decimal_of(fields[name]))
                for name, values in found.items()
            }
        )

    def _decimal_of(self, field: UnischemaField) -> pa.DataType | None:
        """Return the stored Arrow type of the decimals in a column of plain Parquet.

        The field of such a column has no precision. Return None for other columns.
        """
        if field.numpy_dtype is not Decimal or field.codec is not None or field.name in self.partition_names:
            return None
        stored = self.first_footer.columns.read_as(field.name).type
        while hasattr(stored, "value_type"):
            stored = stored.value_type
        return stored if pa.types.is_decimal(stored) else None

    def _first(self, n: int | None, columns: Fields | None) -> dict[str, NDArray[Any]]:
        count = None if n is None else whole_number(n, name="n", least=0)
        return first_columns(self, self.fields_of(columns), count)

    def with_decode(self, decode: Mapping[str, ImageDecode] | None) -> Dataset:
        """Return this dataset with `ImageDecode` options for some image fields.

        The schema has the resulting shapes.

        Args:
            decode: Dict from field name to `ImageDecode`; None adds none. An option replaces an earlier option of the
                same field.

        Raises:
            InvalidArgumentError: A field is unknown, is not an image, or does not accept the option.

        Example:
            >>> import tempfile
            >>> from petastore import Unischema, open_dataset, write_dataset
            >>> from petastore.codecs import CompressedImageCodec
            >>> field = UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("jpeg"))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = write_dataset(folder + "/photos", Unischema("photo", [field]), [])
            ...     dataset = open_dataset(folder + "/photos")
            >>> dataset.with_decode({"photo": ImageDecode(size=(224, 224))}).schema["photo"].shape
            (224, 224, 3)
        """
        if decode is None:
            return self
        if not isinstance(decode, Mapping):
            raise InvalidArgumentError(f"decode must be a dict from field name to ImageDecode, got {decode!r:.200}")
        for name in decode:
            if name not in self.schema:
                known = ", ".join(map(repr, self.schema.fields))
                raise InvalidArgumentError(f"decode must name fields of {self.url} ({known}), got {name!r}")
        fields = [hinted_field(field, decode[field.name]) if field.name in decode else field for field in self.schema]
        return dataclasses.replace(self, schema=Unischema(self.schema.name, fields))

    def with_cache(self, location: str | os.PathLike[str] | None = None, *, limit: ByteSize | None = None) -> Dataset:
        """Return this dataset with a disk cache for the column chunks of remote files.

        Column chunks are cached as stored (encoded and compressed), per file version. All processes of the host share
        the cache; see `petastore.cache.DiskCache`. Local files are not cached.

        Args:
            location: Local directory of the cache; None means the user's cache directory.
            limit: Maximum size of the cache in bytes; None keeps the limit that was set last, or else means a quarter
                of the free disk space.

        Raises:
            InvalidArgumentError: `location` or `limit` is invalid.

        Warns:
            CacheBypassWarning: The location is not writable, so nothing is cached.
        """
        cache = cache_for(self.location, location, limit)
        return self if cache is None else dataclasses.replace(self, kept=KeptFiles(cache, self.kept.versions))

    @property
    def is_fetched(self) -> bool:
        """Whether files are remote, so that column chunks are fetched as byte ranges."""
        return not self.location.is_local

    def read(self, unit: ReadUnit) -> pa.Table:
        """Read the stored cells (not decoded) of a work item, without partition columns.

        The table has one chunk per column.

        Raises:
            DatasetChangedError: The file differs from the inventory.
            DecodeError: Pages are damaged, or a stored partition key contradicts its directory.
            StorageError: The file cannot be read.
        """
        columns = [name for name in unit.columns if name not in self.partition_names]
        if not columns:
            return pa.table({})
        table = read_row_group(self.location, unit.file, unit.row_group, columns, footers=self.footers, kept=self.kept)
        (held,) = held_against_directory(iter([table]), self._stored_keys, unit.file, unit.row_group)
        return held

    @once
    def _stored_keys(self) -> list[StoredKey]:
        return [StoredKey(self.schema[name]) for name in self.stored_keys]

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """A tuple that contains only this dataset; a mixture has one per source."""
        return (self,)

    def reading(self, files: OpenFiles | None = None) -> ReadInParts:
        """Return a function that reads the stored cells of a row group part by part.

        A part is a group of columns that are read together (`Part`).

        Args:
            files: Store of open files and verified page checksums, which later calls reuse; None closes each file after
                its last part, and verifies all pages.

        Returns:
            A function that takes a file, the number of a row group in the file, and the parts to read (without
            partition columns). It yields the tables of the parts, with one chunk per column. It raises
            DatasetChangedError if the file differs from the inventory, and StorageError if the file cannot be read. It
            raises DecodeError if pages are damaged, or if a stored partition key contradicts its directory.
        """
        read = functools.partial(
            read_row_group_in_parts, self.location, footers=self.footers, files=files, kept=self.kept
        )
        return functools.partial(self._held, read) if self.stored_keys else read

    def fetch_ahead(
        self, file: DataFile, ordinal: int, columns: Sequence[str], files: OpenFiles, *, by_cache: bool = False
    ) -> None:
        """Start to prefetch the stored cells of a row group, without waiting.

        Args:
            file: The file.
            ordinal: Number of the row group in the file.
            columns: All columns that will be read, without partition columns.
            files: Store of the prefetched data; pass it to `reading` too.
            by_cache: Whether the disk cache stores the data when it arrives, or only when it is read.
        """
        asked = (file, ordinal, columns)
        fetch_ahead(self.location, *asked, footers=self.footers, files=files, kept=self.kept, by_cache=by_cache)

    def _held(self, read: ReadInParts, file: DataFile, ordinal: int, parts: Sequence[Part]) -> Iterator[pa.Table]:
        """Read a row group, and compare its stored partition keys with the directory name."""
        return held_against_directory(read(file, ordinal, parts), self._stored_keys, file, ordinal)

    def read_together(
        self, asked: Sequence[tuple[DataFile, int]], parts: Sequence[Part], files: OpenFiles | None = None
    ) -> Iterator[pa.Table]:
        """Read the same columns of several small row groups at once.

        Yield one table for each part (columns that are read together), with the rows of all row groups.

        Args:
            asked: File of each row group, and its number in the file.
            parts: Parts to read of each row group.
            files: Store of open files and verified page checksums, which later calls reuse; None closes each file after
                reading.

        Raises:
            pa.ArrowInvalid: The row groups have different types.
            PetastoreError: A row group cannot be read; as in `reading`.
        """
        if not parts:
            return iter(())
        if self.stored_keys:
            read, whole = self.reading(files), [in_one(parts)]
            return joined((table for file, ordinal in asked for table in read(file, ordinal, whole)), parts)
        return read_row_groups_together(self.location, asked, parts, footers=self.footers, files=files, kept=self.kept)

    def partition_values(self, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Return a dict from partition column to its values, one per row group.

        The values are Arrow arrays.

        Raises:
            DecodeError: Only some files store a key, and one of them contradicts its directory.
            SchemaError: A directory name is not a valid value of the key's field.
            StorageError: A file cannot be read.
        """
        names = [name for name in self.partition_names if name in columns]
        for name in names:
            self.check_partly_stored(name)
        return {name: self.directory_values(name) for name in names}

    def check_partly_stored(self, key: str) -> None:
        """Compare a partition key that only some files store with their directory names, on the first call.

        Raises:
            DecodeError: A stored value contradicts its directory.
            DatasetChangedError: A file differs from the inventory.
            StorageError: A file cannot be read.
        """
        if key in self._checked_keys or all(column.name != key for column in self.differences):
            return
        for _ in at_once(functools.partial(self._check_key_in, key), self.inventory.files):
            pass
        self._checked_keys.add(key)

    def _check_key_in(self, key: str, file: DataFile) -> None:
        footer = self.footers.get(self.location, file)
        if key not in footer.arrow_schema.names:
            return
        stored = StoredKey(field_from_arrow(footer.arrow_schema.field(key)))
        for row_group in range(len(footer.rows)):
            table = read_row_group(self.location, file, row_group, [key], footers=self.footers, kept=self.kept)
            for _ in held_against_directory(iter([table]), [stored], file, row_group):
                pass

    @once
    def _checked_keys(self) -> set[str]:
        return set()

    def directory_values(self, key: str) -> pa.Array:
        """Return the values of a partition key as an Arrow array, one per row group.

        They are parsed from directory names.

        Raises:
            SchemaError: A directory name is not a valid value of the key's field.
        """
        field = self.schema[key]
        of_files = [partition_value(dict(file.partitions).get(key), field) for file in self.inventory.files]
        return codec_of(field).encode_column(of_files, field).take(arrow_numbers(self.inventory.file))

    def _repr_html_(self) -> str:
        from petastore.notebook import html_table

        inventory = self.inventory
        facts = [
            ("rows", f"{inventory.num_rows:,}"),
            ("row groups", f"{inventory.num_row_groups:,}"),
            ("files", f"{len(inventory.files):,}"),
            ("stored bytes", f"{inventory.stored_bytes.sum():,}"),
            ("partition keys", ", ".join(self.partition_names)),
            ("written by", self.writer),
        ]
        return html_table(self.url, [], facts, count=len(facts)) + self.schema._repr_html_()

    def __repr__(self) -> str:
        return f"Dataset({self.url!r}, {len(self.schema)} fields, {self.inventory!r})"


def _fitting(selection: Selection | None, inventory: Inventory) -> Selection | None:
    """Return the selection; raise an error if it does not fit this inventory."""
    if selection is not None and (
        len(selection.counts) != inventory.num_row_groups or (selection.counts > inventory.rows).any()
    ):
        raise InvalidArgumentError(
            f"selection must be made from this version of the dataset, got {selection!r} for {inventory!r}. Call "
            "select_rows again"
        )
    return selection


def _selected(inventory: Inventory, selection: Selection | None) -> Inventory:
    if _fitting(selection, inventory) is None or selection is None:
        return inventory
    return in_memory(inventory, selection.counts)


def _seed(seed: int | None, shard: Shard, *, shuffles: bool) -> int:
    if seed is not None:
        return seed
    if shard.count > 1 or not shuffles:
        return SHARDED_DEFAULT_SEED
    return int.from_bytes(os.urandom(8), "little") >> 1
