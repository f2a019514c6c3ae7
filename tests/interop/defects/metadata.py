"""Check that opening a dataset does not run code from its metadata."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .data import numbers, petastorm


def opening_a_dataset_runs_none_of_its_code(folder: Path) -> None:
    """Petastorm unpickles `_common_metadata`, which may call `eval`."""
    mark = folder / "was-here"
    url = numbers(folder / "data", 10)
    code = f"open({str(mark)!r}, 'w').close()"
    # A pickle that calls `builtins.eval(code)`.
    pickled = b"cbuiltins\neval\n(S" + repr(code).encode() + b"\ntR."
    schema = pa.schema({"id": pa.int64()}, metadata={b"dataset-toolkit.unischema.v1": pickled})
    pq.write_metadata(schema, folder / "data" / "_common_metadata")
    try:
        petastorm().make_reader(url, reader_pool_type="dummy").stop()
    except Exception as problem:  # noqa: BLE001 - which error it is does not matter, if nothing ran
        told = repr(problem)
    else:
        told = "no error"
    assert not mark.exists(), f"the code ran; then: {told}"
    assert told != "no error"
