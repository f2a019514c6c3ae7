"""`petastore copy`: copy columns and rows of a dataset to another directory, with Spark on request."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from petastore.cli.terminal import Debug, StorageOptions, errors_in_one_line, json_options, settings_of
from petastore.errors import InvalidArgumentError

__all__ = ["copy"]


def copy(
    source_url: Annotated[str, typer.Argument(help="Dataset of petastore or Petastorm.", metavar="SOURCE")],
    target_url: Annotated[str, typer.Argument(help="Directory of the copy: path or URL.", metavar="TARGET")],
    overwrite_output: Annotated[bool, typer.Option("--overwrite-output", help="Replace an existing TARGET.")] = False,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", "--field-regex", help="Column name or regular expression; repeatable."),
    ] = None,
    not_null_fields: Annotated[
        list[str] | None, typer.Option(help="Skip rows in which this column is null; repeatable.")
    ] = None,
    partition_count: Annotated[int | None, typer.Option(help="Maximum number of files of the copy.")] = None,
    row_group_size_mb: Annotated[float | None, typer.Option(help="Approximate row-group size in MiB.")] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="Copy with Spark: its master, such as local[4], or sc://host:port of a Connect server. Default: no "
            "Spark."
        ),
    ] = None,
    spark_session_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Spark setting; repeatable.")
    ] = None,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Copy a dataset, or some of its columns and rows. Stored cells are copied unchanged."""
    with errors_in_one_line(debug=debug):
        options, settings = json_options(storage_options), settings_of(spark_session_config or ())
        options_of_copy: dict[str, Any] = {
            "field_regex": columns or None,
            "not_null_fields": not_null_fields or None,
            "overwrite_output": overwrite_output,
            "row_group_size_mb": row_group_size_mb,
            "storage_options": options,
            "progress": True,
        }
        if master is None and not settings:
            from petastore.writers.copying import copy_cells

            print(copy_cells(source_url, target_url, files_count=partition_count, **options_of_copy))
            return
        from petastore.spark import copy_dataset

        spark = _session(master or "local[2]", settings)
        try:
            print(copy_dataset(spark, source_url, target_url, partitions_count=partition_count, **options_of_copy))
        finally:
            spark.stop()


def _session(master: str, settings: dict[str, str]) -> Any:
    from petastore.spark import connect_session, local_session

    if master.startswith("sc://"):
        return connect_session(master, **settings)
    if master.startswith("local"):
        return local_session("petastore copy", master, **settings)
    raise InvalidArgumentError(
        f"--master must be local[cores] or sc://host:port, got {master!r}. For a session of another cluster call "
        "petastore.spark.copy_dataset"
    )
