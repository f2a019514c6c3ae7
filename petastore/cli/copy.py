"""`petastore copy`: some columns and rows of a dataset to another place, by Spark where files are not local."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options, settings_of
from petastore.errors import InvalidArgumentError

__all__ = ["copy"]


def copy(
    source_url: Annotated[str, typer.Argument(help="A dataset of petastore or Petastorm.", metavar="SOURCE")],
    target_url: Annotated[str, typer.Argument(help="The directory of the copy.", metavar="TARGET")],
    overwrite_output: Annotated[bool, typer.Option("--overwrite-output", help="Replace what is in TARGET.")] = False,
    field_regex: Annotated[
        list[str] | None, typer.Option(help="Copy columns of this name, or that this expression matches; repeatable.")
    ] = None,
    not_null_fields: Annotated[
        list[str] | None, typer.Option(help="Leave out rows in which this column is null; repeatable.")
    ] = None,
    partition_count: Annotated[int | None, typer.Option(help="Files of the copy, at most.")] = None,
    row_group_size_mb: Annotated[float | None, typer.Option(help="MiB of a row group, about.")] = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="Copy with Spark: its master on this machine, or sc://host:port of a Connect server. Local files need "
            "no Spark; others are copied with local[2] by default."
        ),
    ] = None,
    spark_session_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
    ] = None,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Copy a dataset, or some of its columns and rows; cells are copied as they are stored."""
    with errors_in_one_line(debug=debug):
        options, settings = json_options(storage_options), settings_of(spark_session_config or ())
        if master is None and not settings and _are_local(source_url, target_url, options):
            from petastore.writers.copying.cells import copy_cells

            print(
                copy_cells(
                    source_url,
                    target_url,
                    field_regex or None,
                    not_null_fields or None,
                    overwrite_output=overwrite_output,
                    files_count=partition_count,
                    row_group_size_mb=row_group_size_mb,
                    storage_options=options,
                )
            )
            return
        from petastore.spark import copy_dataset

        spark = _session(master or "local[2]", settings)
        try:
            print(
                copy_dataset(
                    spark,
                    source_url,
                    target_url,
                    field_regex or None,
                    not_null_fields or None,
                    overwrite_output,
                    partition_count,
                    row_group_size_mb,
                    storage_options=options,
                )
            )
        finally:
            spark.stop()


def _are_local(source_url: str, target_url: str, options: dict[str, Any]) -> bool:
    from petastore.storage.files.location import open_location

    return all(open_location(url, storage_options=options).is_local for url in (source_url, target_url))


def _session(master: str, settings: dict[str, str]) -> Any:
    from petastore.spark import connect_session, local_session

    if master.startswith("sc://"):
        return connect_session(master, **settings)
    if master.startswith("local"):
        return local_session("petastore copy", master, **settings)
    raise InvalidArgumentError(
        f"--master {master}: this command starts Spark on this machine (local[cores]) or connects to a server "
        "(sc://host:port); with a session of another cluster call petastore.spark.copy_dataset"
    )
