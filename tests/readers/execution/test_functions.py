"""Tests of transform functions: which worker pool calls them, and which schema they produce."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import TransformSpec
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded
from petastore.readers.execution.execution import Functions
from petastore.work.pools import Workers
from tests.readers.small import SCHEMA, written
from tests.readers.transforms_to_send import unchanged

CALLED = TransformSpec(unchanged)
FIELDS_ONLY = TransformSpec(selected_fields=["word", "id"])


@pytest.mark.parametrize(
    ("kind", "specs", "are_called", "in_processes"),
    [
        ("thread", [None], False, False),
        ("thread", [CALLED], True, False),
        ("process", [None, FIELDS_ONLY], False, False),
        ("process", [None, CALLED], True, True),
        ("dummy", [CALLED], True, False),
    ],
)
def test_process_pool_starts_processes_only_for_transform_functions(
    kind: Any, specs: Any, are_called: bool, in_processes: bool
) -> None:
    functions = Functions.of(specs, workers=Workers(kind, 2), batched=False)
    assert (functions.are_called, functions.processes is not None) == (are_called, in_processes)
    pool = functions.pool()
    assert pool.workers == {"dummy": 0, "thread": 2, "process": 4 if in_processes else 2}[kind]
    pool.close()
    pool.join()
    for _ in range(2):  # close works although no worker was started
        functions.close()
        functions.join()


def test_schema_is_unchanged_without_a_transform(tmp_path: Path) -> None:
    functions = Functions.of([None], workers=Workers("dummy"), batched=False)
    assert functions.transform(None, SCHEMA, written(tmp_path), Buffers()) == (SCHEMA, None)


def test_transform_without_a_function_only_selects_columns(tmp_path: Path) -> None:
    functions = Functions.of([FIELDS_ONLY], workers=Workers("dummy"), batched=False)
    schema, transform = functions.transform(FIELDS_ONLY, SCHEMA, written(tmp_path), Buffers())
    assert set(schema.fields) == {"word", "id"}
    assert transform is not None
    columns = {"id": Decoded(np.arange(2), None), "word": Decoded(np.array(["a", "b"], object), None)}
    more = {"x": Decoded(np.zeros(2, np.float32), None)}
    made = transform(columns | more, np.array([0, 2]))
    assert isinstance(made, dict)
    assert set(made) == {"word", "id"}
    assert made["id"].values.tolist() == [0, 1]
