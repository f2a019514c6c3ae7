"""Misspelled parameters and parameters of a wrong type."""

from __future__ import annotations

from petastore import make_batch_reader, make_reader

make_reader("users", shufle_rows=True)  # type: ignore[call-arg]
make_reader("users", num_epochs="2")  # type: ignore[arg-type]
make_reader(7)  # type: ignore[arg-type]
make_reader("users", [1, 2])  # type: ignore[list-item]
make_reader("users", filters="id > 7")  # type: ignore[arg-type]
make_reader("users", predicate=7)  # type: ignore[arg-type]
make_reader("users", rowgroup_selector="by_id")  # type: ignore[arg-type]
make_batch_reader("users", pyarrow_serialize=True)  # type: ignore[call-arg]
