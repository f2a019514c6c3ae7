"""Two processes of JAX on this machine: global arrays over both, and every row once."""

from __future__ import annotations

import ast
import collections
import json
import re
from pathlib import Path
from typing import Any

import pytest

from neighbours.conftest import REPOSITORY, Run
from neighbours.two_processes import SETTINGS, free_port, two_processes
from petastore import Unischema, UnischemaField, write_dataset

PROGRAM = Path(__file__).parent / "two_parts.py"
ROWS = 103


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("data") / "ids")
    schema = Unischema("Ids", [UnischemaField("id", "int32")])
    write_dataset(where, schema, [{"id": i} for i in range(ROWS)], rows_per_row_group=13)
    return where


def told(url: str, mode: str, tmp_path: Path, *, devices: int = 1) -> list[Any]:
    """What the two processes say, each with so many devices."""
    address = f"127.0.0.1:{free_port()}"
    printed = two_processes(
        PROGRAM,
        lambda number: [url, address, str(number), mode],
        folder=tmp_path,
        environment={"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"},
    )
    return [json.loads(output.splitlines()[-1]) for output in printed]


@pytest.mark.parametrize(("last_batch", "devices"), [("pad", 2), ("drop", 1), ("wrap", 1)])
def test_every_row_is_trained_on_as_the_tail_says(url: str, last_batch: str, devices: int, tmp_path: Path) -> None:
    first, second = told(url, last_batch, tmp_path, devices=devices)
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


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("even", r"last_batch='drop'.*last_batch='pad'.*last_batch='wrap'"),
        (
            "forgotten",
            r"cur_shard={number}, shard_count=2\), which are jax.process_index\(\) and jax.process_count\(\)",
        ),
        ("swapped", r"cur_shard={number}, shard_count=2"),
        ("interleaved", "lie apart"),
    ],
)
def test_what_would_lose_rows_is_refused_in_both_processes(url: str, mode: str, says: str, tmp_path: Path) -> None:
    for number, refusal in enumerate(told(url, mode, tmp_path, devices=2)):
        assert re.search(says.replace("{number}", str(number)), refusal)


def test_processes_that_share_a_model_read_the_same_rows(url: str, tmp_path: Path) -> None:
    first, second = told(url, "replicated", tmp_path)
    assert first == second
    assert first["rows"] == 8


def test_the_page_runs_in_one_process(tmp_path: Path, run: Run) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "train-with-jax.md").read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    (tmp_path / "page.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{program}", encoding="utf-8")
    run(["python", tmp_path / "page.py"], environment=SETTINGS)


def test_the_program_of_the_page_runs_on_two_processes(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "how-to" / "train-with-jax.md").read_text(encoding="utf-8")
    written, program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[:2]
    writes = re.search(r"^schema = .*?^write_dataset\(.*?^\)$", written, re.MULTILINE | re.DOTALL)
    assert writes
    path = tmp_path / "page.py"
    # The dataset is written beforehand, and nothing is trained before the processes know of each other.
    path.write_text(written.replace(writes[0], "").split("weights = jnp")[0] + program, encoding="utf-8")
    schema = Unischema("Lines", [UnischemaField("id", "int32"), UnischemaField("x", "float32", (2,))])
    write_dataset(str(tmp_path / "lines"), schema, [{"id": i, "x": [i / 100, 1]} for i in range(ROWS)])
    address = f"127.0.0.1:{free_port()}"
    printed = two_processes(path, lambda number: [address, "2", str(number)], folder=tmp_path)
    ids = [i for output in printed for i in ast.literal_eval(output.split("trained ")[1])]
    assert sorted(ids) == list(range(ROWS))
