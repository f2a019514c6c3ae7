"""Tests of two JAX processes on this machine: global arrays over both, and every row once."""

from __future__ import annotations

import ast
import collections
import re
from pathlib import Path
from typing import Any

import pytest

from neighbours.conftest import REPOSITORY
from neighbours.two_processes import free_port, outcomes_of, two_processes
from petastore import Unischema, UnischemaField, write_dataset

PROGRAM = Path(__file__).parent / "two_parts.py"
ROWS = 103


REFUSALS = {
    "even": r"last_batch='drop'.*'pad'.*'wrap'",
    "forgotten": r"cur_shard={number}, shard_count=2\), which are jax.process_index\(\) and jax.process_count\(\)",
    "swapped": r"cur_shard={number}, shard_count=2",
    "interleaved": "must be contiguous",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return the results of all modes, run in two processes with two devices each or with one device each."""
    where = str(tmp_path_factory.mktemp("data") / "ids")
    schema = Unischema("Ids", [UnischemaField("id", "int32")])
    write_dataset(where, schema, [{"id": i} for i in range(ROWS)], rows_per_row_group=13)
    folder = tmp_path_factory.mktemp("run")

    def outcomes_with(devices: int, *modes: str) -> dict[str, list[Any]]:
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        return outcomes_of(PROGRAM, where, modes, folder=folder, environment=flags)

    return outcomes_with(2, "pad", *REFUSALS) | outcomes_with(1, "drop", "wrap", "replicated")


@pytest.mark.parametrize("last_batch", ["pad", "drop", "wrap"])
def test_jax_processes_train_on_rows_according_to_last_batch(outcomes: dict[str, list[Any]], last_batch: str) -> None:
    first, second = outcomes[last_batch]
    assert first["sums"] == second["sums"]  # both computed over the same global arrays
    assert (
        (first["rows"], first["steps"]) == (second["rows"], second["steps"]) == (16, 12 if last_batch == "drop" else 14)
    )
    counts = collections.Counter(first["trained"] + second["trained"])
    if last_batch == "pad":
        assert counts == dict.fromkeys(range(ROWS), 2)
        assert sum(first["sums"]) == 2 * sum(range(ROWS))
    elif last_batch == "drop":
        assert sum(counts.values()) == 2 * 96
        assert max(counts.values()) == 2
    else:
        assert set(counts) == set(range(ROWS))
        assert sum(counts.values()) == 2 * 112


@pytest.mark.parametrize("mode", REFUSALS)
def test_jax_loader_rejects_lost_rows_in_both_processes(outcomes: dict[str, list[Any]], mode: str) -> None:
    for number, refusal in enumerate(outcomes[mode]):
        assert re.search(REFUSALS[mode].replace("{number}", str(number)), refusal)


def test_tensor_parallel_jax_processes_read_the_same_rows(outcomes: dict[str, list[Any]]) -> None:
    first, second = outcomes["replicated"]
    assert first == second
    assert first["rows"] == 8


def test_program_of_the_jax_page_runs_on_two_processes(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "train-with-jax.md").read_text(encoding="utf-8")
    written, program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[:2]
    writes = re.search(r"^schema = .*?^write_dataset\(.*?^\)$", written, re.MULTILINE | re.DOTALL)
    assert writes
    path = tmp_path / "page.py"
    # The dataset is written in advance, and nothing is trained before the processes are connected.
    path.write_text(written.replace(writes[0], "").split("weights = jnp")[0] + program, encoding="utf-8")
    schema = Unischema("Lines", [UnischemaField("id", "int32"), UnischemaField("x", "float32", (2,))])
    write_dataset(str(tmp_path / "lines"), schema, [{"id": i, "x": [i / 100, 1]} for i in range(ROWS)])
    address = f"127.0.0.1:{free_port()}"
    printed = two_processes(path, lambda number: [address, "2", str(number)], folder=tmp_path)
    ids = [i for output in printed for i in ast.literal_eval(output.split("trained ")[1])]
    assert sorted(ids) == list(range(ROWS))
