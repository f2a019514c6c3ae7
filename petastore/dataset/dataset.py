"""A dataset: one version of what lies at a URL, as a value, and the way to its row groups."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers
from petastore.codecs.images.image_hint import ImageDecode
from petastore.codecs.images.image_hinted import hinted_field
from petastore.codecs.registry import codec_of
from petastore.dataset.stored_keys import StoredKey, held_against_directory
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.inventory import DataFile, Inventory
from petastore.once import once
from petastore.plan.lanes import DEFAULT_SHUFFLE_BUFFER_BYTES, in_memory, shuffled_lanes
from petastore.plan.plan import Plan
from petastore.plan.request import (
    SHARDED_DEFAULT_SEED,
    Fields,
    Order,
    OrderAsk,
    PlanAsk,
    ReadRequest,
    Reshuffle,
    Shard,
    Tail,
    TailWord,
    whole_number,
)
from petastore.plan.selection import Selection
from petastore.plan.unit import ReadUnit
from petastore.schema.field import UnischemaField
from petastore.schema.row import Row
from petastore.schema.select import select_fields
from petastore.schema.unischema import Unischema
from petastore.storage.files.location import Location
from petastore.storage.files.partitions import partition_value
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import Footer
from petastore.storage.ranges.kept_files import KeptFiles, cache_for
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.fetched_ahead import KeptIn
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.row_group import (
    fetch_ahead,
    read_row_group,
    read_row_group_in_parts,
    read_row_groups_together,
)
from petastore.storage.row_groups.small.small_files import in_one, joined

__all__ = ["Dataset", "ReadInParts"]

ReadInParts: TypeAlias = Callable[[DataFile, int, Sequence[Part]], Iterator[pa.Table]]
"""Reads parts of a row group: of a file, its number there, and the parts."""


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset:
    """One version of a dataset: its schema and its inventory, and the way to its row groups.

    Frozen, picklable and thread-safe. Nothing is read but by `read`, `head`, `to_pandas`, `to_arrow`,
    `arrow_schema` and `time_zones`.
    """

    location: Location
    """Where it lies."""

    schema: Unischema
    """What a row is: as the writer declared it, or as plain Parquet says."""

    inventory: Inventory
    """What exists."""

    partition_names: tuple[str, ...]
    """Columns that come from directory names alone, outermost first."""

    writer: str
    """Who wrote it, for people."""

    has_schema_document: bool
    """Whether the schema was declared by the writer, or else inferred from plain Parquet."""

    unreadable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Columns that are not in the schema because nobody reads them, each with the reason."""

    stored_keys: tuple[str, ...] = ()
    """Partition keys that the files store, too: read from the files, and held against the directories."""

    footers: FooterCache = dataclasses.field(default_factory=FooterCache, compare=False)
    """Footers that were read already, each held against the inventory when it was."""

    kept: KeptFiles = dataclasses.field(default_factory=KeptFiles, compare=False)
    """What is kept of files that are read by ranges: which version of each it is, and their column chunks."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "footers", self.footers.holding_against(self.inventory))

    @property
    def url(self) -> str:
        """The URL for people, without credentials."""
        return self.location.url

    def fields_of(self, columns: Fields | None) -> tuple[UnischemaField, ...]:
        """The fields that are asked for, in schema order.

        Args:
            columns: Names, regular expressions over whole names, or fields; None is all.

        Raises:
            InvalidArgumentError: Something that was asked for matches no field.
            SchemaError: A column that was asked for cannot be read, and why.
        """
        wanted = columns if columns is None or isinstance(columns, (str, UnischemaField)) else list(columns)
        names: Iterable[Any] = self.unreadable
        if wanted is not None:
            names = [item.name if isinstance(item, UnischemaField) else item for item in wanted]
        for name in names:
            if name in self.unreadable:
                known = ", ".join(map(repr, self.schema.fields)) or "none"
                raise SchemaError(
                    f"{self.unreadable[name]}; choose other columns with schema_fields: those that can be read are "
                    f"{known}"
                )
        return tuple(self.schema) if wanted is None else select_fields(self.schema, wanted, among=self.url)

    @property
    def paths(self) -> list[str]:
        """Paths of the data files in the filesystem, sorted."""
        return [self.location.join(file.path) for file in self.inventory.files]

    @once
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of the data files, without partition columns; reads one footer if none was read yet."""
        if not self.inventory.files:
            return pa.schema([])
        return self.first_footer.arrow_schema

    @property
    def first_footer(self) -> Footer:
        """What the first file says about itself; there is one. Read if it was not yet."""
        return self.footers.get(self.location, self.inventory.files[0])

    @once
    def time_zones(self) -> dict[str, str]:
        """Time zones of the columns that are stored with one, by name; reads one footer if none was read yet."""
        return {field.name: field.type.tz for field in self.arrow_schema if getattr(field.type, "tz", None)}

    def plan(
        self,
        *,
        columns: Fields | None = None,
        seed: int | None = None,
        shuffle_row_groups: bool = True,
        shuffle_rows: bool = False,
        shuffle_buffer_bytes: int = DEFAULT_SHUFFLE_BUFFER_BYTES,
        lanes: int | None = None,
        block_rows: int | None = None,
        reshuffle: Reshuffle | None = None,
        shard: Shard | None = None,
        epochs: int | None = 1,
        last_batch: TailWord | Tail = Tail.EVEN,
        selection: Selection | None = None,
    ) -> Plan:
        """What is to be read, by whom and in what order. Pure: touches no storage.

        Args:
            columns: Names, regular expressions over whole names, or fields; None is all.
            seed: Any integer. None is a fresh one, visible in the plan, for an unsharded plan that shuffles; for a
                sharded one it is `SHARDED_DEFAULT_SEED`, since ranks must agree without asking.
            shuffle_row_groups: Permute row groups, anew in each epoch.
            shuffle_rows: Permute rows, anew in each epoch.
            shuffle_buffer_bytes: Bytes of stored cells that all ranks together keep for `shuffle_rows`; more mixes
                better.
            lanes: Row groups that are read side by side; None lets `shuffle_buffer_bytes` choose, and is one a shard
                where rows are not shuffled.
            block_rows: Rows of a lane that are permuted together; None lets `shuffle_buffer_bytes` choose.
            reshuffle: `"epoch"` permutes row groups anew in each epoch. `"static"` lets a rank keep its row groups,
                most of them also when the number of ranks changes. None is `"static"` where column chunks are kept on
                the local disk, else `"epoch"`.
            shard: Which part is wanted; None is all.
            epochs: How often; None is without end.
            last_batch: What becomes of the last global batch: see `petastore.plan.Tail`.
            selection: Which rows are wanted, from `petastore.select_rows`; None is all.

        Raises:
            InvalidArgumentError: Something that was asked for cannot be.
            SchemaError: A column that was asked for cannot be read, and why.
        """
        order = OrderAsk(seed, shuffle_row_groups, shuffle_rows, shuffle_buffer_bytes, lanes, block_rows, reshuffle)
        return self.planned(PlanAsk(columns, order, shard or Shard(), epochs, Tail.parse(last_batch)), selection)

    def planned(self, ask: PlanAsk, selection: Selection | None = None) -> Plan:
        """`plan`, of what is asked as one value.

        Raises:
            InvalidArgumentError: Something that was asked for cannot be.
            SchemaError: A column that was asked for cannot be read, and why.
        """
        fields, asked = self.fields_of(ask.columns), ask.order
        lanes, block_rows = asked.lanes, asked.block_rows
        if asked.shuffle_rows:
            lanes, block_rows = shuffled_lanes(
                _selected(self.inventory, selection),
                shuffle_buffer_bytes=asked.shuffle_buffer_bytes,
                lanes=lanes,
                block_rows=block_rows,
            )
        reshuffle: Reshuffle = asked.reshuffle or ("epoch" if self.kept.cache is None else "static")
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
        """The first rows, as an unshuffled reader gives them; little more is read than these.

        Args:
            n: How many rows, if there are so many.
            columns: Names, regular expressions over whole names, or fields; None is all.

        Returns:
            A list of named tuples.

        Raises:
            InvalidArgumentError: `n` is not a whole number, or `columns` matches no field.
            DecodeError: A cell is not what its field declares.
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
        from petastore.dataset.first_rows import first_rows  # with what readers do without

        fields = self.fields_of(columns)
        of_row = Unischema(self.schema.name, fields).row_type
        return [of_row(**row) for row in first_rows(self, fields, whole_number(n, name="n", least=0))]

    def to_pandas(self, n: int | None = None, columns: Fields | None = None) -> Any:
        """The decoded rows as a `pandas.DataFrame`, in the order of an unshuffled reader; arrays become objects.

        Args:
            n: How many rows from the first; None is all, which memory must hold.
            columns: As in `head`.

        Raises:
            MissingExtraError: pandas is not installed.
            InvalidArgumentError: As `head`, as are DecodeError and StorageError.
        """
        from petastore.decoding.frame import frame_of

        return frame_of(self._first(n, columns), self.time_zones, needed_by="Dataset.to_pandas")

    def to_arrow(self, n: int | None = None, columns: Fields | None = None) -> pa.Table:
        """The decoded rows as a `pyarrow.Table`, in the order of an unshuffled reader; arrays become nested lists.

        Args:
            n: How many rows from the first; None is all, which memory must hold.
            columns: As in `head`.

        Raises:
            SchemaError: Arrow has no type for a field, such as complex numbers.
            InvalidArgumentError: As `head`, as are DecodeError and StorageError.
        """
        from petastore.codecs.arrow.decoded_to_arrow import decoded_to_arrow

        found = self._first(n, columns)
        return pa.table({name: decoded_to_arrow(values, self.schema[name]) for name, values in found.items()})

    def _first(self, n: int | None, columns: Fields | None) -> dict[str, NDArray[Any]]:
        from petastore.dataset.first_rows import first_columns

        count = None if n is None else whole_number(n, name="n", least=0)
        return first_columns(self, self.fields_of(columns), count)

    def with_decode(self, decode: Mapping[str, ImageDecode] | None) -> Dataset:
        """The same dataset, some of whose images are read in part, smaller, or gray; its schema says what comes out.

        Args:
            decode: Field name to hint; None is none. A hint replaces one that the field had.

        Raises:
            InvalidArgumentError: No such field, or no hint that it can have.

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
            raise InvalidArgumentError(f"decode= is a dict from field name to ImageDecode, not {decode!r:.200}")
        for name in decode:
            if name not in self.schema:
                known = ", ".join(map(repr, self.schema.fields))
                raise InvalidArgumentError(f"decode= names the field {name!r}, but {self.url} has {known}")
        fields = [hinted_field(field, decode[field.name]) if field.name in decode else field for field in self.schema]
        return dataclasses.replace(self, schema=Unischema(self.schema.name, fields))

    def with_cache(self, location: str | os.PathLike[str] | None = None, *, limit: int | None = None) -> Dataset:
        """The same dataset, the column chunks of whose files are kept on the local disk, by whoever reads it.

        Numbers and times are kept decoded where that takes little room, all else as it is stored; of the version that
        is read, and shared by all processes of the host: see `petastore.cache.DiskCache`. Files of the local file
        system are where they are read already: nothing is kept of them.

        Args:
            location: A local directory; None for the user's cache directory.
            limit: Bytes that the cache may have there; None is what was asked last, or else a quarter of the free disk.

        Raises:
            InvalidArgumentError: Location or limit cannot be.

        Warns:
            CacheBypassWarning: The location cannot be written: nothing is kept.
        """
        cache = cache_for(self.location, location, limit)
        return self if cache is None else dataclasses.replace(self, kept=KeptFiles(cache, self.kept.versions))

    @property
    def is_fetched(self) -> bool:
        """Whether ranges of its files are fetched, since they are far away, rather than files opened."""
        return not self.location.is_local

    def read(self, unit: ReadUnit) -> pa.Table:
        """The stored cells of a work item, one chunk a column; partition columns are not in it.

        Raises:
            DatasetChangedError: The file is not the one that the inventory describes.
            DecodeError: Its pages are damaged, or a partition key that the file stores contradicts its directory.
            StorageError: It cannot be read.
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
        """Itself, the only one: what is made of several has them here."""
        return (self,)

    def reading(self, files: OpenFiles | None = None) -> ReadInParts:
        """What reads the stored cells of row groups, part after part; bound once for many of them.

        Args:
            files: Keeps files open from call to call, and knows which checksums of pages were found right; None closes
                each file after the last part, and verifies all.

        Returns:
            A function of a file, the number of a row group in it, and the parts that are read, none of them of
            partition columns. It gives their tables, one chunk a column, and raises DatasetChangedError where the file
            is not the one that the inventory describes, DecodeError where its pages are damaged or a partition key that
            it stores contradicts its directory, and StorageError where it cannot be read.
        """
        read = functools.partial(
            read_row_group_in_parts, self.location, footers=self.footers, files=files, kept=self.kept
        )
        return functools.partial(self._held, read) if self.stored_keys else read

    def fetch_ahead(
        self, file: DataFile, ordinal: int, columns: Sequence[str], files: OpenFiles, kept_in: KeptIn = KeptIn.MEMORY
    ) -> None:
        """Has the stored cells of a row group fetched, which somebody is going to read soon; does not wait.

        Args:
            file: The file.
            ordinal: The row group's number in it.
            columns: All columns that are going to be read, none of them a partition column.
            files: Keep what is fetched, and are given to `reading` as well.
            kept_in: Where it is kept until it is read.
        """
        fetch_ahead(
            self.location,
            file,
            ordinal,
            columns,
            footers=self.footers,
            files=files,
            kept=self.kept,
            kept_in=kept_in,
        )

    def _held(self, read: ReadInParts, file: DataFile, ordinal: int, parts: Sequence[Part]) -> Iterator[pa.Table]:
        """The tables; refused where a stored partition key contradicts the directory."""
        return held_against_directory(read(file, ordinal, parts), self._stored_keys, file, ordinal)

    def read_together(
        self, asked: Sequence[tuple[DataFile, int]], parts: Sequence[Part], files: OpenFiles | None = None
    ) -> Iterator[pa.Table]:
        """Several small row groups: of each part one table, with the rows of all.

        Args:
            asked: Of each row group: its file, and its ordinal there.
            parts: What is read of each, whole.
            files: As for `reading`.

        Raises:
            pa.ArrowInvalid: They do not have the same types.
            PetastoreError: One of them cannot be read; as `reading`.
        """
        if not parts:
            return iter(())
        if self.stored_keys:
            read, whole = self.reading(files), [in_one(parts)]
            return joined((table for file, ordinal in asked for table in read(file, ordinal, whole)), parts)
        return read_row_groups_together(self.location, asked, parts, footers=self.footers, files=files, kept=self.kept)

    def partition_values(self, columns: Sequence[str]) -> dict[str, pa.Array]:
        """Of each partition column among `columns`: its stored cell for each row group, as one Arrow array."""
        return {name: self.directory_values(name) for name in self.partition_names if name in columns}

    def directory_values(self, key: str) -> pa.Array:
        """What the directories say of a partition key: its cell for each row group, as one Arrow array.

        Raises:
            SchemaError: A directory has a name that is no value of the key's field.
        """
        field = self.schema[key]
        of_files = [partition_value(dict(file.partitions)[key], field) for file in self.inventory.files]
        return codec_of(field).encode_column(of_files, field).take(arrow_numbers(self.inventory.file))

    def __repr__(self) -> str:
        return f"Dataset({self.url!r}, {len(self.schema)} fields, {self.inventory!r})"


def _fitting(selection: Selection | None, inventory: Inventory) -> Selection | None:
    """The selection, refused where it cannot be one of this inventory."""
    if selection is not None and (
        len(selection.counts) != inventory.num_row_groups or (selection.counts > inventory.rows).any()
    ):
        raise InvalidArgumentError(
            f"{selection!r} does not fit {inventory!r}: select rows of this version of the dataset"
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
