"""Rows, filters and predicates of `make_reader`."""

from __future__ import annotations

from petastore import col, make_reader
from petastore.predicates import in_set

with make_reader(
    "file:///data/users", ["id", "name"], "process", 4, last_batch="drop", reshuffle_each_epoch=False
) as reader:
    for row in reader:
        print(row.id, row["name"], row._asdict())
make_reader("users", filters=[("id", ">", 7), ("split", "in", ["a", "b"])])
make_reader("users", filters=[[("id", ">", 7)], [("name", "=", "Ada")]])
make_reader("users", filters=(col("id") > 7) & (col("name") == "Ada"), predicate=in_set([1], "id"))
make_reader("users", predicate=lambda row: row["id"] > 7)
make_reader("users", cache_type=None, hdfs_driver="libhdfs")
