"""`petastore copy`: some columns and rows of a dataset to another place, by Spark."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from petastore.cli.arguments import Debug, StorageOptions, errors_in_one_line, json_options, settings_of
from petastore.errors import RequestError

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
        str, typer.Option(help="Spark's master on this machine, or sc://host:port of a Connect server.")
    ] = "local[2]",
    spark_session_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; repeatable.")
    ] = None,
    storage_options: StorageOptions = "{}",
    debug: Debug = False,
) -> None:
    """Copy a dataset, or some of its columns and rows, with Spark; cells are copied as they are stored."""
    with errors_in_one_line(debug=debug):
        from petastore.spark import copy_dataset

        options = json_options(storage_options)
        spark = _session(master, settings_of(spark_session_config or ()))
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


def _session(master: str, settings: dict[str, str]) -> Any:
    from petastore.spark import connect_session, local_session

    if master.startswith("sc://"):
        return connect_session(master, **settings)
    if master.startswith("local"):
        return local_session("petastore copy", master, **settings)
    raise RequestError(
        f"--master {master}: this command starts Spark on this machine (local[cores]) or connects to a server "
        "(sc://host:port); with a session of another cluster call petastore.spark.copy_dataset"
    )
